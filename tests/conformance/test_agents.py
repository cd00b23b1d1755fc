from __future__ import annotations

from typing import Any

import pytest
from openai import BadRequestError, NotFoundError, OpenAI

from .inputs import NONE, WEATHER
from .sessions import create
from .watch import until_status

HTTP_MCP: Any = {
    "type": "mcp",
    "server_label": "docs",
    "transport": {"type": "http", "server_url": "https://mcp.example.com", "headers": {"X-Team": "blue"}},
}


def test_create_fills_in_the_documented_defaults(client: OpenAI) -> None:
    agent = client.beta.agents.create(model="echo")
    assert agent.object == "agent"
    assert agent.model == "echo"
    assert agent.name is None
    assert agent.instructions is None
    assert agent.metadata == {}
    assert agent.tools == []
    assert agent.service_tier == "auto"
    assert agent.multi_agent.to_dict() == {"enabled": False, "max_concurrent_subagents": None}
    assert agent.text.to_dict() == {"format": {"type": "text"}, "verbosity": "medium"}
    assert agent.reasoning.summary is None
    assert agent.compaction is not None
    assert agent.compaction.async_ is False
    assert agent.experimental is not None
    assert agent.experimental.time_awareness is False
    assert agent.created_at == agent.updated_at


def test_create_answers_201(client: OpenAI) -> None:
    response = client.beta.agents.with_raw_response.create(model="echo")
    assert response.http_response.status_code == 201


def test_null_on_create_means_the_default(client: OpenAI) -> None:
    agent = client.beta.agents.create(
        model="echo",
        name=None,
        instructions=None,
        metadata=None,
        multi_agent=None,
        reasoning=None,
        service_tier=None,
        text=None,
        tools=None,
        compaction=None,
    )
    plain = client.beta.agents.create(model="echo")
    ignored = {"id", "created_at", "updated_at"}
    assert agent.model_dump(exclude=ignored) == plain.model_dump(exclude=ignored)


def test_retrieve_returns_what_create_returned(client: OpenAI) -> None:
    created = client.beta.agents.create(
        model="echo",
        name="helper",
        instructions="Be brief.",
        metadata={"team": "blue"},
        reasoning={"effort": "low", "summary": "concise"},
        service_tier="flex",
        text={
            "format": {"type": "json_schema", "schema": {"type": "object", "properties": {}}},
            "verbosity": "low",
        },
        tools=[WEATHER, {"type": "web_search"}, HTTP_MCP],
        multi_agent={"enabled": True},
        compaction={"async_": True},
        experimental={"time_awareness": True},
    )
    assert client.beta.agents.retrieve(created.id) == created
    assert created.multi_agent.max_concurrent_subagents == 6
    assert created.compaction is not None
    assert created.compaction.async_ is True
    assert created.text.format.to_dict() == {
        "type": "json_schema",
        "schema": {"type": "object", "properties": {}},
    }


def test_a_function_tool_comes_back_with_its_flags(client: OpenAI) -> None:
    agent = client.beta.agents.create(model="echo", tools=[WEATHER])
    assert agent.tools[0].to_dict() == {**WEATHER, "defer_loading": False, "async": False}


def test_a_saved_agent_may_name_tools_that_this_server_cannot_run(client: OpenAI) -> None:
    tools: Any = [
        HTTP_MCP,
        {"type": "web_search"},
        {"type": "computer_use"},
        {"type": "automations"},
        {"type": "tool_search"},
        {"type": "programmatic_tool_calling"},
    ]
    agent = client.beta.agents.create(model="echo", tools=tools)
    assert [tool.type for tool in agent.tools] == [tool["type"] for tool in tools]
    assert agent.tools[0].to_dict()["transport"] == {
        "type": "http",
        "server_url": "https://mcp.example.com",
        "headers": {"X-Team": "blue"},
    }


