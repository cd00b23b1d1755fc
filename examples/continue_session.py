"""Continue a session from any process that has nothing but its id.

PERDURE_URL=http://127.0.0.1:8700 PERDURE_API_KEY=… python examples/continue_session.py SESSION_ID [TEXT]
"""

from __future__ import annotations

import os
import sys
from itertools import chain

from openai import OpenAI

from story.inputs import answer_call
from story.orders import lookup_order
from story.wording import describe_item


def read_history(client: OpenAI, session_id: str) -> None:
    """Print everything that was said and done so far."""
    for item in client.beta.agents.sessions.items.list(session_id, order="asc"):
        print(describe_item(item))


def answer_what_is_owed(client: OpenAI, session_id: str) -> None:
    """Answer every call the session waits for, until it is idle.

    `required_actions` alone says what is owed. Subscribing comes first, so that nothing falls between
    reading the session and following it.
    """
    answered: set[tuple[str, str]] = set()
    with client.beta.agents.sessions.events.stream(session_id) as stream:
        now = client.beta.agents.sessions.retrieve(session_id)
        later = (
            event.session
            for event in stream
            if event.type == "agent.session.requires_action"
            or event.type == "agent.session.idle"
            or event.type == "agent.session.failed"
        )
        for session in chain([now], later):
            if session.status in ("idle", "failed"):
                return
            for call in session.required_actions:
                if call.type == "function_call" and (call.turn_id, call.call_id) not in answered:
                    output = answer_call(client, session_id, call)
                    answered.add((call.turn_id, call.call_id))
                    print(f"owed {call.call_id}: {call.name} {call.arguments}, answered {output}")


def say(client: OpenAI, session_id: str, text: str) -> str:
    """One more turn, with the tool at hand; returns the answer."""
    with client.beta.agents.sessions.stream(
        session_id, input=text, tool_handlers={lookup_order.name: lookup_order}
    ) as stream:
        return stream.get_final_result().output_text


def main(session_id: str, text: str | None = None) -> None:
    client = OpenAI(base_url=f"{os.environ['PERDURE_URL']}/v1", api_key=os.environ["PERDURE_API_KEY"])
    answer_what_is_owed(client, session_id)
    read_history(client, session_id)
    if text is not None:
        print(f"user: {text}")
        print(f"assistant: {say(client, session_id, text)}")


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        raise SystemExit(__doc__)
    main(*sys.argv[1:])
