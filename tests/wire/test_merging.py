from __future__ import annotations

import json
from typing import Any

import pytest

from perdure.wire.agents import (
    AgentCreate,
    AgentSettings,
    AgentUpdate,
    SessionAgentParams,
    SessionAgentUpdate,
    apply_overrides,
    apply_session_update,
    apply_update,
    resolve_create,
    saved_agent_resource,
    session_agent_resource,
)
from perdure.wire.errors import InvalidRequest
from perdure.wire.validation import validate

from .bodies import FUNCTION, HTTP, STDIO, mcp

FULL: dict[str, Any] = {
    "model": "m",
    "instructions": "Be brief.",
    "multi_agent": {"enabled": True, "max_concurrent_subagents": 2},
    "reasoning": {"effort": "low", "summary": "auto"},
    "service_tier": "flex",
    "text": {"format": {"type": "json_schema", "schema": {"type": "object"}}, "verbosity": "low"},
    "tools": [FUNCTION, {"type": "tool_search"}],
    "compaction": {"async": True},
    "experimental": {"time_awareness": True},
}
DEFAULTS: dict[str, Any] = {
    "instructions": None,
    "multi_agent": {"enabled": False, "max_concurrent_subagents": None},
    "reasoning": {"effort": None, "summary": None},
    "service_tier": "auto",
    "text": {"format": {"type": "text"}, "verbosity": "medium"},
    "tools": [],
    "compaction": {"async": False},
    "experimental": {"time_awareness": False},
}


def settings(**members: Any) -> AgentSettings:
    return resolve_create(validate(AgentCreate, {**FULL, **members}))


def dump(value: AgentSettings) -> dict[str, Any]:
    return value.model_dump(mode="json")


def test_a_new_agent_has_the_documented_defaults() -> None:
    assert dump(resolve_create(validate(AgentCreate, {"model": "m"}))) == {"model": "m", **DEFAULTS}
    empty = {name: None for name in DEFAULTS if name != "experimental"}
    assert dump(resolve_create(validate(AgentCreate, {"model": "m", **empty}))) == {
        "model": "m",
        **DEFAULTS,
    }


def test_an_enabled_coordinator_has_six_subagents_unless_said() -> None:
    assert settings(multi_agent={"enabled": True}).multi_agent.max_concurrent_subagents == 6
    assert settings(multi_agent={"enabled": True, "max_concurrent_subagents": 1}).multi_agent.enabled
    assert settings(multi_agent={"enabled": False}).multi_agent.max_concurrent_subagents is None


CHANGES = [
    ({}, {}),
    ({"model": "m2"}, {"model": "m2"}),
    ({"instructions": None}, {"instructions": None}),
    ({"instructions": ""}, {"instructions": ""}),
    ({"reasoning": {"effort": "high"}}, {"reasoning": {"effort": "high", "summary": None}}),
    ({"reasoning": {}}, {"reasoning": DEFAULTS["reasoning"]}),
    ({"text": {"verbosity": "high"}}, {"text": {"format": {"type": "text"}, "verbosity": "high"}}),
    ({"text": {"format": None}}, {"text": DEFAULTS["text"]}),
    ({"multi_agent": {"enabled": False}}, {"multi_agent": DEFAULTS["multi_agent"]}),
    ({"service_tier": "fast"}, {"service_tier": "fast"}),
    ({"tools": []}, {"tools": []}),
    ({"compaction": {}}, {"compaction": {"async": False}}),
    ({"compaction": {"async": None}}, {"compaction": {"async": False}}),
    ({"experimental": {}}, {}),
    ({"experimental": {"time_awareness": False}}, {"experimental": {"time_awareness": False}}),
    *(
        ({name: None}, {name: DEFAULTS[name]})
        for name in (
            "instructions",
            "multi_agent",
            "reasoning",
            "service_tier",
            "text",
            "tools",
            "compaction",
        )
    ),
]


@pytest.mark.parametrize(("change", "expected"), CHANGES)
def test_an_update_keeps_what_is_omitted_and_replaces_what_is_given(
    change: dict[str, Any], expected: dict[str, Any]
) -> None:
    before = settings()
    after = apply_update(before, validate(AgentUpdate, change))
    assert dump(after) == {**dump(before), **expected}


@pytest.mark.parametrize(("change", "expected"), CHANGES)
def test_overrides_of_a_session_follow_the_same_rules(
    change: dict[str, Any], expected: dict[str, Any]
) -> None:
    before = settings()
    after = apply_overrides(before, validate(SessionAgentParams, change))
    assert dump(after) == {**dump(before), **expected}


def test_a_session_without_overrides_has_the_saved_settings() -> None:
    assert apply_overrides(settings(), None) == settings()


def test_an_inline_agent_is_resolved_like_a_saved_one() -> None:
    assert dump(apply_overrides(None, validate(SessionAgentParams, FULL))) == dump(settings())


