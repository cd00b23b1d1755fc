"""The server is killed in mid-sentence. The next one finishes the turn, and no input is lost or used twice.

The client comes back with the id of the last event it has seen (`after`, an extension): it is told what
it missed and then what happens, without a gap.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from openai import APIConnectionError, OpenAI
from openai.types.beta.agent_session_event import AgentSessionEvent

from story.inputs import answer_call, send_message
from story.server import Server
from story.stage import Stage
from story.wording import text_of

CHARACTERS_BEFORE_THE_KILL = 200
ASKED = "Write a letter about B-2077."
ADDED = "Make it short, please."


@dataclass
class Witness:
    """What a client has seen of the turn: ids of stored events, and the text that was being written."""

    turn_id: str = ""
    last_event_id: str = ""
    stored: list[str] = field(default_factory=list)
    text: str = ""
    answered: int = 0

    def see(self, event: AgentSessionEvent) -> None:
        self.last_event_id = event.event_id
        if event.type == "agent.session.turn.created":
            self.turn_id = event.turn_id
        if event.type == "agent.session.turn.output_text.delta":
            self.text += event.delta
        elif self.turn_id:
            self.stored.append(event.event_id)


def kill_the_server(client: OpenAI, stage: Stage, server: Server, session_id: str) -> Witness:
    """Start a turn, answer its call, and kill the server while it writes; returns what was seen by then."""
    seen = Witness()
    killed = False
    try:
        with client.beta.agents.sessions.events.stream(session_id) as stream:
            send_message(client, session_id, ASKED)
            for event in stream:
                follow(client, stage, session_id, event, seen)
                if not killed and len(seen.text) >= CHARACTERS_BEFORE_THE_KILL:
                    send_message(client, session_id, ADDED)
                    stage.tell(f"→ message “{ADDED}” is accepted: 202")
                    stage.tell(f"☠ kill -9 {server.process_id}")
                    server.kill()
                    killed = True  # what the network still holds is read to its end
    except APIConnectionError as error:
        stage.tell(f"✂ {error} ({error.__cause__})")
    return seen


def see_the_turn_end(client: OpenAI, stage: Stage, server: Server, session_id: str, seen: Witness) -> None:
    """Come back to the next server with the last event id, and compare what was seen with what is saved."""
    before = len(seen.stored)
    stage.tell(f"perdure serve, process {server.process_id}, on the same directory")
    stage.tell(f"GET …/events?after={seen.last_event_id}")
    sessions = client.beta.agents.sessions
    with sessions.events.stream(session_id, extra_query={"after": seen.last_event_id}) as stream:
        for event in stream:
            follow(client, stage, session_id, event, seen)
            if event.type == "agent.session.idle":
                break

    turn = sessions.turns.list(session_id, order="desc", limit=1).data[0]
    items = list(sessions.turns.items.list(turn.id, session_id=session_id, order="asc"))
    stage.tell("What the turn has saved:")
    stage.items(items)
    stage.check(
        f"The turn that the kill broke off, {turn.id}, is completed.",
        turn.id == seen.turn_id and turn.status == "completed",
    )
    torn, whole = [item for item in items if item.type == "message" and item.role == "assistant"]
    stage.check(
        "Its torn message is kept as incomplete; the new one is complete.",
        (torn.status, whole.status) == ("incomplete", "completed") and text_of(torn) in seen.text,
    )
    said = [text_of(item) for item in items if item.type == "message" and item.role == "user"]
    stage.check(
        "The message accepted just before the kill is there once, and the answer heeds it.",
        said == [ASKED, ADDED] and "this letter goes on" not in text_of(whole),
    )
    results = [item for item in items if item.type == "function_call_output"]
    stage.check(
        "The result is there once, the answer uses it, and the tool was not asked again.",
        seen.answered == len(results) == 1 and "waiting for payment" in text_of(whole),
    )
    saved = [event["event_id"] for event in stored_events(client, server, session_id)]
    missed = len(seen.stored) - before
    stage.check(
        f"{before} stored events before the kill, {missed} behind it: each was told once, none is missing.",
        seen.stored == saved[saved.index(seen.stored[0]) :],
    )


def follow(client: OpenAI, stage: Stage, session_id: str, event: AgentSessionEvent, seen: Witness) -> None:
    """Show an event, remember it, and answer what it asks for."""
    stage.event(event)
    seen.see(event)
    if event.type == "agent.session.requires_action":
        for action in event.session.required_actions:
            if action.type == "function_call":
                stage.tell(f"→ tool_result {answer_call(client, session_id, action)} is accepted: 202")
                seen.answered += 1


def stored_events(client: OpenAI, server: Server, session_id: str) -> Iterator[dict[str, Any]]:
    """Every stored event of the session, from the pages of the extension."""
    url = f"{server.url}/perdure/v1/sessions/{session_id}/events"
    query: dict[str, object] = {"limit": 100}
    while True:
        page: Any = client.get(url, cast_to=object, options={"params": query})
        yield from page["data"]
        if not page["has_more"]:
            return
        query["after"] = page["last_id"]
