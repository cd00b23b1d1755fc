"""A stream is cut in mid-message, and the documented procedure brings everything back.

1. Open a new stream; it buffers while you read.
2. Retrieve the session; list its items and turns.
3. Rebuild what you know, by item id.
4. Apply the events of the stream by item id; drop those of items that are already final.
5. Go on live.
"""

from __future__ import annotations

import socket

from openai import APIConnectionError, OpenAI, Stream
from openai.types.beta.agent_session_event import AgentSessionEvent

from story.inputs import send_message
from story.stage import Stage
from story.wording import Item, text_of

SLOW_MODEL = "storyteller"
DELTAS_BEFORE_THE_CUT = 8


class Transcript:
    """The assistant's texts by item id, from saved items and events in any mixture."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.final: set[str] = set()

    def read(self, item: Item) -> None:
        """Take an item as the server shows it. What is final stays."""
        if item.type == "message" and item.role == "assistant" and item.id not in self.final:
            assert item.id is not None
            self.texts[item.id] = text_of(item)
            if item.status != "in_progress":
                self.final.add(item.id)

    def apply(self, event: AgentSessionEvent) -> None:
        """Take one event of a stream."""
        match event.type:
            case "agent.session.turn.item.added" | "agent.session.turn.item.done":
                self.read(event.item)
            case "agent.session.turn.output_text.delta" if event.item_id not in self.final:
                self.texts[event.item_id] = self.texts.get(event.item_id, "") + event.delta
            case "agent.session.turn.output_text.done" if event.item_id not in self.final:
                self.texts[event.item_id] = event.text


def lose_and_recover_a_stream(client: OpenAI, stage: Stage, session_id: str) -> None:
    """Ask for a long answer, lose the connection in the middle of it, and miss nothing."""
    client.beta.agents.sessions.update(session_id, agent={"model": SLOW_MODEL})
    seen = follow_until_the_cut(client, stage, session_id)
    item_id, seen_text = next(iter(seen.texts.items()), ("", ""))
    recovered = recover(client, stage, session_id, item_id)

    last = next(iter(client.beta.agents.sessions.items.list(session_id, order="desc")))
    stored = text_of(last) if last.type == "message" else ""
    turn = client.beta.agents.sessions.turns.retrieve(last.turn_id, session_id=session_id)
    stage.check(
        f"The connection broke after {len(seen_text)} of {len(stored)} characters.",
        0 < len(seen_text) < len(stored),
    )
    stage.check("The turn did not mind and is completed.", turn.status == "completed")
    stage.check(
        "The recovered text is the stored text.",
        item_id == last.id and recovered.texts.get(item_id) == stored,
    )


def follow_until_the_cut(client: OpenAI, stage: Stage, session_id: str) -> Transcript:
    """Start a turn and follow it to the middle of its message; returns what was seen by then."""
    seen = Transcript()
    deltas = 0
    try:
        with client.beta.agents.sessions.events.stream(session_id) as stream:
            send_message(client, session_id, "What is a session?")
            for event in stream:
                stage.event(event)
                seen.apply(event)
                deltas += event.type == "agent.session.turn.output_text.delta"
                if deltas == DELTAS_BEFORE_THE_CUT:
                    pull_the_plug(stream)
    except APIConnectionError as error:
        stage.tell(f"✂ {error} ({error.__cause__})")
    return seen


def recover(client: OpenAI, stage: Stage, session_id: str, item_id: str) -> Transcript:
    """The procedure; returns the transcript once the session is idle."""
    sessions = client.beta.agents.sessions
    transcript = Transcript()
    with sessions.events.stream(session_id) as stream:
        stage.tell("1. A new stream is open; what comes now waits in it.")
        session = sessions.retrieve(session_id)
        items = list(sessions.items.list(session_id, order="asc"))
        turns = list(sessions.turns.list(session_id, order="asc"))
        stage.tell(
            f"2. The session is {session.status}; {len(turns)} turns and {len(items)} items are saved."
        )
        for item in items:
            transcript.read(item)
        stage.tell(f"3. {len(transcript.final)} messages are final; {item_id} is still being written.")
        stage.tell("4. From here on, the stream:")
        shown = 0
        for event in stream if session.status != "idle" else ():
            transcript.apply(event)
            text = transcript.texts.get(item_id, "")
            stage.delta(text[shown:])
            shown = max(shown, len(text))
            if event.type == "agent.session.idle":
                break
    return transcript


def pull_the_plug(stream: Stream[AgentSessionEvent]) -> None:
    """Break the TCP connection of a stream, as a network would."""
    connection: socket.socket = stream.response.extensions["network_stream"].get_extra_info("socket")
    connection.shutdown(socket.SHUT_RDWR)
