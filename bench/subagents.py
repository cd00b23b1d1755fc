"""`subagents`: what a child of a session costs: latency, CPU, memory, and hundreds of families at once."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import uvloop

from bench.client import FAILURES, SESSIONS, Connection, connected, creation, message
from bench.machine import cores, pinned
from bench.processes import BareClient, Running, start_bare, start_provider, start_server
from bench.provider import FAN_OUT
from bench.report import Row, percentile

CHILDREN = 6
# Beside those of the children: one to create them and to wait, one to answer.
COORDINATION_CALLS = 2
ASKED = message(FAN_OUT)
AT_ONCE = 64
"""Model calls of the server at once, by default: the bare client makes as many."""
PATIENCE_SECONDS = 120.0
EVERY_CHILD_RUNS = "SELECT count(*) FROM turns WHERE subagent_id IS NOT NULL AND status = 'in_progress'"
CHILDREN_AT_WORK = "SELECT count(*) FROM subagents WHERE turn_id IS NOT NULL"
LEFT_BEHIND = "SELECT count(*) FROM inbox"


@dataclass(frozen=True)
class Family:
    """One fan-out: seconds until the session was idle, and from each child's creation to its report."""

    seconds: float
    reported: tuple[float, ...]


def measure(directory: Path, smoke: bool) -> list[Row]:
    """Fan-outs one after the other, then all sessions at once, then children that hang at the provider."""
    sessions, blocks = (8, 2) if smoke else (200, 60)
    with pinned(cores()[1]), start_provider(directory) as provider:
        with (
            start_server(directory, provider=provider.port) as server,
            start_bare(directory, provider.port) as bare,
        ):
            rows = uvloop.run(_one_by_one(server, bare, blocks))
            rows += uvloop.run(_all_at_once(server, bare, sessions, directory / "data" / "perdure.db"))
        hanging = directory / "hanging"
        hanging.mkdir()
        settings = "[work]\nmodel_concurrency = 100_000\n"
        with start_server(hanging, provider=provider.port, settings=settings) as server:
            rows += uvloop.run(_running(server, sessions, hanging / "data" / "perdure.db"))
    return rows


async def _one_by_one(server: Running, bare: BareClient, blocks: int) -> list[Row]:
    """Families of six, of one, and the bare client's calls in turn, so that noise meets all alike."""
    calls: list[float] = []
    families: list[Family] = []
    cpu_of_six = cpu_of_one = bare_cpu = 0.0
    calls_made = 0
    for block in range(-3, blocks):
        outcomes = [bare.ask(1), bare.ask(CHILDREN, concurrency=CHILDREN), bare.ask(1)]
        six, cpu_six = await _timed_family(server, CHILDREN)
        _, cpu_one = await _timed_family(server, 1)
        if block < 0:
            continue  # caches, connections and compiled statements
        calls.append(sum(outcome.wall for outcome in outcomes))
        calls_made += CHILDREN + COORDINATION_CALLS
        bare_cpu += sum(outcome.cpu for outcome in outcomes)
        families.append(six)
        cpu_of_six += cpu_six
        cpu_of_one += cpu_one
    seconds = [family.seconds for family in families]
    middle = percentile(calls, 0.5)
    rows = []
    for share, limit in ((0.5, 30.0), (0.95, 60.0)):
        added = (percentile(seconds, share) - middle) * 1e3
        beside = percentile(calls, share) * 1e3
        rows.append(Row(f"a fan-out of six, added p{share * 100:.0f}", added, "ms", limit, beside=beside))
    child_cpu = (cpu_of_six - cpu_of_one) / blocks / (CHILDREN - 1) * 1e3
    return [
        *rows,
        Row("CPU of a fan-out of six", cpu_of_six / blocks * 1e3, "ms", beside=bare_cpu / blocks * 1e3),
        Row("CPU that a child adds", child_cpu, "ms", 5, beside=bare_cpu / calls_made * 1e3),
    ]


async def _timed_family(server: Running, children: int) -> tuple[Family, float]:
    """A family in a session of its own, and the server's CPU for its turns."""
    async with connected(server.port, 2) as (poster, reader):
        session_id = await _open(poster, reader, children)
        cpu = server.cpu
        family = await _fan_out(poster, reader, session_id, children)
        return family, server.cpu - cpu


async def _all_at_once(server: Running, bare: BareClient, sessions: int, database: Path) -> list[Row]:
    """Every session fans out at the same moment; the first time is for the caches."""
    calls = sessions * (CHILDREN + COORDINATION_CALLS)
    beside = bare.ask(calls, concurrency=AT_ONCE)
    await _families_at_once(server, sessions, database)
    families, wall, cpu, grown = await _families_at_once(server, sessions, database)
    reported = [seconds for family in families for seconds in family.reported]
    children = sessions * CHILDREN
    what = f"{sessions} sessions of six at once"
    return [
        Row(what, wall, "s", beside=beside.wall),
        Row(
            "  turns of children", children / wall, "turns/s", 150, at="least", beside=children / beside.wall
        ),
        Row("  CPU of the server for a child", cpu / children * 1e3, "ms"),
        Row("  from created to reported, p50", percentile(reported, 0.5) * 1e3, "ms"),
        Row("  from created to reported, p95", percentile(reported, 0.95) * 1e3, "ms"),
        Row("  reports delivered", len(reported), "reports", children, at="least"),
        Row("memory of a child that has ended", grown / children / 1e3, "kB", 2),
    ]


