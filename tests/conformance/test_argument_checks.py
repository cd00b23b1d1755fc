"""Calls that no application should see: the server answers the model itself."""

from __future__ import annotations

from typing import Any

import pytest
from openai import OpenAI

from .inputs import CLOCK, NONE, WEATHER, tool_result
from .sessions import answers, create, items, kinds
from .watch import until_status


def follow(client: OpenAI, model: str) -> list[Any]:
    """All events of a creation stream; a handler that should never run is in place."""

    def never(arguments: dict[str, Any]) -> str:
        raise AssertionError(f"the handler ran with {arguments}")

    return list(
        client.beta.agents.sessions.create(
            agent={"model": model, "tools": [WEATHER, CLOCK]},
            environment=NONE,
            input="The weather?",
            stream=True,
            tool_handlers={"weather": never, "clock": never, "wether": never},
        )
    )


@pytest.mark.parametrize(
    ("model", "name", "told"),
    [
        ("wrong-arguments", "weather", ["weather", "city", "string"]),
        ("unknown-tool", "wether", ["wether", "weather", "clock"]),
        ("broken-json", "weather", ["weather", "JSON"]),
    ],
)
def test_a_call_that_cannot_be_right_is_answered_to_the_model(
    client: OpenAI, model: str, name: str, told: list[str]
) -> None:
    events = follow(client, model)
    types = [event.type for event in events]
    assert "agent.session.requires_action" not in types
    assert types[-2:] == ["agent.session.turn.completed", "agent.session.idle"]
    session_id = events[0].session.id
    added = [e.item for e in events if e.type == "agent.session.turn.item.added"]
    assert "function_call" not in kinds(added)
    (done,) = [
        e.item for e in events if e.type == "agent.session.turn.item.done" and e.item.type == "function_call"
    ]
    assert (done.name, done.status) == (name, "failed")
    (listed,) = [item for item in items(client, session_id) if item.type == "function_call"]
    assert listed.to_dict() == done.to_dict()
    (answer,) = answers(client, session_id)
    assert answer.startswith("I was told: ")
    for word in told:
        assert word in answer


def test_the_model_is_told_the_rule_and_never_the_rejected_value(client: OpenAI) -> None:
    schema = {
        **WEATHER["parameters"],
        "properties": {"city": {"type": "string", "pattern": "^[A-Z]-\\d{4}$"}},
    }
    session = create(client, "secret-argument", tools=[{**WEATHER, "parameters": schema}])
    until_status(client, session.id, "idle")
    (answer,) = answers(client, session.id)
    assert "city" in answer
    assert "CANARY" not in answer
    assert len(answer) < 2500


def test_after_three_mismatches_in_a_row_the_application_decides(client: OpenAI) -> None:
    session = until_status(client, create(client, "stubborn", tools=[WEATHER]).id, "requires_action", "idle")
    assert session.status == "requires_action"
    (call,) = session.required_actions
    assert call.arguments == {"city": 5}
    calls = [item for item in items(client, session.id) if item.type == "function_call"]
    assert [item.status for item in calls] == ["failed", "failed", "failed", "in_progress"]
    client.beta.agents.sessions.events.create(session.id, events=[tool_result(call, "7 °C")])
    until_status(client, session.id, "idle")
    assert answers(client, session.id) == ["It is 7 °C."]


def test_good_calls_beside_a_bad_one_are_still_made(client: OpenAI) -> None:
    session = until_status(
        client, create(client, "half-right", tools=[WEATHER, CLOCK]).id, "requires_action", "idle"
    )
    assert [action.name for action in session.required_actions] == ["clock"]
    (call,) = session.required_actions
    client.beta.agents.sessions.events.create(session.id, events=[tool_result(call, "noon")])
    until_status(client, session.id, "idle")
    assert answers(client, session.id) == ["Both are in."]
    calls = [item for item in items(client, session.id) if item.type == "function_call"]
    assert [(item.name, item.status) for item in calls] == [("weather", "failed"), ("clock", "completed")]


def test_valid_arguments_pass_unchanged(client: OpenAI) -> None:
    loose = {**WEATHER, "parameters": {"type": "object", "properties": {}}}
    session = until_status(client, create(client, "nested", tools=[loose]).id, "requires_action")
    (call,) = session.required_actions
    assert call.arguments == {"city": None, "list": [1, "zwei", {"a": []}], "text": "ü\u0000"}
    (item,) = [item for item in items(client, session.id) if item.type == "function_call"]
    assert item.arguments == call.arguments
