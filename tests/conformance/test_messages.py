"""Message events: what an idle session does with them, and which are refused."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from openai import OpenAI

from .inputs import message, tool_result, user_message
from .sessions import answers, create_idle, create_waiting, items, kinds, turns, user_texts
from .watch import Watcher, until_status

TEXT = {"type": "input_text", "text": "Hello."}


def post(raw: httpx2.Client, session_id: str, body: Any) -> httpx2.Response:
    return raw.post(f"/agents/sessions/{session_id}/events", json=body)


def test_an_accepted_event_is_answered_with_202_and_nothing_else(client: OpenAI, raw: httpx2.Client) -> None:
    session = create_idle(client)
    response = post(raw, session.id, {"events": [message("Next.")]})
    assert response.status_code == 202
    assert response.content == b""


def test_the_turn_exists_and_the_session_is_busy_when_the_202_arrives(client: OpenAI) -> None:
    session = create_idle(client)
    for number in range(2, 22):
        client.beta.agents.sessions.events.create(session.id, events=[message(f"Message {number}.")])
        seen = client.beta.agents.sessions.retrieve(session.id)
        assert len(turns(client, session.id)) == number
        # The turn may have ended already, but then its answer is there.
        assert seen.status == "in_progress" or len(answers(client, session.id)) == number
        until_status(client, session.id, "idle")


def test_several_messages_of_one_event_become_items_of_one_turn(client: OpenAI) -> None:
    session = create_idle(client)
    client.beta.agents.sessions.events.create(session.id, events=[message("One.", "Two.")])
    until_status(client, session.id, "idle")
    last = turns(client, session.id)[-1]
    own = [item for item in items(client, session.id) if item.turn_id == last.id]
    assert kinds(own) == ["user", "user", "assistant"]
    assert user_texts(client, session.id) == ["Hello.", "One.", "Two."]


def test_several_events_of_one_batch_are_applied_in_order(client: OpenAI) -> None:
    session = create_idle(client)
    client.beta.agents.sessions.events.create(session.id, events=[message("One."), message("Two.")])
    until_status(client, session.id, "idle")
    assert user_texts(client, session.id) == ["Hello.", "One.", "Two."]
    assert answers(client, session.id)[-1] == "You said: Two."


def test_an_empty_batch_does_nothing(client: OpenAI, raw: httpx2.Client) -> None:
    session = create_idle(client)
    before = client.beta.agents.sessions.retrieve(session.id)
    response = post(raw, session.id, {"events": []})
    assert (response.status_code, response.content) == (202, b"")
    assert client.beta.agents.sessions.retrieve(session.id) == before
    assert len(turns(client, session.id)) == 1


def test_sixty_four_events_are_a_batch_and_one_more_is_too_many(client: OpenAI, raw: httpx2.Client) -> None:
    session = create_idle(client)
    refused = post(raw, session.id, {"events": [message(f"{number}.") for number in range(65)]})
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "events"
    accepted = post(raw, session.id, {"events": [message(f"{number}.") for number in range(64)]})
    assert accepted.status_code == 202
    until_status(client, session.id, "idle")
    assert user_texts(client, session.id) == ["Hello.", *(f"{number}." for number in range(64))]


def test_a_batch_with_one_bad_event_admits_none_of_it(client: OpenAI, raw: httpx2.Client) -> None:
    session = create_waiting(client)
    (call,) = session.required_actions
    for bad in (
        tool_result(call, call_id="call_unknown"),
        tool_result(call, turn_id="turn_unknown"),
        {"type": "?"},
    ):
        response = post(raw, session.id, {"events": [message("Lost?"), tool_result(call), bad]})
        assert response.status_code == 400
        assert response.json()["error"]["param"].startswith("events[2]")
    with Watcher(client, session.id) as watcher:
        watcher.wait("agent.session.requires_action")
    assert client.beta.agents.sessions.retrieve(session.id) == session
    client.beta.agents.sessions.events.create(session.id, events=[tool_result(call, "9 °C")])
    until_status(client, session.id, "idle")
    assert user_texts(client, session.id) == ["The weather?"]
    assert answers(client, session.id) == ["It is 9 °C."]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "events"),
        ({"events": None}, "events"),
        ({"events": {}}, "events"),
        ({"events": [], "event": 1}, "event"),
        ({"events": ["hello"]}, "events[0]"),
        ({"events": [{"type": "agent.session.input.shout"}]}, "events[0]"),
        ({"events": [{"type": "tool_result", "call_id": "c", "turn_id": "t", "success": True}]}, "events[0]"),
        ({"events": [{"type": "agent.session.input.message"}]}, "events[0].input"),
        ({"events": [{"type": "agent.session.input.message", "input": "Hello."}]}, "events[0].input"),
        ({"events": [{"type": "agent.session.input.message", "input": []}]}, "events[0].input"),
        (
            {"events": [{"type": "agent.session.input.message", "input": [user_message("")]}]},
            "events[0].input[0]",
        ),
        (
            {"events": [message("Fine."), {"type": "agent.session.input.cancel", "turn_id": "t"}]},
            "events[1].turn_id",
        ),
        (
            {
                "events": [
                    {"type": "agent.session.input.message", "input": [{"role": "system", "content": [TEXT]}]}
                ]
            },
            "events[0].input[0].role",
        ),
        (
            {"events": [{"type": "agent.session.input.tool_result", "call_id": "c", "turn_id": "t"}]},
            "events[0].success",
        ),
        (
            {"events": [{"type": "agent.session.input.tool_result", "call_id": "c", "success": True}]},
            "events[0].turn_id",
        ),
    ],
)
def test_a_bad_batch_is_refused_where_it_is_wrong(
    client: OpenAI, raw: httpx2.Client, body: dict[str, Any], param: str
) -> None:
    session = create_idle(client)
    response = post(raw, session.id, body)
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert error["code"] == "invalid_request_error"
    assert (error["param"] or "").startswith(param), error
    assert len(turns(client, session.id)) == 1


def test_answers_to_requests_nobody_made_are_not_found(client: OpenAI, raw: httpx2.Client) -> None:
    session = create_idle(client)
    for event in (
        {
            "type": "agent.session.input.mcp_approval_request_result",
            "request_id": "req_1",
            "response": {"type": "mcp_tool_call", "decision": "approve"},
        },
        {
            "type": "agent.session.input.computer_use_approval_request_result",
            "request_id": "req_1",
            "response": {"type": "browser_origin_access", "decision": "deny"},
        },
    ):
        response = post(raw, session.id, {"events": [event]})
        assert response.status_code == 404, response.text
        assert response.json()["error"]["code"] == "not_found_error"


def test_events_for_an_unknown_session_are_not_found(raw: httpx2.Client) -> None:
    response = post(raw, "sess_unknown", {"events": [message("Hello?")]})
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "not_found_error"