async def _families_at_once(
    server: Running, sessions: int, database: Path
) -> tuple[list[Family], float, float, float]:
    """The families, the seconds and CPU seconds of all together, and the bytes they leave behind."""
    async with AsyncExitStack() as stack:
        posters = await stack.enter_async_context(connected(server.port, sessions))
        readers = await stack.enter_async_context(connected(server.port, sessions))
        ids = [await _open(poster, reader, CHILDREN) for poster, reader in zip(posters, readers, strict=True)]
        await _quiet(server)
        began, cpu, rss = time.perf_counter(), server.cpu, server.rss
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(_fan_out(poster, reader, session_id, CHILDREN))
                for poster, reader, session_id in zip(posters, readers, ids, strict=True)
            ]
        wall, cpu = time.perf_counter() - began, server.cpu - cpu
        await _quiet(server)
        grown = server.rss - rss
    for query in (CHILDREN_AT_WORK, LEFT_BEHIND):
        await _counted(database, query, 0)
    return [task.result() for task in tasks], wall, cpu, grown


async def _running(server: Running, sessions: int, database: Path) -> list[Row]:
    """Children that wait for a provider which has begun to answer and says nothing more."""
    async with connected(server.port, 2) as (poster, reader):
        await _fan_out(poster, reader, await _open(poster, reader, CHILDREN), CHILDREN)
    alone = await _grown_by(server, sessions, 1, database, sessions)
    full = await _grown_by(server, sessions, CHILDREN, database, sessions * (1 + CHILDREN))
    child = (full - alone) / sessions / (CHILDREN - 1)
    async with connected(server.port) as (poster,):
        page: dict[str, Any] = await poster.request("GET", f"{SESSIONS}?limit=100")
        while page["data"]:
            for session in page["data"]:
                if session["status"] == "in_progress":
                    await poster.request("POST", f"{SESSIONS}/{session['id']}/events", CANCEL)
            page = await poster.request("GET", f"{SESSIONS}?limit=100&after={page['last_id']}")
    for query in (EVERY_CHILD_RUNS, CHILDREN_AT_WORK):
        await _counted(database, query, 0)
    return [
        Row("memory of a child at work", child / 1e3, "kB", 100),
        Row("memory of a session with six at work", full / sessions / 1e3, "kB"),
    ]


CANCEL = {"events": [{"type": "agent.session.input.cancel"}]}


async def _grown_by(server: Running, sessions: int, children: int, database: Path, running: int) -> float:
    """How many bytes the server grows by sessions whose children hang; `running` children do then."""
    before = server.rss
    body = _creation(children, FAN_OUT, hangs=True)
    async with connected(server.port) as (poster,):
        for _ in range(sessions):
            await poster.request("POST", SESSIONS, body)
    await _counted(database, EVERY_CHILD_RUNS, running)
    await _quiet(server)
    return float(server.rss - before)


async def _open(poster: Connection, reader: Connection, children: int) -> str:
    """An idle session that `reader` follows and that may have so many subagents at once."""
    session: dict[str, Any] = await poster.request("POST", SESSIONS, _creation(children, "Hello."))
    reader.follow(f"{SESSIONS}/{session['id']}/events")
    await reader.until(b"agent.session.idle")
    return str(session["id"])


def _creation(children: int, text: str, *, hangs: bool = False) -> dict[str, Any]:
    body = creation(f"deltas-1-crew-{children}{'-hangs' if hangs else ''}", text)
    body["agent"]["multi_agent"] = {"enabled": True, "max_concurrent_subagents": children}
    return body


async def _fan_out(poster: Connection, reader: Connection, session_id: str, children: int) -> Family:
    """One message, the children it leads to, and the answer.

    Raises:
        RuntimeError: the turn failed, or it ended without a report of each of its children.
    """
    created: dict[str, float] = {}
    reported: dict[str, float] = {}
    started = time.perf_counter()
    await poster.request("POST", f"{SESSIONS}/{session_id}/events", ASKED)
    while True:
        frame = await reader.next_frame()
        if frame.name == b"agent.session.subagent.created":
            created[orjson.loads(frame.data)["subagent"]["id"]] = frame.arrived
        elif frame.name == b"agent.session.turn.item.added" and b'"agent_message"' in frame.data:
            sender = orjson.loads(frame.data)["item"]["sender_agent_id"]
            reported[sender] = frame.arrived - created[sender]
        elif frame.name in FAILURES:
            raise RuntimeError(frame.data.decode())
        elif frame.name == b"agent.session.turn.completed":
            break
    idle = await reader.until(b"agent.session.idle")
    if len(reported) != children or reported.keys() != created.keys():
        raise RuntimeError(f"{len(created)} subagents were created and {len(reported)} have reported")
    return Family(idle.arrived - started, tuple(reported.values()))


async def _counted(database: Path, query: str, wanted: int) -> None:
    """Return when a query counts so many rows.

    Raises:
        RuntimeError: it does not.
    """
    deadline = time.monotonic() + PATIENCE_SECONDS
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as reading:
        while (found := reading.execute(query).fetchone()[0]) != wanted:
            if time.monotonic() > deadline:
                raise RuntimeError(f"{found} instead of {wanted}: {query}")
            await asyncio.sleep(0.05)


async def _quiet(server: Running) -> None:
    """Return when the server has nothing to do."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        cpu = server.cpu
        await asyncio.sleep(0.5)
        if server.cpu - cpu < 0.02:
            return
    raise RuntimeError("the server does not come to rest")
