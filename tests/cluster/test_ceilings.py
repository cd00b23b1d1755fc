"""Ceilings of sessions whose workers die in the middle of calls: no call goes uncounted."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from tests.crash.drive import DEADLINE
from tests.crash.model import MODEL
from tests.crash.witness import Json

from .conftest import MakeCluster
from .installation import Cluster
from .story import TOKENS, StoryModel
from .test_two_nodes import Nodes, is_idle, nodes_of, said

pytestmark = pytest.mark.slow

SESSIONS = 3
CALLS = 3
"""The ceiling on calls."""
PRICES = '[[price]]\nmodels = ["*"]\ninput = 1000000.0\noutput = 1000000.0\n'
"""Every token costs one."""


def begin(cluster: Cluster, text: str, **limits: str) -> str:
    """A session with these ceilings."""
    metadata = {f"perdure.limit.{name}": value for name, value in limits.items()}
    agent: Any = {"model": MODEL}
    with cluster.nodes[0].client() as client:
        created = client.beta.agents.sessions.create(
            agent=agent, environment={"type": "none"}, input=text, metadata=metadata
        )
    return created.id


def raise_ceiling(cluster: Cluster, session_id: str, **limits: str) -> None:
    metadata = {f"perdure.limit.{name}": value for name, value in limits.items()}
    with cluster.nodes[-1].client() as client:
        client.beta.agents.sessions.update(session_id, metadata=metadata)


async def say(nodes: Nodes, session_id: str, text: str) -> Json:
    """Send a message; its turn, once it has ended."""
    await nodes.until(session_id, is_idle)
    await nodes.post(f"/agents/sessions/{session_id}/events", said(text))
    await nodes.until(session_id, is_idle)
    return await newest_turn(nodes, session_id)


async def newest_turn(nodes: Nodes, session_id: str) -> Json:
    page = await nodes.get(f"/agents/sessions/{session_id}/turns?limit=1")
    return dict(page["data"][0])


def outcomes_of(cluster: Cluster, session_id: str) -> Counter[str]:
    """How the session's calls ended."""
    rows = cluster.storage.query("SELECT outcome FROM model_calls WHERE session_id = ?", session_id)
    return Counter(outcome for (outcome,) in rows)


async def asked(model: StoryModel, times: int) -> None:
    """Return once the model was asked so often."""
    async with asyncio.timeout(DEADLINE):
        await model.asked(times - 1)


async def die_in_calls(cluster: Cluster, model: StoryModel, deaths: int, waiting: int) -> None:
    """Kill whoever makes the calls, so often; one worker runs in the end, and `waiting` calls are held."""
    for number in range(deaths):
        calling, other = cluster.workers[number % 2], cluster.workers[(number + 1) % 2]
        await asked(model, (number + 1) * waiting)
        other.start()
        calling.kill()


async def test_calls_that_a_death_broke_off_count_against_the_ceiling(
    make_cluster: MakeCluster, model: StoryModel
) -> None:
    """Three workers die, one after the other, in the call that all sessions make again."""
    cluster = make_cluster()
    cluster.start(*cluster.nodes, cluster.workers[0])
    per = {"model_calls_per_session": str(CALLS), "model_calls_per_turn": str(CALLS)}
    sessions = [
        begin(cluster, f"Wait for number {number}.", **{name: per[name]})
        for number, name in enumerate([*per, *per, *per][:SESSIONS])
    ]
    await die_in_calls(cluster, model, CALLS, SESSIONS)
    async with nodes_of(cluster, start=False) as nodes:
        for session_id in sessions:
            await nodes.until(session_id, is_idle)
            turn = await newest_turn(nodes, session_id)
            assert turn["error"]["code"] == "usage_limit_exceeded"
            assert outcomes_of(cluster, session_id) == {"interrupted": CALLS}
        assert len(model.provider.requests) == CALLS * SESSIONS, "a call was made beyond the ceiling"
        cluster.start(cluster.workers[CALLS % 2 - 1])
        for session_id in sessions:
            raise_ceiling(cluster, session_id, model_calls_per_session=str(CALLS + 1))
        model.hold.release()
        for session_id in sessions:
            assert (await say(nodes, session_id, "Wait no more."))["status"] == "completed"
            assert (await say(nodes, session_id, "And now?"))["error"]["code"] == "usage_limit_exceeded"
        assert len(model.provider.requests) == (CALLS + 1) * SESSIONS


async def test_money_is_exceeded_by_no_more_than_the_calls_that_died(
    make_cluster: MakeCluster, model: StoryModel
) -> None:
    cluster = make_cluster(top=PRICES)
    cluster.start(*cluster.nodes, cluster.workers[0])
    spend = str(TOKENS + 1)
    sessions = [
        begin(cluster, f"Wait for number {number}.", spend_per_session=spend) for number in range(SESSIONS)
    ]
    await die_in_calls(cluster, model, 2, SESSIONS)
    await asked(model, 3 * SESSIONS)
    model.hold.release()
    async with nodes_of(cluster, start=False) as nodes:
        cluster.start(cluster.workers[1])
        for session_id in sessions:
            # The ceiling is reached by the second call that tells what it used; the third is refused.
            assert (await say(nodes, session_id, "One more."))["status"] == "completed"
            assert (await say(nodes, session_id, "And one."))["error"]["code"] == "usage_limit_exceeded"
            assert outcomes_of(cluster, session_id) == {"interrupted": 2, "ok": 2}
        assert len(model.provider.requests) == 4 * SESSIONS
        for session_id in sessions:
            raise_ceiling(cluster, session_id, spend_per_session=str(3 * TOKENS))
            assert (await say(nodes, session_id, "And now?"))["status"] == "completed"
