from __future__ import annotations

from typing import Any

import httpx2
import pytest
from openai import BadRequestError, NotFoundError, OpenAI

from .inputs import NONE, WEATHER, user_message
from .sessions import create, items, kinds, text_of, turns, user_texts
from .watch import until_status

IMAGE = "data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"


def test_an_inline_agent_comes_back_with_the_documented_defaults(client: OpenAI) -> None:
    session = client.beta.agents.sessions.create(
        agent={"model": "echo", "instructions": "Be brief."}, environment=NONE, input="Hello."
    )
    assert session.object == "agent.session"
    assert session.status == "in_progress"
    assert session.environment.to_dict() == {"type": "none"}
    assert session.error is None
    assert session.metadata == {}
    assert session.required_actions == []
    assert session.vault_ids == []
    assert session.prompt_cache_options is None
    assert session.review is None
    assert session.created_at <= session.last_active_at
    agent = session.agent
    assert (agent.name, agent.model, agent.instructions) == (None, "echo", "Be brief.")
    assert agent.service_tier == "auto"
    assert agent.tools == []
    assert agent.multi_agent.to_dict() == {"enabled": False, "max_concurrent_subagents": None}
    assert agent.reasoning.summary is None
    assert agent.text.to_dict() == {"format": {"type": "text"}, "verbosity": "medium"}


def test_create_answers_201_and_the_first_turn_runs_to_idle(client: OpenAI) -> None:
    response = client.beta.agents.sessions.with_raw_response.create(
        agent={"model": "greeter"}, environment=NONE, input="Hello."
    )
    assert response.http_response.status_code == 201
    session = response.parse()
    assert until_status(client, session.id, "idle").required_actions == []
    saved = items(client, session.id)
    assert kinds(saved) == ["user", "assistant"]
    assert text_of(saved[1]) == "Hello from the greeter."
    assert (saved[1].phase, saved[1].status) == ("final_answer", "completed")
    (turn,) = turns(client, session.id)
    assert turn.status == "completed"
    assert turn.error is None
    assert turn.subagent_id is None
    assert turn.agent_id == session.agent.id
    assert turn.session_id == session.id
    assert turn.started_at is not None
    assert turn.completed_at is not None
    assert turn.created_at <= turn.started_at <= turn.completed_at
    assert {item.turn_id for item in saved} == {turn.id}


def test_the_turn_exists_when_create_returns(client: OpenAI) -> None:
    session = create(client, "echo")
    assert len(turns(client, session.id)) == 1
    assert kinds(items(client, session.id))[:1] == ["user"]


def test_a_string_is_one_user_message(client: OpenAI) -> None:
    session = create(client, "echo", "Grüße, 世界 🌍")
    (user, *_) = items(client, session.id)
    assert user.content[0].to_dict() == {"type": "input_text", "text": "Grüße, 世界 🌍"}
    assert (user.role, user.status, user.phase) == ("user", "completed", None)


def test_a_list_is_one_item_for_each_message(client: OpenAI) -> None:
    session = client.beta.agents.sessions.create(
        agent={"model": "echo"},
        environment=NONE,
        input=[
            user_message("One.", "And a half."),
            {"role": "user", "content": [{"type": "input_text", "text": "Two."}]},
        ],
    )
    until_status(client, session.id, "idle")
    assert kinds(items(client, session.id)) == ["user", "user", "assistant"]
    assert user_texts(client, session.id) == ["One.And a half.", "Two."]
    assert len(turns(client, session.id)) == 1


def test_images_come_back_as_they_were_sent(client: OpenAI) -> None:
    content: Any = [
        {"type": "input_text", "text": "Look."},
        {"type": "input_image", "image_url": IMAGE},
        {"type": "input_image", "image_url": "https://example.com/cat.png"},
    ]
    session = client.beta.agents.sessions.create(
        agent={"model": "echo"}, environment=NONE, input=[{"role": "user", "content": content}]
    )
    until_status(client, session.id, "idle")
    assert [part.to_dict() for part in items(client, session.id)[0].content] == content


def test_a_saved_agent_is_copied_with_its_name(client: OpenAI) -> None:
    agent = client.beta.agents.create(
        model="echo", name="helper", instructions="Be brief.", tools=[WEATHER], reasoning={"effort": "low"}
    )
    session = client.beta.agents.sessions.create(agent_id=agent.id, environment=NONE, input="Hello.")
    assert session.agent.id == agent.id
    assert session.agent.name == "helper"
    assert session.agent.instructions == "Be brief."
    assert session.agent.reasoning.effort == "low"
    assert [tool.to_dict() for tool in session.agent.tools] == [tool.to_dict() for tool in agent.tools]


