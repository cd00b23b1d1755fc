from __future__ import annotations

from typing import Any

import httpx2
import pytest
from openai import NotFoundError, OpenAI

from .conftest import Gate
from .inputs import CLOCK, NONE, WEATHER, message, tool_result
from .sessions import answers, create, create_idle, turns
from .watch import Watcher, until, until_status


@pytest.fixture
def session(client: OpenAI) -> Any:
    """An idle session with a value in every field that can be updated."""
    made = client.beta.agents.sessions.create(
        agent={
            "model": "echo",
            "instructions": "Be brief.",
            "reasoning": {"effort": "high", "summary": "auto"},
            "service_tier": "flex",
            "tools": [WEATHER],
        },
        environment=NONE,
        input="Hello.",
        metadata={"team": "blue"},
        prompt_cache_options={"ttl": "12h"},
    )
    return until_status(client, made.id, "idle")


def test_an_empty_update_changes_nothing(client: OpenAI, session: Any) -> None:
    updated = client.beta.agents.sessions.update(session.id)
    assert updated == session
    assert client.beta.agents.sessions.update(session.id, agent={}) == session


def test_members_of_the_agent_are_merged(client: OpenAI, session: Any) -> None:
    updated = client.beta.agents.sessions.update(session.id, agent={"model": "greeter"})
    assert updated.agent.model == "greeter"
    unchanged = {"model"}
    assert updated.agent.model_dump(exclude=unchanged) == session.agent.model_dump(exclude=unchanged)
    assert client.beta.agents.sessions.retrieve(session.id).agent == updated.agent


def test_effort_changes_and_the_summary_stays(client: OpenAI, session: Any) -> None:
    updated = client.beta.agents.sessions.update(session.id, agent={"reasoning": {"effort": "low"}})
    assert updated.agent.reasoning.to_dict() == {"effort": "low", "summary": "auto"}
    kept = client.beta.agents.sessions.update(session.id, agent={"reasoning": {}})
    assert kept.agent.reasoning.to_dict() == {"effort": "low", "summary": "auto"}


def test_a_null_effort_means_the_default_of_the_model(client: OpenAI, session: Any) -> None:
    updated = client.beta.agents.sessions.update(session.id, agent={"reasoning": {"effort": None}})
    inherited = create(client, "echo").agent.reasoning.effort
    assert updated.agent.reasoning.to_dict() == {"effort": inherited, "summary": "auto"}


def test_a_null_service_tier_means_auto(client: OpenAI, session: Any) -> None:
    assert session.agent.service_tier == "flex"
    updated = client.beta.agents.sessions.update(session.id, agent={"service_tier": None})
    assert updated.agent.service_tier == "auto"


@pytest.mark.parametrize("tools", [None, []])
def test_tools_are_cleared_by_null_and_by_nothing(client: OpenAI, session: Any, tools: Any) -> None:
    updated = client.beta.agents.sessions.update(session.id, agent={"tools": tools})
    assert updated.agent.tools == []


def test_tools_are_replaced_as_a_whole(client: OpenAI, session: Any) -> None:
    updated = client.beta.agents.sessions.update(session.id, agent={"tools": [CLOCK]})
    assert [tool.to_dict()["name"] for tool in updated.agent.tools] == ["clock"]


@pytest.mark.parametrize("metadata", [None, {}])
def test_metadata_is_cleared_by_null_and_by_nothing(client: OpenAI, session: Any, metadata: Any) -> None:
    assert client.beta.agents.sessions.update(session.id, metadata=metadata).metadata == {}


def test_metadata_is_replaced_as_a_whole(client: OpenAI, session: Any) -> None:
    updated = client.beta.agents.sessions.update(session.id, metadata={"tier": "gold"})
    assert updated.metadata == {"tier": "gold"}
    assert updated.agent == session.agent


def test_the_cache_lifetime_is_replaced_and_cleared(client: OpenAI, session: Any) -> None:
    changed = client.beta.agents.sessions.update(session.id, prompt_cache_options={"ttl": "30m"})
    assert changed.prompt_cache_options is not None
    assert changed.prompt_cache_options.ttl == "30m"
    cleared = client.beta.agents.sessions.update(session.id, prompt_cache_options=None)
    assert cleared.prompt_cache_options is None