def test_update_keeps_what_is_omitted(client: OpenAI) -> None:
    before = client.beta.agents.create(
        model="echo", name="helper", instructions="Be brief.", metadata={"team": "blue"}, tools=[WEATHER]
    )
    after = client.beta.agents.update(before.id, name="assistant")
    assert after.name == "assistant"
    ignored = {"name", "updated_at"}
    assert after.model_dump(exclude=ignored) == before.model_dump(exclude=ignored)
    assert client.beta.agents.retrieve(before.id) == after


def test_update_with_null_resets(client: OpenAI) -> None:
    agent = client.beta.agents.create(
        model="echo",
        name="helper",
        instructions="Be brief.",
        metadata={"team": "blue"},
        reasoning={"effort": "high", "summary": "auto"},
        service_tier="priority",
        text={"verbosity": "high"},
        tools=[WEATHER],
        multi_agent={"enabled": True, "max_concurrent_subagents": 2},
        compaction={"async_": True},
    )
    reset = client.beta.agents.update(
        agent.id,
        name=None,
        instructions=None,
        metadata=None,
        reasoning=None,
        service_tier=None,
        text=None,
        tools=None,
        multi_agent=None,
        compaction=None,
    )
    plain = client.beta.agents.create(model="echo")
    ignored = {"id", "created_at", "updated_at"}
    assert reset.model_dump(exclude=ignored) == plain.model_dump(exclude=ignored)


def test_update_replaces_whole_objects(client: OpenAI) -> None:
    agent = client.beta.agents.create(
        model="echo",
        reasoning={"effort": "high", "summary": "auto"},
        metadata={"team": "blue", "tier": "gold"},
    )
    updated = client.beta.agents.update(agent.id, reasoning={"effort": "low"}, metadata={"team": "red"})
    assert updated.reasoning.to_dict() == {"effort": "low", "summary": None}
    assert updated.metadata == {"team": "red"}


def test_update_merges_experimental_settings(client: OpenAI) -> None:
    agent = client.beta.agents.create(model="echo", experimental={"time_awareness": True})
    updated = client.beta.agents.update(agent.id, experimental={})
    assert updated.experimental is not None
    assert updated.experimental.time_awareness is True


def test_update_does_not_take_a_null_model(client: OpenAI) -> None:
    agent = client.beta.agents.create(model="echo")
    with pytest.raises(BadRequestError) as refusal:
        client.beta.agents.update(agent.id, extra_body={"model": None})
    assert refusal.value.param == "model"


def test_an_unknown_model_is_refused_by_name(client: OpenAI) -> None:
    with pytest.raises(NotFoundError) as refusal:
        client.beta.agents.create(model="no-such-model")
    assert refusal.value.code == "model_not_found"
    assert refusal.value.param == "model"


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "model"),
        ({"model": ""}, "model"),
        ({"model": 5}, "model"),
        ({"model": "echo", "name": "n" * 129}, "name"),
        ({"model": "echo", "nmae": "helper"}, "nmae"),
        ({"model": "echo", "service_tier": "gold"}, "service_tier"),
        ({"model": "echo", "reasoning": {"effort": "huge"}}, "reasoning.effort"),
        ({"model": "echo", "metadata": {"k": 5}}, "metadata.k"),
        ({"model": "echo", "metadata": {"k" * 65: "v"}}, "metadata"),
        ({"model": "echo", "metadata": {"k": "v" * 513}}, "metadata.k"),
        ({"model": "echo", "metadata": {f"k{n}": "v" for n in range(17)}}, "metadata"),
        ({"model": "echo", "tools": {}}, "tools"),
        (
            {"model": "echo", "tools": [{"type": "function", "name": "f", "description": "d"}]},
            "tools[0].parameters",
        ),
        ({"model": "echo", "tools": [{**WEATHER, "parameterz": {}}]}, "tools[0].parameterz"),
        ({"model": "echo", "tools": [WEATHER, {**WEATHER, "name": ""}]}, "tools[1].name"),
        ({"model": "echo", "tools": [WEATHER, WEATHER]}, "tools[1].name"),
        ({"model": "echo", "tools": [{**WEATHER, "parameters": {"type": "array"}}]}, "tools[0].parameters"),
        ({"model": "echo", "tools": [{"type": "hammer"}]}, "tools[0]"),
        ({"model": "echo", "multi_agent": {"enabled": False, "max_concurrent_subagents": 2}}, "multi_agent"),
        ({"model": "echo", "multi_agent": {"enabled": True, "max_concurrent_subagents": 0}}, "multi_agent"),
        (
            {"model": "echo", "text": {"format": {"type": "json_schema", "schema": {"type": "string"}}}},
            "text.format",
        ),
    ],
)
def test_a_bad_configuration_is_refused_where_it_is_wrong(
    client: OpenAI, body: dict[str, Any], param: str
) -> None:
    with pytest.raises(BadRequestError) as refusal:
        client.post("/agents", body=body, cast_to=object, options={"headers": {"OpenAI-Beta": "agents=v1"}})
    assert refusal.value.code == "invalid_request_error"
    assert refusal.value.type == "invalid_request_error"
    assert (refusal.value.param or "").startswith(param), refusal.value.body