@pytest.mark.parametrize("agent", [None, {}, {"instructions": "x"}])
def test_a_session_without_any_model_is_refused(agent: Any) -> None:
    params = None if agent is None else validate(SessionAgentParams, agent)
    with pytest.raises(InvalidRequest, match="is required when agent_id is omitted") as refusal:
        apply_overrides(None, params)
    assert refusal.value.param == "agent.model"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, {}),
        ({"model": "m2"}, {"model": "m2"}),
        ({"reasoning": {}}, {}),
        ({"reasoning": {"effort": "max"}}, {"reasoning": {"effort": "max", "summary": "auto"}}),
        ({"reasoning": {"effort": None}}, {"reasoning": {"effort": None, "summary": "auto"}}),
        ({"service_tier": "fast"}, {"service_tier": "fast"}),
        ({"service_tier": None}, {"service_tier": "auto"}),
        ({"tools": None}, {"tools": []}),
        ({"tools": []}, {"tools": []}),
    ],
)
def test_an_update_of_a_session_merges_member_by_member(
    change: dict[str, Any], expected: dict[str, Any]
) -> None:
    before = settings()
    after = apply_session_update(before, validate(SessionAgentUpdate, change))
    assert dump(after) == {**dump(before), **expected}


def test_new_tools_replace_the_whole_list() -> None:
    tools = [{"type": "automations"}]
    assert [
        tool.type
        for tool in apply_session_update(settings(), validate(SessionAgentUpdate, {"tools": tools})).tools
    ] == ["automations"]


def test_instructions_and_tools_fit_together_or_are_refused() -> None:
    tools = [{**FUNCTION, "description": "x" * (2 << 20)}]
    with pytest.raises(InvalidRequest) as refusal:
        settings(tools=tools, instructions="y" * ((2 << 20) + 1))
    assert refusal.value.param == "instructions"
    saved = settings(tools=tools)
    with pytest.raises(InvalidRequest) as refusal:
        apply_overrides(saved, validate(SessionAgentParams, {"instructions": "y" * ((2 << 20) + 1)}))
    assert refusal.value.param == "agent.instructions"
    long = settings(instructions="y" * ((2 << 20) + 1))
    with pytest.raises(InvalidRequest) as refusal:
        apply_session_update(long, validate(SessionAgentUpdate, {"tools": tools}))
    assert refusal.value.param == "agent.tools"


SECRET_TOOLS = [
    {**FUNCTION, "async": True},
    {"type": "tool_search"},
    {"type": "web_search"},
    mcp({**HTTP, "authorization": "CANARY", "headers": {"X-Key": "CANARY"}}, allowed_tools=["find"]),
    mcp({**STDIO, "env": {"KEY": "CANARY"}, "args": ["-v"]}, server_label="local"),
]


def test_settings_survive_storage_with_their_secrets() -> None:
    before = apply_overrides(None, validate(SessionAgentParams, {"model": "m", "tools": SECRET_TOOLS}))
    stored = json.loads(before.model_dump_json(by_alias=True))
    assert AgentSettings.model_validate(stored) == before
    assert json.dumps(stored).count("CANARY") == 3


def test_a_session_shows_its_agent_without_secrets_and_without_the_search_tool() -> None:
    resolved = apply_overrides(None, validate(SessionAgentParams, {"model": "m", "tools": SECRET_TOOLS}))
    shown = session_agent_resource("agt_a", "clerk", resolved).model_dump(mode="json")
    assert "CANARY" not in json.dumps(shown)
    defaults = {key: value for key, value in DEFAULTS.items() if key != "tools"}
    assert {key: value for key, value in shown.items() if key != "tools"} == {
        "id": "agt_a",
        "name": "clerk",
        "model": "m",
        **defaults,
    }
    assert shown["tools"] == [
        {**FUNCTION, "defer_loading": False, "async": True},
        {
            "type": "web_search",
            "mode": "live",
            "context_size": "medium",
            "allowed_domains": None,
            "location": None,
        },
        {
            "type": "mcp",
            "server_label": "orders",
            "transport": HTTP,
            "allowed_tools": ["find"],
            "connection_origin": "service",
            "credential_id": None,
            "request_metadata": {},
            "required": False,
        },
        {
            "type": "mcp",
            "server_label": "local",
            "transport": {**STDIO, "args": ["-v"], "env_vars": []},
            "allowed_tools": None,
            "connection_origin": "environment",
            "credential_id": None,
            "request_metadata": {},
            "required": False,
        },
    ]


def test_a_saved_agent_shows_its_search_tool_and_its_headers() -> None:
    tools = [
        {"type": "tool_search"},
        mcp({**HTTP, "headers": {"X-Shop": "7"}}),
        mcp(STDIO, server_label="local"),
    ]
    agent = saved_agent_resource("agt_b", None, {"k": "v"}, settings(tools=tools), 1, 2)
    shown = agent.model_dump(mode="json")
    assert (shown["object"], shown["name"], shown["metadata"]) == ("agent", None, {"k": "v"})
    assert (shown["created_at"], shown["updated_at"]) == (1, 2)
    assert [tool["type"] for tool in shown["tools"]] == ["tool_search", "mcp", "mcp"]
    assert shown["tools"][1]["transport"] == {**HTTP, "headers": {"X-Shop": "7"}}
    assert shown["tools"][2]["transport"] == {**STDIO, "args": [], "env_vars": []}
    session = session_agent_resource("agt_b", None, apply_overrides(settings(tools=tools), None))
    assert session.model_dump(mode="json")["tools"][0]["transport"] == HTTP