def test_overrides_replace_fields_and_inherit_the_rest(client: OpenAI) -> None:
    agent = client.beta.agents.create(
        model="echo",
        instructions="Be brief.",
        tools=[WEATHER],
        reasoning={"effort": "low", "summary": "auto"},
        service_tier="flex",
        compaction={"async_": True},
        experimental={"time_awareness": True},
    )
    session = client.beta.agents.sessions.create(
        agent_id=agent.id,
        agent={
            "model": "greeter",
            "reasoning": {"effort": "high"},
            "tools": None,
            "compaction": None,
            "experimental": {},
        },
        environment=NONE,
        input="Hello.",
    )
    assert session.agent.id == agent.id
    assert session.agent.model == "greeter"
    assert session.agent.instructions == "Be brief."
    assert session.agent.reasoning.to_dict() == {"effort": "high", "summary": None}
    assert session.agent.tools == []
    assert session.agent.service_tier == "flex"
    assert session.agent.compaction is not None
    assert session.agent.compaction.async_ is False
    assert session.agent.experimental is not None
    assert session.agent.experimental.time_awareness is True
    assert client.beta.agents.retrieve(agent.id) == agent


def test_metadata_and_cache_lifetime_are_kept(client: OpenAI) -> None:
    session = client.beta.agents.sessions.create(
        agent={"model": "echo"},
        environment=NONE,
        input="Hello.",
        metadata={"order": "A-1042"},
        prompt_cache_options={"ttl": "12h"},
        review="none",
    )
    assert session.metadata == {"order": "A-1042"}
    assert session.prompt_cache_options is not None
    assert session.prompt_cache_options.ttl == "12h"
    until_status(client, session.id, "idle")
    (turn,) = turns(client, session.id)
    assert turn.prompt_cache_options is not None
    assert turn.prompt_cache_options.ttl == "12h"


def test_a_cache_object_without_a_lifetime_means_thirty_minutes(client: OpenAI) -> None:
    session = client.beta.agents.sessions.create(
        agent={"model": "echo"}, environment=NONE, input="Hello.", prompt_cache_options={}
    )
    assert session.prompt_cache_options is not None
    assert session.prompt_cache_options.ttl == "30m"


def test_retrieve_shows_the_session(client: OpenAI) -> None:
    session = create(client, "echo", instructions="Be brief.", tools=[WEATHER])
    seen = until_status(client, session.id, "idle")
    changing = {"status", "last_active_at", "usage"}
    assert seen.model_dump(exclude=changing) == session.model_dump(exclude=changing)


def test_an_agent_id_is_enough_only_for_saved_agents(client: OpenAI) -> None:
    inline = create(client, "echo").agent
    with pytest.raises(BadRequestError) as refusal:
        client.beta.agents.sessions.create(agent_id=inline.id, environment=NONE, input="Hello.")
    assert refusal.value.code == "agent_not_persisted"
    assert refusal.value.param == "agent_id"


def test_an_unknown_agent_id_is_not_found(client: OpenAI) -> None:
    with pytest.raises(NotFoundError) as refusal:
        client.beta.agents.sessions.create(agent_id="agt_unknown", environment=NONE, input="Hello.")
    assert refusal.value.code == "not_found_error"


def test_a_model_is_required_without_a_saved_agent(client: OpenAI) -> None:
    for body in ({}, {"agent": {"instructions": "Be brief."}}):
        with pytest.raises(BadRequestError) as refusal:
            client.beta.agents.sessions.create(environment=NONE, input="Hello.", **body)
        assert refusal.value.body == {
            "message": "agent.model is required when agent_id is omitted",
            "type": "invalid_request_error",
            "code": "invalid_request_error",
            "param": "agent.model",
        }


def test_an_unknown_model_is_refused_by_name(client: OpenAI) -> None:
    with pytest.raises(NotFoundError) as refusal:
        create(client, "no-such-model")
    assert refusal.value.code == "model_not_found"
    assert refusal.value.param == "agent.model"


@pytest.mark.parametrize("given", [{}, {"input": None}])
def test_a_conversation_needs_its_first_input(client: OpenAI, given: dict[str, Any]) -> None:
    with pytest.raises(BadRequestError) as refusal:
        client.beta.agents.sessions.create(agent={"model": "echo"}, environment=NONE, **given)
    assert "conversation-only sessions currently require initial input" in str(refusal.value.body)
    assert refusal.value.param == "input"


def test_a_streamed_creation_needs_its_first_input(client: OpenAI) -> None:
    with pytest.raises(BadRequestError) as refusal:
        client.beta.agents.sessions.create(agent={"model": "echo"}, environment=NONE, stream=True)
    assert "require" in str(refusal.value.body)
    assert "initial input" in str(refusal.value.body)
    assert refusal.value.param == "input"


def test_stream_options_belong_to_streams(client: OpenAI) -> None:
    with pytest.raises(BadRequestError) as refusal:
        client.beta.agents.sessions.create(
            agent={"model": "echo"},
            environment=NONE,
            input="Hello.",
            stream_options={"include_obfuscation": False},
        )
    assert (refusal.value.param or "").startswith("stream_options")