def test_review_can_be_said_to_be_none(client: OpenAI, session: Any) -> None:
    assert client.beta.agents.sessions.update(session.id, review="none").review in (None, "none")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"agent": None}, "agent"),
        ({"agent": {"model": None}}, "agent.model"),
        ({"agent": {"model": ""}}, "agent.model"),
        ({"agent": {"reasoning": None}}, "agent.reasoning"),
        ({"agent": {"reasoning": {"summary": "auto"}}}, "agent.reasoning.summary"),
        ({"agent": {"reasoning": {"effort": "huge"}}}, "agent.reasoning.effort"),
        ({"agent": {"service_tier": "gold"}}, "agent.service_tier"),
        ({"agent": {"instructions": "Be long."}}, "agent.instructions"),
        ({"agent": {"text": {"verbosity": "low"}}}, "agent.text"),
        ({"agent": {"multi_agent": {"enabled": True}}}, "agent.multi_agent"),
        ({"agent": {"compaction": {"async": True}}}, "agent.compaction"),
        ({"agent": {"experimental": {}}}, "agent.experimental"),
        ({"agent": {"tools": [WEATHER, WEATHER]}}, "agent.tools[1].name"),
        ({"agent": {"tools": [{"type": "computer_use"}]}}, "agent.tools[0]"),
        ({"environment": {"type": "none"}}, "environment"),
        ({"vault_ids": []}, "vault_ids"),
        ({"agent_id": "agt_1"}, "agent_id"),
        ({"review": None}, "review"),
        ({"review": "auto_review"}, "review"),
        ({"metadata": {"k": None}}, "metadata.k"),
        ({"prompt_cache_options": {"ttl": "1h"}}, "prompt_cache_options.ttl"),
    ],
)
def test_a_refused_update_changes_nothing(
    client: OpenAI, raw: httpx2.Client, session: Any, body: dict[str, Any], param: str
) -> None:
    response = raw.post(f"/agents/sessions/{session.id}", json={"metadata": {"team": "red"}, **body})
    assert response.status_code == 400, response.text
    assert (response.json()["error"]["param"] or "").startswith(param), response.text
    assert client.beta.agents.sessions.retrieve(session.id) == session


def test_an_unknown_model_is_refused_by_name(client: OpenAI, session: Any) -> None:
    with pytest.raises(NotFoundError) as refusal:
        client.beta.agents.sessions.update(session.id, agent={"model": "no-such-model"})
    assert refusal.value.code == "model_not_found"
    assert refusal.value.param == "agent.model"


def test_a_new_model_answers_the_next_message(client: OpenAI) -> None:
    session = create_idle(client, "echo")
    client.beta.agents.sessions.update(session.id, agent={"model": "greeter"})
    with client.beta.agents.sessions.stream(session.id, input="Again.") as stream:
        assert stream.get_final_result().output_text == "Hello from the greeter."


def test_a_running_turn_keeps_its_model_and_the_queued_message_gets_the_new_one(
    client: OpenAI, gate: Gate
) -> None:
    session = create(client, "gated", gate.text)
    with Watcher(client, session.id) as watcher:
        watcher.wait("agent.session.turn.output_text.delta")
        client.beta.agents.sessions.update(session.id, agent={"model": "greeter"})
        client.beta.agents.sessions.events.create(session.id, events=[message("And you?")])
        gate.release()
        watcher.wait("agent.session.idle")
    assert answers(client, session.id) == ["Before, after.", "Hello from the greeter."]
    assert len(turns(client, session.id)) == 2


def test_an_update_makes_no_event(client: OpenAI) -> None:
    session = create_idle(client)
    with Watcher(client, session.id) as watcher:
        watcher.wait("agent.session.idle")
        client.beta.agents.sessions.update(session.id, metadata={"team": "blue"})
        client.beta.agents.sessions.events.create(session.id, events=[message("Next.")])
        watcher.wait("agent.session.idle", after=1)
        assert watcher.types[:2] == ["agent.session.idle", "agent.session.turn.created"]


def test_a_removed_function_that_is_pending_can_still_be_answered(client: OpenAI) -> None:
    session = until_status(
        client, create(client, "weather", "The weather?", tools=[WEATHER]).id, "requires_action"
    )
    (call,) = session.required_actions
    updated = client.beta.agents.sessions.update(session.id, agent={"tools": None})
    assert updated.status == "requires_action"
    assert updated.required_actions == [call]
    client.beta.agents.sessions.events.create(session.id, events=[tool_result(call, "7 °C")])
    until_status(client, session.id, "idle")
    assert answers(client, session.id) == ["It is 7 °C."]


def test_a_function_added_in_mid_turn_is_offered_with_the_next_model_call(client: OpenAI) -> None:
    session = until_status(client, create(client, "adaptive", tools=[WEATHER]).id, "requires_action")
    (call,) = session.required_actions
    client.beta.agents.sessions.update(session.id, agent={"tools": [WEATHER, CLOCK]})
    client.beta.agents.sessions.events.create(session.id, events=[tool_result(call, "7 °C")])
    seen = until(
        lambda: client.beta.agents.sessions.retrieve(session.id),
        lambda s: s.status == "idle" or [action.name for action in s.required_actions] == ["clock"],
    )
    assert [action.name for action in seen.required_actions] == ["clock"]
    assert seen.required_actions[0].turn_id == call.turn_id


def test_updating_an_unknown_session_is_not_found(client: OpenAI) -> None:
    with pytest.raises(NotFoundError):
        client.beta.agents.sessions.update("sess_unknown", metadata={})
