"""The members of resources, items and events as JSON: no more and no fewer than documented."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest
from openai import OpenAI
from tests.server import ServerProcess

from .inputs import NONE, WEATHER, tool_result
from .rawhttp import EventSocket, plain_headers
from .sessions import create_waiting

TURN = "agent.session.turn."
SESSION = {
    "id": str,
    "object": str,
    "agent": dict,
    "created_at": int,
    "last_active_at": int,
    "environment": dict,
    "error": None,
    "metadata": dict,
    "required_actions": list,
    "status": str,
    "usage": (dict, type(None)),
    "vault_ids": list,
}
SESSION_AGENT = {
    "id": str,
    "name": (str, type(None)),
    "model": str,
    "instructions": (str, type(None)),
    "multi_agent": dict,
    "reasoning": dict,
    "service_tier": str,
    "text": dict,
    "tools": list,
    "compaction": dict,
    "experimental": dict,
}
AGENT = {**SESSION_AGENT, "object": str, "created_at": int, "updated_at": int, "metadata": dict}
TURN_MEMBERS = {
    "id": str,
    "object": str,
    "session_id": str,
    "agent_id": str,
    "subagent_id": None,
    "status": str,
    "created_at": int,
    "started_at": (int, type(None)),
    "completed_at": (int, type(None)),
    "error": None,
    "usage": (dict, type(None)),
    "prompt_cache_options": None,
}
ITEM = {"id": str, "type": str, "turn_id": str}
MESSAGE = {**ITEM, "role": str, "content": list, "status": str, "phase": (str, type(None))}
CALL = {**ITEM, "call_id": str, "name": str, "arguments": dict, "status": str}
OUTPUT = {**ITEM, "call_id": str, "status": str, "output": str, "error": None}
REASONING = {**ITEM, "summary": list, "status": str}
ITEMS = {"message": MESSAGE, "function_call": CALL, "function_call_output": OUTPUT, "reasoning": REASONING}

OF_SESSION = {"type": str, "event_id": str, "session": dict}
OF_TURN = {"type": str, "event_id": str, "session_id": str, "turn_id": str}
OF_PART = {**OF_TURN, "item_id": str, "output_index": int, "content_index": int}
OF_SUMMARY = {**OF_TURN, "item_id": str, "output_index": int, "summary_index": int}
EVENTS = {
    "agent.session.created": OF_SESSION,
    "agent.session.in_progress": OF_SESSION,
    "agent.session.requires_action": OF_SESSION,
    "agent.session.idle": OF_SESSION,
    f"{TURN}created": {**OF_TURN, "turn": dict},
    f"{TURN}in_progress": {**OF_TURN, "turn": dict},
    f"{TURN}completed": {**OF_TURN, "turn": dict, "usage": (dict, type(None))},
    f"{TURN}item.added": {**OF_TURN, "item": dict, "output_index": (int, type(None))},
    f"{TURN}item.done": {**OF_TURN, "item": dict, "output_index": int},
    f"{TURN}content_part.added": {**OF_PART, "part": dict},
    f"{TURN}content_part.done": {**OF_PART, "part": dict},
    f"{TURN}output_text.delta": {**OF_PART, "delta": str},
    f"{TURN}output_text.done": {**OF_PART, "text": str},
    f"{TURN}reasoning_summary_part.added": {**OF_SUMMARY, "part": dict},
    f"{TURN}reasoning_summary_part.done": {**OF_SUMMARY, "part": dict, "status": None},
    f"{TURN}reasoning_summary_text.delta": {**OF_SUMMARY, "delta": str},
    f"{TURN}reasoning_summary_text.done": {**OF_SUMMARY, "text": str},
}
MAY_BE_ABSENT = {"reasoning_summary_part.done": {"status"}}


def check(
    value: dict[str, Any], members: dict[str, Any], absent: frozenset[str] | set[str] = frozenset()
) -> None:
    """The value has these members of these types; None stands for null."""
    assert set(members) - absent <= set(value) <= set(members), sorted(set(value) ^ set(members))
    for name, found in value.items():
        kinds = members[name]
        if kinds is None:
            assert found is None, (name, found)
        else:
            # JSON knows no bool that is a number.
            assert isinstance(found, kinds), (name, found)
            assert not isinstance(found, bool), (name, found)


def check_item(item: dict[str, Any]) -> None:
    check(item, ITEMS[item["type"]])


def check_event(event: dict[str, Any]) -> None:
    members = EVENTS[event["type"]]
    if event["type"].endswith(".delta"):
        members = {**members, "obfuscation": str}
    check(event, members, MAY_BE_ABSENT.get(event["type"].removeprefix(TURN), set()))
    if "session" in event:
        check(event["session"], SESSION)
        check(event["session"]["agent"], SESSION_AGENT)
    if "turn" in event:
        check(event["turn"], TURN_MEMBERS)
    if "item" in event:
        check_item(event["item"])
    if "part" in event:
        assert set(event["part"]) == {"type", "text"}


@pytest.mark.parametrize(
    ("model", "agent"),
    [("greeter", {}), ("weather", {"tools": [WEATHER]}), ("reasoning", {"reasoning": {"summary": "auto"}})],
    ids=["text", "tool", "reasoning"],
)
def test_all_events_of_a_turn(
    server: ServerProcess, client: OpenAI, model: str, agent: dict[str, Any]
) -> None:
    body = {
        "agent": {"model": model, **agent},
        "environment": NONE,
        "input": "The weather?",
        "stream": True,
    }
    with EventSocket(
        server.address,
        "POST",
        "/v1/agents/sessions",
        plain_headers(server.api_key),
        json.dumps(body).encode(),
    ) as stream:
        seen = set()
        for event in stream.events():
            check_event(event)
            seen.add(event["type"])
            if event["type"] == "agent.session.requires_action":
                session = client.beta.agents.sessions.retrieve(event["session"]["id"])
                client.beta.agents.sessions.events.create(
                    session.id, events=[tool_result(session.required_actions[0])]
                )
    assert "agent.session.idle" in seen


def test_resources(client: OpenAI, raw: httpx2.Client) -> None:
    session = create_waiting(client)
    (call,) = session.required_actions

    def look(path: str) -> Any:
        return raw.get(path).raise_for_status().json()

    blocked = look(f"/agents/sessions/{session.id}")
    check(blocked, SESSION)
    check(blocked["agent"], SESSION_AGENT)
    (action,) = blocked["required_actions"]
    check(action, {"type": str, "turn_id": str, "call_id": str, "name": str, "arguments": dict})
    assert blocked["object"] == "agent.session"
    assert blocked["environment"] == {"type": "none"}
    assert set(blocked["agent"]["tools"][0]) == {*WEATHER, "defer_loading", "async"}
    client.beta.agents.sessions.events.create(session.id, events=[tool_result(call)])
    with client.beta.agents.sessions.events.stream(session.id) as stream:
        for event in stream:
            if event.type == "agent.session.idle":
                break
    turn = look(f"/agents/sessions/{session.id}/turns/{call.turn_id}")
    check(turn, TURN_MEMBERS)
    assert turn["object"] == "agent.session.turn"
    assert set(turn["usage"]) == {
        "input_tokens",
        "input_tokens_details",
        "output_tokens",
        "output_tokens_details",
        "total_tokens",
    }
    assert set(turn["usage"]["input_tokens_details"]) == {"cached_tokens"}
    assert set(turn["usage"]["output_tokens_details"]) == {"reasoning_tokens"}
    for item in look(f"/agents/sessions/{session.id}/items")["data"]:
        check_item(item)
    assert look(f"/agents/sessions/{session.id}/turns")["data"] == [turn]
    agent = client.beta.agents.create(model="echo")
    check(look(f"/agents/{agent.id}"), AGENT)


def test_members_that_show_only_when_configured(client: OpenAI, raw: httpx2.Client) -> None:
    session = client.beta.agents.sessions.create(
        agent={"model": "echo"}, environment=NONE, input="Hello.", prompt_cache_options={"ttl": "30m"}
    )
    body = raw.get(f"/agents/sessions/{session.id}").json()
    check(body, {**SESSION, "prompt_cache_options": dict})
