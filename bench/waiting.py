"""`waiting-sessions`: sessions that wait for a function's result are rows and nothing else."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import uvloop

from bench.client import SESSIONS, Connection, connected, creation
from bench.machine import cores, pinned
from bench.processes import Running, start_server
from bench.report import Row

LOOKUP = {
    "type": "function",
    "name": "lookup",
    "description": "Look an order up.",
    "parameters": {
        "type": "object",
        "properties": {"id": {"type": "string"}},
        "required": ["id"],
        "additionalProperties": False,
    },
}
CREATION = creation("desk", "Where is A-1042?", tools=[LOOKUP])
CONCURRENCY = 32


def measure(directory: Path, smoke: bool) -> list[Row]:
    """Create them over HTTP, let time pass, answer one; then the same after a restart."""
    count, seconds = (200, 1.0) if smoke else (10_000, 10.0)
    database = directory / "data" / "perdure.db"
    with pinned(cores()[1]):
        with start_server(directory) as server:
            uvloop.run(_create(server, CONCURRENCY * 4))
            _wait(database, CONCURRENCY * 4)
            quiet, fresh = _passing(server, seconds), server.rss
            began = time.perf_counter()
            uvloop.run(_create(server, count))
            _wait(database, CONCURRENCY * 4 + count)
            made = count / (time.perf_counter() - began)
            waiting, grown = _passing(server, seconds), server.rss - fresh
            uvloop.run(_answer_one(server))
        with start_server(directory) as server:
            after = _passing(server, seconds)
            restarted = server.rss
            uvloop.run(_answer_one(server))
    without: dict[str, Any] = {"beside": quiet * 1e3, "beside_what": "all CPU with none waiting"}
    return [
        Row(f"memory of {count:,} waiting sessions", grown / 1e6, "MB", 50),
        Row("CPU that their waiting adds", (waiting - quiet) * 1e3, "ms/s", 1, **without),
        Row("CPU that it adds after a restart", (after - quiet) * 1e3, "ms/s", 1, **without),
        Row(
            "memory of the restarted server", restarted / 1e6, "MB", beside=fresh / 1e6, beside_what="before"
        ),
        Row("created and waiting", made, "sessions/s"),
    ]


async def _create(server: Running, count: int) -> None:
    remaining = count

    async def worker(connection: Connection) -> None:
        nonlocal remaining
        while remaining > 0:
            remaining -= 1
            await connection.request("POST", SESSIONS, CREATION)

    async with connected(server.port, CONCURRENCY) as connections, asyncio.TaskGroup() as group:
        for connection in connections:
            group.create_task(worker(connection))


def _wait(database: Path, count: int) -> None:
    """Return when `count` sessions wait for their result."""
    deadline = time.monotonic() + 120
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as reading:
        query = "SELECT count(*) FROM sessions WHERE status = 'requires_action'"
        while (found := reading.execute(query).fetchone()[0]) < count:
            if time.monotonic() > deadline:
                raise RuntimeError(f"only {found} of {count} sessions wait for a result")
            time.sleep(0.05)


def _passing(server: Running, seconds: float) -> float:
    """CPU of the server for each second that passes."""
    time.sleep(1.0)
    cpu = server.cpu
    time.sleep(seconds)
    return (server.cpu - cpu) / seconds


async def _answer_one(server: Running) -> None:
    """A session that has waited goes on when its result comes."""
    async with connected(server.port, 2) as (poster, reader):
        page: dict[str, Any] = await poster.request("GET", f"{SESSIONS}?limit=100")
        waiting = next(each for each in page["data"] if each["status"] == "requires_action")
        action = waiting["required_actions"][0]
        reader.follow(f"{SESSIONS}/{waiting['id']}/events")
        await reader.until(b"agent.session.requires_action")
        result = {"type": "agent.session.input.tool_result", "success": True, "output": "on its way"}
        event = {**result, "turn_id": action["turn_id"], "call_id": action["call_id"]}
        await poster.request("POST", f"{SESSIONS}/{waiting['id']}/events", {"events": [event]})
        await asyncio.wait_for(reader.until(b"agent.session.turn.completed"), 30)
