"""Functions with `async: true`: the agent goes on, the result comes when it comes."""

from __future__ import annotations

from typing import Any

import pytest
from openai import ConflictError, OpenAI

from .inputs import WEATHER, cancel, message, tool_failure, tool_result
from .sessions import answers, create, items, kinds, turns
from .watch import Watcher, until_status

LATER: Any = {**WEATHER, "async": True}


def send(client: OpenAI, session_id: str, *events: Any) -> None:
    client.beta.agents.sessions.events.create(session_id, events=list(events))


@pytest.fixture
def asked(client: OpenAI) -> Any:
    """An idle session that has asked for the weather and still waits for it."""
    session = create(client, "late", "The weather?", tools=[LATER])
    return until_status(client, session.id, "idle")


def test_the_agent_goes_on_without_the_result(client: OpenAI, asked: Any) -> None:
    assert answers(client, asked.id) == ["I have asked."]
    (turn,) = turns(client, asked.id)
    assert turn.status == "completed"
    (call,) = asked.required_actions
    assert (call.type, call.name, call.arguments, call.turn_id) == (
        "function_call",
        "weather",
        {"city": "Oslo"},
        turn.id,
    )


def test_the_session_never_says_that_it_is_blocked(client: OpenAI) -> None:
    events = client.beta.agents.sessions.create(
        agent={"model": "late", "tools": [LATER]},
        environment={"type": "none"},
        input="The weather?",
        stream=True,
    )
    types, done = [], []
    for event in events:
        types.append(event.type)
        if event.type == "agent.session.turn.item.done" and event.item.type == "function_call":
            done.append(event.item)
    assert "agent.session.requires_action" not in types
    assert types[-1] == "agent.session.idle"
    assert [(item.name, item.status) for item in done] == [("weather", "completed")]


def test_the_tool_is_shown_as_asynchronous(client: OpenAI, asked: Any) -> None:
    assert asked.agent.tools[0].to_dict()["async"] is True


def test_a_late_result_starts_a_turn_of_its_own(client: OpenAI, asked: Any) -> None:
    (call,) = asked.required_actions
    with Watcher(client, asked.id) as watcher:
        watcher.wait("agent.session.idle")
        send(client, asked.id, tool_result(call))
        created = watcher.wait("agent.session.turn.created")
        watcher.wait("agent.session.idle", after=1)
    assert created.turn_id != call.turn_id
    after = client.beta.agents.sessions.retrieve(asked.id)
    assert (after.status, after.required_actions) == ("idle", [])
    assert answers(client, asked.id) == ["I have asked.", "The late result is in."]
    assert [turn.status for turn in turns(client, asked.id)] == ["completed", "completed"]
    outputs = [item for item in items(client, asked.id) if item.type == "function_call_output"]
    assert [(item.call_id, item.output) for item in outputs] == [(call.call_id, "7 °C")]


def test_a_late_failure_reaches_the_model_too(client: OpenAI, asked: Any) -> None:
    (call,) = asked.required_actions
    send(client, asked.id, tool_failure(call, "error 7"))
    until_status(client, asked.id, "idle")
    assert answers(client, asked.id) == ["I have asked.", "The late result is in."]


def test_a_repeated_late_result_starts_no_second_turn(client: OpenAI, asked: Any) -> None:
    (call,) = asked.required_actions
    for _ in range(2):
        send(client, asked.id, tool_result(call))
        until_status(client, asked.id, "idle")
    assert len(turns(client, asked.id)) == 2
    with pytest.raises(ConflictError):
        send(client, asked.id, tool_result(call, "8 °C"))


def test_the_conversation_may_go_on_before_the_result(client: OpenAI, asked: Any) -> None:
    (call,) = asked.required_actions
    with client.beta.agents.sessions.stream(asked.id, input="Meanwhile.") as stream:
        assert stream.get_final_result().output_text == "You said: Meanwhile."
    assert client.beta.agents.sessions.retrieve(asked.id).required_actions == [call]
    send(client, asked.id, tool_result(call))
    until_status(client, asked.id, "idle")
    assert answers(client, asked.id)[-1] == "The late result is in."


def test_a_cancel_of_the_idle_session_drops_the_open_call(client: OpenAI, asked: Any) -> None:
    (call,) = asked.required_actions
    send(client, asked.id, cancel())
    until_status(client, asked.id, "idle")
    assert client.beta.agents.sessions.retrieve(asked.id).required_actions == []
    with pytest.raises(ConflictError):
        send(client, asked.id, tool_result(call))
    assert [turn.status for turn in turns(client, asked.id)] == ["completed"]
    with client.beta.agents.sessions.stream(asked.id, input="Go on.") as stream:
        assert stream.get_final_result().output_text == "You said: Go on."


def test_the_order_of_items_is_the_order_of_what_happened(client: OpenAI, asked: Any) -> None:
    (call,) = asked.required_actions
    send(client, asked.id, message("Meanwhile."))
    until_status(client, asked.id, "idle")
    send(client, asked.id, tool_result(call))
    until_status(client, asked.id, "idle")
    assert kinds(items(client, asked.id)) == [
        "user",
        "function_call",
        "assistant",
        "user",
        "assistant",
        "function_call_output",
        "assistant",
    ]


def test_a_session_with_an_open_late_call_can_be_deleted_after_a_cancel(client: OpenAI, asked: Any) -> None:
    send(client, asked.id, cancel())
    assert client.beta.agents.sessions.delete(asked.id).deleted is True
