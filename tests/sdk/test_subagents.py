"""Subagents as an application sees them: a list, a tree, typed events; and never a call of its functions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from openai import AsyncOpenAI
from tests.chaos.proxy import Proxy, Weather
from tests.server import ServerProcess

from perdure import (
    Agent,
    AgentMessage,
    BlockingSessions,
    DefinitionRefused,
    MainAgent,
    Sessions,
    Subagent,
    SubagentCall,
    SubagentChanged,
    ToolFinished,
    ToolStarted,
    tool,
)

from .conftest import Gate

CREW = Agent(name="crew", model="crew", multi_agent={"enabled": True, "max_concurrent_subagents": 3})


async def listed(values: AsyncIterator[Any]) -> list[Any]:
    return [value async for value in values]


async def test_subagents_are_listed_with_what_they_did(anywhere: Sessions) -> None:
    session = anywhere.start(CREW)
    await session.run("Ask two.")
    found: list[Subagent] = await listed(session.subagents())
    assert [(each.name, each.status, each.task) for each in found] == [
        ("left", "active", "Ask below."),
        ("right", "active", "Count."),
        ("below", "active", "Count below."),
    ]
    left, right, below = found
    assert below.parent_agent_id == left.id
    assert left.parent_agent_id == right.parent_agent_id == (await session.retrieve()).agent.id
    assert await right.last_text() == "Counted: Count."
    assert not await right.is_running()
    (turn,) = await listed(right.turns())
    assert turn.subagent_id == right.id
    items = await listed(right.items())
    assert [item.type for item in items] == ["message", "message"]
    assert [item.id for item in await listed(right.items(order="desc"))] == [items[1].id, items[0].id]
    assert {item.turn_id for item in await listed(right.items_of(turn.id))} == {turn.id}
    used = await right.usage()
    assert used is not None
    assert (used.input_tokens, used.total_tokens) == (30, 33)
    assert [each.name for each in await listed(session.subagents(order="desc"))] == ["below", "right", "left"]
    await session.run("Please close it.")
    assert right.status == "active"  # as it was read
    assert (await right.retrieve()).status == "closed"


async def test_the_tree_has_each_agent_below_the_one_that_created_it(anywhere: Sessions) -> None:
    session = anywhere.start(CREW)
    await session.run("Ask two.")
    nodes = await listed(session.tree())
    assert [(node.agent.name, node.depth) for node in nodes] == [
        ("crew", 0),
        ("left", 1),
        ("below", 2),
        ("right", 1),
    ]
    root, left, below, _ = nodes
    assert isinstance(root.agent, MainAgent)
    assert (root.parent, left.parent, below.parent) == (None, root, left)
    assert [len(await listed(node.agent.turns())) for node in nodes] == [1, 1, 1, 1]
    assert await root.agent.last_text() == "That is all."
    assert root.agent.status == "idle"
    used = [await node.agent.usage() for node in nodes]
    total = (await session.retrieve()).usage
    assert total is not None
    assert sum(each.total_tokens for each in used if each is not None) == total.total_tokens


async def test_a_run_tells_of_subagents_in_typed_events(anywhere: Sessions) -> None:
    session = anywhere.start(CREW)
    async with session.stream("Ask two.") as events:
        seen = await listed(events)
    created = [each for each in seen if isinstance(each, SubagentChanged)]
    assert [(each.change, each.subagent.name) for each in created] == [
        ("created", "left"),
        ("created", "right"),
        ("created", "below"),
    ]
    calls = [each for each in seen if isinstance(each, SubagentCall)]
    ended = [each for each in calls if each.status == "completed"]
    # A creation names whom it created, which its item does not.
    assert [(each.kind, [every.name for every in each.subagents]) for each in ended] == [
        ("create", ["left"]),
        ("create", ["right"]),
        ("wait", ["left", "right"]),
    ]
    assert [each.text for each in ended] == ["Ask below.", "Count.", ""]
    reports = {each.sender.name: each.text for each in seen if isinstance(each, AgentMessage) and each.sender}
    assert set(reports) == {"left", "right"}
    assert reports["right"] == "Counted: Count."
    told = [(each.item.id, each.status) for each in calls]
    assert len(set(told)) == len(told)

    async with session.stream("Please close it.") as events:
        seen = await listed(events)
    changed = [each for each in seen if isinstance(each, SubagentChanged)]
    assert [(each.change, each.subagent.name, each.subagent.status) for each in changed] == [
        ("closed", "right", "closed")
    ]
    # One that an earlier run created is looked up, and not told as created.
    assert {
        (each.kind, *(every.name for every in each.subagents))
        for each in seen
        if isinstance(each, SubagentCall)
    } == {("close", "right")}


@pytest.mark.parametrize("after", [b"subagent.created", b"agent_message"])
async def test_what_a_break_has_hidden_is_told_once(
    server: ServerProcess, journal_path: Path, after: bytes
) -> None:
    async with (
        Proxy(server.address, "subagents") as proxy,
        Sessions(base_url=proxy.url, api_key=server.api_key, journal=journal_path, patience=30.0) as far,
    ):
        proxy.queue(Weather(end="cut", after=after))
        async with far.start(CREW).stream("Ask two.") as events:
            seen = await listed(events)
            result = await events.result()
        assert proxy.unmet == 0
    assert result.final_output == "That is all."
    created = [each.subagent.name for each in seen if isinstance(each, SubagentChanged)]
    assert sorted(str(name) for name in created) == ["below", "left", "right"]
    assert sorted(
        str(each.sender and each.sender.name) for each in seen if isinstance(each, AgentMessage)
    ) == [
        "left",
        "right",
    ]


async def test_a_subagent_at_work_has_its_text_so_far(sessions: Sessions, gate: Gate) -> None:
    session = sessions.start(CREW)
    await session.run(f"hold {gate.path.name}")
    holds, counts = await listed(session.subagents())
    assert await holds.is_running()
    assert await holds.usage() is None
    assert await counts.last_text() == "Counted: Count."
    gate.release()
    while await holds.is_running():  # noqa: ASYNC110  # no stream tells when a subagent's turn ends
        await asyncio.sleep(0.02)
    assert await holds.last_text() == "Before, after."


def test_programs_without_an_event_loop_iterate_too(server: ServerProcess, tmp_path: Path) -> None:
    with BlockingSessions(
        base_url=server.url, api_key=server.api_key, journal=tmp_path / "journal.db"
    ) as blocking:
        session = blocking.start(CREW)
        session.run("Ask two.")
        assert [each.name for each in session.subagents()] == ["left", "right", "below"]
        nodes = list(session.tree())
        assert [(node.depth, node.agent.last_text()) for node in nodes] == [
            (0, "That is all."),
            (1, nodes[1].agent.last_text()),
            (2, "Counted: Count below."),
            (1, "Counted: Count."),
        ]
        assert [turn.status for turn in nodes[2].agent.turns()] == ["completed"]
        used = nodes[3].agent.usage()
        assert used is not None
        assert used.total_tokens == 33
        assert next(session.subagents()).agent.task == "Ask below."


@pytest.mark.parametrize(
    ("multi_agent", "reason"),
    [
        ({}, "multi_agent says with `enabled`"),
        ({"enabled": "yes"}, "multi_agent says with `enabled`"),
        ({"enabled": False, "max_concurrent_subagents": 3}, "has a limit and is not enabled"),
        ({"enabled": True, "max_concurrent_subagents": 0}, "a number from 1 to 4294967295"),
        ({"enabled": True, "max_concurrent_subagents": 2**32}, "a number from 1 to 4294967295"),
        ({"enabled": True, "max_concurrent_subagents": True}, "a number from 1 to 4294967295"),
        ({"enabled": True, "limit": 3}, "multi_agent has no member limit"),
    ],
)
def test_what_the_server_would_refuse_is_refused_at_once(multi_agent: dict[str, Any], reason: str) -> None:
    with pytest.raises(DefinitionRefused, match=reason):
        Agent(name="desk", model="m", multi_agent=multi_agent)


def test_what_is_allowed_is_passed_on() -> None:
    assert CREW.configuration["multi_agent"] == {"enabled": True, "max_concurrent_subagents": 3}
    off = Agent(name="desk", model="m", multi_agent={"enabled": False})
    assert off.configuration["multi_agent"] == {"enabled": False}


# ---- a server that shows what it should not


def turn(turn_id: str, status: str, subagent_id: str | None = None) -> dict[str, Any]:
    return {
        "id": turn_id,
        "object": "agent.session.turn",
        "session_id": "sess_1",
        "agent_id": subagent_id or "agt_1",
        "subagent_id": subagent_id,
        "status": status,
        "created_at": 1,
        "started_at": 1,
        "completed_at": None,
        "error": None,
        "usage": None,
    }


def session_of(status: str, *actions: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": "sess_1",
        "object": "agent.session",
        "created_at": 1,
        "last_active_at": 1,
        "status": status,
        "error": None,
        "metadata": {},
        "vault_ids": [],
        "agent": {
            "id": "agt_1",
            "name": "desk",
            "model": "m",
            "multi_agent": {"enabled": True, "max_concurrent_subagents": 6},
            "tools": [],
        },
        "environment": {"type": "none"},
        "required_actions": list(actions),
        "usage": None,
    }


def page(entry: dict[str, Any]) -> dict[str, Any]:
    ids = {"first_id": entry["id"], "last_id": entry["id"]}
    return {"object": "list", "data": [entry], "has_more": False, **ids}


CALL = {"call_id": "call_1", "name": "refund", "arguments": {"order_id": "A-1042"}}
OWED = {"type": "function_call", "turn_id": "turn_9", **CALL}
ITEM = {"id": "fc_1", "type": "function_call", "turn_id": "turn_9", "status": "in_progress", **CALL}
CHILDS_TEXT = {
    "id": "msg_9",
    "type": "message",
    "role": "assistant",
    "turn_id": "turn_9",
    "status": "completed",
    "phase": "final_answer",
    "content": [{"type": "output_text", "text": "The child's.", "annotations": []}],
}
TEXT = {
    **CHILDS_TEXT,
    "id": "msg_1",
    "turn_id": "turn_1",
    "content": [{"type": "output_text", "text": "Done.", "annotations": []}],
}


class Hostile:
    """Shows a call of a subagent, in the ways that `ways` names, and takes any result."""

    def __init__(self, *ways: str) -> None:
        self.ways = ways
        self.posted: list[dict[str, Any]] = []
        self.is_answered = asyncio.Event()

    async def __call__(self, request: httpx2.Request) -> httpx2.Response:
        match request.method, request.url.path:
            case "POST", "/v1/agents/sessions":
                return httpx2.Response(
                    200, content=self.stream(), headers={"content-type": "text/event-stream"}
                )
            case "POST", path if path.endswith("/events"):
                self.posted += json.loads(request.content)["events"]
                self.is_answered.set()
                return httpx2.Response(202, json={"object": "list", "data": []})
            case "GET", "/v1/agents/sessions/sess_1":
                rests = self.is_answered.is_set()
                found = session_of("idle") if rests else session_of("requires_action", OWED)
                return httpx2.Response(200, json=found)
            case "GET", "/v1/agents/sessions/sess_1/turns":
                return httpx2.Response(200, json=page(turn("turn_1", "completed")))
            case "GET", "/v1/agents/sessions/sess_1/turns/turn_1/items":
                return httpx2.Response(200, json=page(TEXT))
            case "GET", "/v1/agents/sessions/sess_1/turns/turn_9" if "retrieved" in self.ways:
                return httpx2.Response(200, json=turn("turn_9", "waiting", "sub_1"))
            case _:
                return httpx2.Response(404, json={"error": {"message": "Not found.", "type": "not_found"}})

    async def stream(self) -> AsyncIterator[bytes]:
        """The turn of the main agent ends once the call is answered, in whatever way."""
        root = {"session_id": "sess_1", "turn_id": "turn_1"}
        child = {"session_id": "sess_1", "turn_id": "turn_9"}
        events: list[dict[str, Any]] = [
            {"type": "agent.session.created", "session": session_of("in_progress")},
            {"type": "agent.session.turn.created", **root, "turn": turn("turn_1", "in_progress")},
        ]
        if "announced" in self.ways:
            begun = turn("turn_9", "in_progress", "sub_1")
            events.append({"type": "agent.session.turn.created", **child, "turn": begun})
        events += [
            {"type": "agent.session.turn.item.added", **child, "item": ITEM, "output_index": 0},
            {"type": "agent.session.requires_action", "session": session_of("requires_action", OWED)},
            {"type": "agent.session.turn.item.done", **root, "item": TEXT, "output_index": 0},
            {"type": "agent.session.turn.item.done", **child, "item": CHILDS_TEXT, "output_index": 1},
            {"type": "agent.session.turn.completed", **root, "turn": turn("turn_1", "completed")},
            {"type": "agent.session.idle", "session": session_of("idle")},
        ]
        for number, event in enumerate(events):
            if event["type"] == "agent.session.turn.item.done":
                await self.is_answered.wait()
            data = json.dumps({**event, "event_id": f"evt_{number}"})
            yield f"event: {event['type']}\ndata: {data}\n\n".encode()


@pytest.mark.parametrize(
    "ways", [("announced",), ("retrieved",), ()], ids=["announced", "retrieved", "hidden"]
)
@pytest.mark.parametrize("background", [False, True])
async def test_a_function_never_runs_for_a_subagent_whatever_the_server_shows(
    ways: tuple[str, ...], background: bool, journal_path: Path
) -> None:
    runs: list[str] = []

    @tool(background=background)
    def refund(order_id: str) -> str:
        """Pay an order back."""
        runs.append(order_id)
        return "paid"

    hostile = Hostile(*ways)
    transport = httpx2.MockTransport(hostile)
    async with httpx2.AsyncClient(transport=transport, base_url="http://hostile") as http:
        client = AsyncOpenAI(base_url="http://hostile/v1", api_key="k", http_client=http, max_retries=0)
        async with Sessions(client=client, journal=journal_path, patience=1.0) as sessions:
            desk = Agent(name="desk", model="m", tools=[refund], multi_agent={"enabled": True})
            async with sessions.start(desk).stream("Hello.") as events:
                seen = await listed(events)
                result = await events.result()
    assert runs == []
    assert result.final_output == "Done."
    assert [item.id for item in result.items] == ["msg_1"]
    (finished,) = [each for each in seen if isinstance(each, ToolFinished)]
    assert not finished.result.success
    assert len([each for each in seen if isinstance(each, ToolStarted)]) == 1
    (posted,) = hostile.posted
    assert (posted["turn_id"], posted["success"]) == ("turn_9", False)
    assert "belongs to the main agent" in posted["error"]
