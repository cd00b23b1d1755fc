"""Sizes, ceilings and deadlines."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from openai import BadRequestError, OpenAI

from .conftest import PrivateServers
from .inputs import CLOCK, NONE, WEATHER, tool_result
from .scripts import SETTINGS
from .sessions import answers, create, create_idle, create_waiting, items, turns
from .watch import until, until_status


def function(name: str = "weather", **changes: Any) -> Any:
    return {**WEATHER, "name": name, **changes}


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


@pytest.mark.parametrize(
    ("agent", "param"),
    [
        ({"tools": [function(f"f{n}", description="d" * 30_000) for n in range(110)]}, "agent.tools"),
        ({"instructions": "i" * (5 << 20)}, "agent"),
        ({"tools": [function(parameters=nested(90))]}, "agent.tools[0].parameters"),
        ({"text": {"format": {"type": "json_schema", "schema": nested(90)}}}, "agent.text.format"),
        (
            {"text": {"format": {"type": "json_schema", "schema": {"anyOf": [{"type": "object"}]}}}},
            "agent.text",
        ),
        (
            {"text": {"format": {"type": "json_schema", "schema": {"type": "array", "items": {}}}}},
            "agent.text",
        ),
        (
            {"tools": [function(parameters={"type": "object", "properties": {"a": {"type": "strng"}}})]},
            "agent.tools[0]",
        ),
        (
            {"tools": [function(parameters={"type": "object", "properties": {"a": {"pattern": "("}}})]},
            "agent.tools[0].parameters",
        ),
        (
            {
                "tools": [
                    function(parameters={"type": "object", "properties": {"a": {"$ref": "#/$defs/none"}}})
                ]
            },
            "agent.tools[0].parameters",
        ),
    ],
    ids=[
        "tools above 3 MiB",
        "instructions above 4 MiB",
        "deep parameters",
        "a deep output schema",
        "a union as output schema",
        "an array as output schema",
        "an unknown type",
        "a broken pattern",
        "a dangling reference",
    ],
)
def test_a_configuration_out_of_bounds_is_refused_where_it_is(
    client: OpenAI, agent: dict[str, Any], param: str
) -> None:
    with pytest.raises(BadRequestError) as refusal:
        create(client, "echo", **agent)
    assert (refusal.value.param or "").startswith(param), str(refusal.value.body)[:500]


def test_a_pattern_made_to_hang_hangs_nothing(client: OpenAI) -> None:
    parameters = {"type": "object", "properties": {"city": {"type": "string", "pattern": "^(a+)+$"}}}
    session = create(client, "pattern-bomb", tools=[function(parameters=parameters)])
    until_status(client, session.id, "idle")
    assert [item.status for item in items(client, session.id) if item.type == "function_call"] == ["failed"]
    assert answers(client, session.id)[-1].startswith("I was told: ")


def test_recursive_and_union_parameters_are_taken(client: OpenAI) -> None:
    node = {
        "type": "object",
        "properties": {
            "value": {"anyOf": [{"const": 1}, {"enum": [2, 3]}, {"type": "number", "minimum": 10}]},
            "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
        },
    }
    parameters = {"type": "object", "properties": {"list": {"$ref": "#/$defs/node"}}, "$defs": {"node": node}}
    session = create_idle(client, "echo", tools=[function(parameters=parameters)])
    assert session.agent.tools[0].to_dict()["parameters"] == parameters


def test_a_result_above_16_mib_is_refused_and_the_call_stays_open(client: OpenAI, raw: httpx2.Client) -> None:
    session = create_waiting(client)
    (call,) = session.required_actions
    url = f"/agents/sessions/{session.id}/events"
    response = raw.post(url, json={"events": [tool_result(call, "x" * ((16 << 20) + 1))]})
    assert response.status_code == 400
    assert "16,777,216 bytes" in response.json()["error"]["message"]
    assert response.json()["error"]["param"] == "events[0].output"
    assert client.beta.agents.sessions.retrieve(session.id) == session
    response = raw.post(url, json={"events": [tool_result(call, "x" * (16 << 20))]})
    assert response.status_code == 202
    until_status(client, session.id, "idle")
    (output,) = [item for item in items(client, session.id) if item.type == "function_call_output"]
    assert len(output.output) == 16 << 20


def test_a_turn_that_calls_the_model_without_end_is_stopped_and_the_session_is_not(
    private_servers: PrivateServers,
) -> None:
    server = private_servers(SETTINGS + "\n[limits]\nmodel_calls_per_turn = 5\nrepaired_calls = 100\n")
    client = private_servers.client(server)
    session = until_status(client, create(client, "stubborn", tools=[WEATHER]).id, "idle", "requires_action")
    (turn,) = turns(client, session.id)
    assert turn.status == "failed"
    assert turn.error is not None
    assert turn.error.code == "usage_limit_exceeded"
    calls = [item for item in items(client, session.id) if item.type == "function_call"]
    assert len(calls) <= 5
    client.beta.agents.sessions.update(session.id, agent={"model": "echo"})
    with client.beta.agents.sessions.stream(session.id, input="Go on.") as stream:
        assert stream.get_final_result().output_text == "You said: Go on."


def test_a_call_nobody_answers_fails_its_turn_when_a_limit_is_set(private_servers: PrivateServers) -> None:
    server = private_servers(SETTINGS.replace("[work]", "[work]\ncall_timeout = 1.0"))
    client = private_servers.client(server)
    session = create_waiting(client, "parallel", "both", tools=[WEATHER, CLOCK])
    client.beta.agents.sessions.events.create(session.id, events=[tool_result(session.required_actions[0])])
    after = until_status(client, session.id, "idle")
    assert after.required_actions == []
    (turn,) = turns(client, session.id)
    assert turn.status == "failed"
    assert turn.error is not None
    assert turn.error.code == "request_timeout"
    statuses = [item.status for item in items(client, session.id) if item.type == "function_call"]
    assert statuses == ["completed", "incomplete"]
    with client.beta.agents.sessions.stream(session.id, input="Go on.") as stream:
        assert stream.get_final_result().output_text == "You said: Go on."


def test_a_turn_above_its_time_fails_and_the_session_goes_on(private_servers: PrivateServers) -> None:
    server = private_servers(SETTINGS.replace("[work]", "[work]\nturn_timeout = 1.0"))
    client, gate = private_servers.client(server), private_servers.gate(server)
    session = create(client, "gated", gate.text)
    (turn,) = until(
        lambda: turns(client, session.id), lambda listed: listed[0].status not in ("queued", "in_progress")
    )
    assert turn.status == "failed"
    assert turn.error is not None
    assert turn.error.code == "request_timeout"
    until_status(client, session.id, "idle")
    with client.beta.agents.sessions.stream(session.id, input="Go on.") as stream:
        assert stream.get_final_result().output_text == "You said: Go on."
    assert answers(client, session.id) == ["Before, ", "You said: Go on."]


def test_organisation_and_project_of_the_client_are_tolerated(client: OpenAI) -> None:
    configured = client.with_options(organization="org_1", project="proj_1")
    session = configured.beta.agents.sessions.create(
        agent={"model": "echo"}, environment=NONE, input="Hello."
    )
    assert until_status(configured, session.id, "idle").id == session.id