def test_a_saved_agent_holds_no_credentials(client: OpenAI) -> None:
    transport = {"type": "http", "server_url": "https://mcp.example.com", "authorization": "Bearer secret"}
    with pytest.raises(BadRequestError) as refusal:
        client.beta.agents.create(
            model="echo",
            tools=[{"type": "mcp", "server_label": "docs", "transport": transport}],
        )
    assert refusal.value.param == "tools[0].transport.authorization"
    assert "secret" not in str(refusal.value.body)


def test_delete_answers_with_the_deletion_and_the_agent_is_gone(client: OpenAI) -> None:
    agent = client.beta.agents.create(model="echo")
    deletion = client.beta.agents.delete(agent.id)
    assert deletion.to_dict() == {"id": agent.id, "object": "agent.deleted", "deleted": True}
    for use in (
        lambda: client.beta.agents.retrieve(agent.id),
        lambda: client.beta.agents.update(agent.id, name="gone"),
        lambda: client.beta.agents.sessions.create(agent_id=agent.id, environment=NONE, input="Hello."),
    ):
        with pytest.raises(NotFoundError) as refusal:
            use()
        assert refusal.value.code == "not_found_error"
    assert agent.id not in [listed.id for listed in client.beta.agents.list(limit=100)]


def test_a_session_keeps_its_copy_of_the_agent(client: OpenAI) -> None:
    agent = client.beta.agents.create(model="echo", name="helper", instructions="Be brief.", tools=[WEATHER])
    session = client.beta.agents.sessions.create(agent_id=agent.id, environment=NONE, input="Hello.")
    until_status(client, session.id, "idle")
    client.beta.agents.update(agent.id, name="renamed", instructions="Be long.", model="greeter", tools=[])
    assert client.beta.agents.sessions.retrieve(session.id).agent == session.agent
    client.beta.agents.delete(agent.id)
    kept = client.beta.agents.sessions.retrieve(session.id)
    assert kept.agent == session.agent
    assert (kept.agent.id, kept.agent.name, kept.agent.model) == (agent.id, "helper", "echo")
    with client.beta.agents.sessions.stream(session.id, input="And now?") as stream:
        assert stream.get_final_result().output_text == "You said: And now?"


def test_an_inline_agent_is_not_a_saved_one(client: OpenAI) -> None:
    inline = create(client, "echo").agent
    with pytest.raises(NotFoundError):
        client.beta.agents.retrieve(inline.id)
    assert inline.id not in [agent.id for agent in client.beta.agents.list(limit=100)]


def test_list_is_newest_first_and_pages_both_ways_as_mirrors(client: OpenAI) -> None:
    made = [client.beta.agents.create(model="echo", name=str(number)).id for number in range(5)]
    newest_first = [agent.id for agent in client.beta.agents.list(limit=2) if agent.id in made]
    assert newest_first == made[::-1]
    oldest_first = [agent.id for agent in client.beta.agents.list(limit=1, order="asc") if agent.id in made]
    assert oldest_first == made