@pytest.mark.parametrize(
    "environment", [{"type": "openai_hosted"}, {"type": "self_hosted", "workspace_directory": "/srv"}]
)
def test_an_environment_this_server_lacks_is_refused_by_name(client: OpenAI, environment: Any) -> None:
    with pytest.raises(BadRequestError) as refusal:
        client.beta.agents.sessions.create(agent={"model": "echo"}, environment=environment, input="Hello.")
    assert environment["type"] in str(refusal.value.body)
    assert (refusal.value.param or "").startswith("environment")


UNSUPPORTED_TOOLS: list[Any] = [
    {"type": "mcp", "server_label": "docs", "transport": {"type": "stdio", "command": "docs", "cwd": "/srv"}},
    {
        "type": "mcp",
        "server_label": "docs",
        "transport": {"type": "http", "server_url": "https://mcp.example.com"},
        "connection_origin": "environment",
    },
    {"type": "computer_use"},
    {"type": "web_search"},
    {"type": "automations"},
    {"type": "tool_search"},
]


@pytest.mark.parametrize(
    "tool", UNSUPPORTED_TOOLS, ids=lambda tool: tool.get("connection_origin", tool["type"])
)
def test_a_tool_that_cannot_run_is_refused_where_it_stands(client: OpenAI, tool: Any) -> None:
    with pytest.raises(BadRequestError) as refusal:
        create(client, "echo", tools=[WEATHER, tool])
    assert (refusal.value.param or "").startswith("agent.tools[1]"), refusal.value.body


def test_a_saved_agent_with_a_tool_that_cannot_run_starts_no_session(client: OpenAI) -> None:
    agent = client.beta.agents.create(model="echo", tools=[{"type": "computer_use"}])
    with pytest.raises(BadRequestError) as refusal:
        client.beta.agents.sessions.create(agent_id=agent.id, environment=NONE, input="Hello.")
    assert "computer_use" in str(refusal.value.body)
    session = client.beta.agents.sessions.create(
        agent_id=agent.id, agent={"tools": None}, environment=NONE, input="Hello."
    )
    assert session.agent.tools == []


def test_deferred_functions_need_the_search_tool(client: OpenAI) -> None:
    with pytest.raises(BadRequestError) as refusal:
        create(client, "echo", tools=[{**WEATHER, "defer_loading": True}])
    assert "tool_search" in str(refusal.value.body)


def test_a_reviewer_that_does_not_exist_is_not_promised(client: OpenAI) -> None:
    with pytest.raises(BadRequestError) as refusal:
        client.beta.agents.sessions.create(
            agent={"model": "echo"}, environment=NONE, input="Hello.", review="auto_review"
        )
    assert refusal.value.param == "review"


TEXT = {"type": "input_text", "text": "Hello."}


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"input": ""}, "input"),
        ({"input": []}, "input"),
        ({"input": 5}, "input"),
        ({"input": [{"role": "user", "content": []}]}, "input[0].content"),
        ({"input": [{"role": "user", "content": [{"type": "input_text", "text": ""}]}]}, "input[0].content"),
        ({"input": [{"role": "assistant", "content": [TEXT]}]}, "input[0].role"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]},
            "input[0].content[0]",
        ),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "cat"}]}]},
            "input[0].content[0]",
        ),
        ({"input": [{"role": "user", "content": [TEXT], "name": "x"}]}, "input[0].name"),
        ({"environment": None}, "environment"),
        ({"environment": {"type": "moon"}}, "environment"),
        ({"environment": {"type": "none", "id": "x"}}, "environment.id"),
        ({"stream": "yes"}, "stream"),
        ({"metadata": []}, "metadata"),
        ({"review": None}, "review"),
        ({"prompt_cache_options": {"ttl": "1h"}}, "prompt_cache_options.ttl"),
        ({"agent": {"model": "echo", "name": "helper"}}, "agent.name"),
        ({"agent": {"model": "echo", "tools": [{**WEATHER, "strict": True}]}}, "agent.tools[0].strict"),
        ({"agent": {"model": "echo", "tools": [WEATHER, WEATHER]}}, "agent.tools[1].name"),
        ({"agent": {"model": None}}, "agent.model"),
        ({"agnt": {}}, "agnt"),
    ],
)
def test_a_bad_request_is_refused_where_it_is_wrong(
    raw: httpx2.Client, change: dict[str, Any], param: str
) -> None:
    body = {"agent": {"model": "echo"}, "environment": NONE, "input": "Hello.", **change}
    response = raw.post("/agents/sessions", json=body)
    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert error["code"] == "invalid_request_error"
    assert (error["param"] or "").startswith(param), error


def test_a_required_member_is_named(raw: httpx2.Client) -> None:
    response = raw.post("/agents/sessions", json={"agent": {"model": "echo"}, "input": "Hello."})
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "environment"


def test_a_refused_streamed_creation_answers_with_json(raw: httpx2.Client) -> None:
    response = raw.post(
        "/agents/sessions",
        json={"agent": {"model": "nope"}, "environment": NONE, "input": "Hi.", "stream": True},
    )
    assert response.status_code == 404
    assert response.headers["content-type"].startswith("application/json")
    assert response.json()["error"]["code"] == "model_not_found"
