"""The same and contradicting requests on two nodes at once: one effect, and one outcome or a conflict."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from tests.crash.database import check_database
from tests.crash.drive import DEADLINE, PAUSE
from tests.crash.model import MODEL
from tests.crash.scenario import kind_of
from tests.crash.witness import Json, text_of

from .conftest import MakeCluster
from .installation import Cluster
from .story import TOOLS, TRIP, StoryModel, result_of

pytestmark = pytest.mark.slow

SESSIONS = 8
"""Each is raced for at the same time as the others."""


class Nodes:
    """A client of each node."""

    def __init__(self, clients: list[httpx2.AsyncClient]) -> None:
        self._clients = clients

    async def both(self, path: str, bodies: list[Json], key: str | None = None) -> list[httpx2.Response]:
        """Each body to its node, at once."""
        headers = {} if key is None else {"Idempotency-Key": key}
        sending = (
            client.post(path, json=body, headers=headers)
            for client, body in zip(self._clients, bodies, strict=True)
        )
        return list(await asyncio.gather(*sending))

    async def post(self, path: str, body: Json) -> None:
        response = await self._clients[0].post(path, json=body)
        assert response.status_code == 202, response.text

    async def create(self, text: str) -> str:
        response = await self._clients[0].post("/agents/sessions", json=creation(text))
        assert response.status_code == 201, response.text
        return str(response.json()["id"])

    async def until(self, session_id: str, accept: Callable[[Json], bool]) -> Json:
        """The session, once it is accepted."""
        async with asyncio.timeout(DEADLINE):
            while True:
                session = await self.get(f"/agents/sessions/{session_id}")
                if accept(session):
                    return session
                await asyncio.sleep(PAUSE)

    async def items(self, session_id: str) -> list[Json]:
        """All items, oldest first; both nodes list the same."""
        pages = [
            await self.get(f"/agents/sessions/{session_id}/items?order=asc&limit=100", n) for n in (0, 1)
        ]
        assert pages[0] == pages[1]
        return list(pages[0]["data"])

    async def get(self, path: str, node: int = 1) -> Json:
        response = await self._clients[node].get(path)
        assert response.status_code == 200, response.text
        found: Json = response.json()
        return found


@asynccontextmanager
async def nodes_of(cluster: Cluster, *, start: bool = True) -> AsyncIterator[Nodes]:
    """Clients of a cluster, which is started for them; all of its sessions are checked in the end."""
    if start:
        cluster.start()
    clients = [
        httpx2.AsyncClient(
            base_url=node.base_url,
            headers={"Authorization": f"Bearer {node.api_key}", "OpenAI-Beta": "agents=v1"},
            timeout=DEADLINE,
        )
        for node in cluster.nodes
    ]
    async with clients[0], clients[1]:
        yield Nodes(clients)
    cluster.stop()
    for (session_id,) in cluster.storage.query("SELECT id FROM sessions"):
        check_database(cluster.storage, session_id, [])
    assert cluster.model.provider.violations == []
    assert "Traceback" not in cluster.logged(), cluster.logged()


def creation(text: str) -> Json:
    agent = {"model": MODEL, "tools": TOOLS}
    return {"agent": agent, "environment": {"type": "none"}, "input": text}


def events(*inputs: Json) -> Json:
    return {"events": list(inputs)}


def said(text: str) -> Json:
    part = {"type": "input_text", "text": text}
    user = {"type": "message", "role": "user", "content": [part]}
    return events({"type": "agent.session.input.message", "input": [user]})


def result(action: Json, output: str) -> Json:
    answer = {"type": "agent.session.input.tool_result", "success": True, "output": output}
    return events({**answer, "turn_id": action["turn_id"], "call_id": action["call_id"]})


def outcomes(responses: list[httpx2.Response]) -> list[tuple[int, str | None]]:
    """The statuses, and the codes of the refusals, with what succeeded first."""
    found = [(r.status_code, r.json()["error"]["code"] if r.status_code >= 400 else None) for r in responses]
    return sorted(found, key=lambda outcome: outcome[0])


def is_idle(session: Json) -> bool:
    return bool(session["status"] == "idle")


async def for_each_session(race: Callable[[int], Any]) -> None:
    async with asyncio.TaskGroup() as group:
        for number in range(SESSIONS):
            group.create_task(race(number))


async def test_a_result_on_both_nodes_counts_once(make_cluster: MakeCluster, model: StoryModel) -> None:
    """The same output is accepted twice without effect; of two outputs, one is a conflict."""

    async def race(number: int) -> None:
        session_id = await nodes.create(f"Trip to R{number}.")
        path = f"/agents/sessions/{session_id}/events"
        session = await nodes.until(session_id, lambda found: len(found["required_actions"]) == 2)
        same, other = session["required_actions"]
        outputs = {}
        body = result(same, result_of(same["name"], "R"))
        outputs[same["call_id"]] = {result_of(same["name"], "R")}
        assert outcomes(await nodes.both(path, [body, body])) == [(202, None), (202, None)]
        wishes = ["by train", "by boat"]
        answers = await nodes.both(path, [result(other, wish) for wish in wishes])
        assert outcomes(answers) == [(202, None), (409, "conflict_error")]
        outputs[other["call_id"]] = {
            wish for wish, answer in zip(wishes, answers, strict=True) if answer.status_code == 202
        }
        session = await nodes.until(session_id, lambda found: len(found["required_actions"]) == 1)
        (last,) = session["required_actions"]
        await nodes.post(path, result(last, "by bus"))
        outputs[last["call_id"]] = {"by bus"}
        await nodes.until(session_id, is_idle)
        items = await nodes.items(session_id)
        assert sorted(map(kind_of, items)) == sorted(kind for kind in TRIP if kind != "reasoning")
        used = {item["call_id"]: {item["output"]} for item in items if item["type"] == "function_call_output"}
        assert used == outputs

    async with nodes_of(make_cluster(workers=1)) as nodes:
        await for_each_session(race)


async def test_a_key_on_both_nodes_has_one_effect(make_cluster: MakeCluster, model: StoryModel) -> None:
    """The same body has one outcome, and of two bodies one is a conflict."""

    async def race(number: int) -> None:
        session_id = await nodes.create(f"Good morning, number {number}.")
        path = f"/agents/sessions/{session_id}/events"
        await nodes.until(session_id, is_idle)
        body = said("Once.")
        assert outcomes(await nodes.both(path, [body, body], "once")) == [(202, None), (202, None)]
        wishes = ["This.", "That."]
        answers = await nodes.both(path, [said(wish) for wish in wishes], "either")
        assert outcomes(answers) == [(202, None), (409, "idempotency_conflict")]
        kept = [wish for wish, answer in zip(wishes, answers, strict=True) if answer.status_code == 202]
        await nodes.until(session_id, is_idle)
        users = [text_of(item) for item in await nodes.items(session_id) if kind_of(item) == "user"]
        assert users == [f"Good morning, number {number}.", "Once.", *kept]

    async with nodes_of(make_cluster(workers=1)) as nodes:
        await for_each_session(race)


async def test_a_session_is_created_once_for_a_key_on_both_nodes(
    make_cluster: MakeCluster, model: StoryModel
) -> None:
    cluster = make_cluster(workers=1)

    async def race(number: int) -> None:
        body = creation("Good morning.")
        first, second = await nodes.both("/agents/sessions", [body, body], f"same {number}")
        assert (first.status_code, second.status_code) == (201, 201)
        assert first.json()["id"] == second.json()["id"]
        bodies = [creation("Good evening."), creation("Good night.")]
        answers = await nodes.both("/agents/sessions", bodies, f"other {number}")
        assert outcomes(answers) == [(201, None), (409, "idempotency_conflict")]
        for answer in (first, *answers):
            if answer.status_code == 201:
                await nodes.until(answer.json()["id"], is_idle)

    async with nodes_of(cluster) as nodes:
        await for_each_session(race)
    assert cluster.storage.query("SELECT count(*) FROM sessions") == [(2 * SESSIONS,)]
