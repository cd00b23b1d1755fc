"""`turn-overhead` and `turns-per-second`: what a one-message turn costs, alone and among many."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import uvloop

from bench.client import SESSIONS, Connection, connected, creation, message, open_session, take_turn
from bench.machine import cores, pinned
from bench.processes import BareClient, Running, start_bare, start_provider, start_server
from bench.report import Row, percentile

MODEL = "deltas-1"
# Longer sessions are the business of `growth`.
TURNS_PER_SESSION = 20
MESSAGE = message("Go on.")


def measure_overhead(directory: Path, smoke: bool) -> list[Row]:
    """Blocks of bare requests, messages and streaming creations in turn, so that noise meets all alike."""
    blocks = 1 if smoke else 20
    with (
        pinned(cores()[1]),
        start_provider(directory) as provider,
        start_server(directory, provider=provider.port) as server,
        start_bare(directory, provider.port) as bare,
    ):
        return uvloop.run(_overhead(server, bare, blocks))


async def _overhead(server: Running, bare: BareClient, blocks: int) -> list[Row]:
    asked: list[float] = []
    messages: list[float] = []
    creations: list[float] = []
    message_cpu = creation_cpu = bare_cpu = 0.0
    async with connected(server.port, 2) as (poster, reader):
        for block in range(-1, blocks):
            outcome = bare.ask(TURNS_PER_SESSION)
            session_id = await open_session(poster, reader, MODEL)
            cpu = [server.cpu]
            sent = [await take_turn(poster, reader, session_id, MESSAGE) for _ in range(TURNS_PER_SESSION)]
            cpu.append(server.cpu)
            created = [await _create(poster) for _ in range(TURNS_PER_SESSION)]
            cpu.append(server.cpu)
            reader.close()
            reader = await Connection.connect(server.port)
            if block < 0:
                continue  # caches, connections and compiled statements
            asked += outcome.seconds
            messages += sent
            creations += created
            bare_cpu += outcome.cpu
            message_cpu += cpu[1] - cpu[0]
            creation_cpu += cpu[2] - cpu[1]
        reader.close()
    middle = percentile(asked, 0.5)
    count = len(messages)
    rows = []
    for name, seconds in (("message", messages), ("create(stream=true)", creations)):
        for share, limit in ((0.5, 3.0), (0.95, 8.0)):
            added = (percentile(seconds, share) - middle) * 1e3
            what = f"{name}, added p{share * 100:.0f}"
            rows.append(Row(what, added, "ms", limit, beside=percentile(asked, share) * 1e3))
    rows.append(
        Row("message, CPU of the server", message_cpu / count * 1e3, "ms", 2.5, beside=bare_cpu / count * 1e3)
    )
    rows.append(
        Row("create(stream=true), CPU", creation_cpu / count * 1e3, "ms", beside=bare_cpu / count * 1e3)
    )
    return rows


async def _create(connection: Connection) -> float:
    started = time.perf_counter()
    connection.follow(SESSIONS, creation(MODEL, "Go on.", stream=True))
    await connection.until(b"agent.session.turn.completed")
    frame = await connection.until(b"agent.session.idle")
    await connection.finish()
    return frame.arrived - started


def measure_rate(directory: Path, smoke: bool) -> list[Row]:
    """Many sessions at once, each with turn after turn."""
    sessions, seconds = (8, 1.0) if smoke else (64, 10.0)
    with (
        pinned(cores()[1]),
        start_provider(directory) as provider,
        start_server(directory, provider=provider.port) as server,
        start_bare(directory, provider.port) as bare,
    ):
        bare.ask(sessions * 4, concurrency=sessions)
        asked = bare.ask(sessions * (4 if smoke else 100), concurrency=sessions)
        turns, wall, cpu, own_cpu = uvloop.run(turn_rate(server, sessions, seconds))
    bare_rate = len(asked.seconds) / asked.wall
    bare_cpu = asked.cpu / len(asked.seconds) * 1e3
    return [
        Row(f"{sessions} sessions", turns / wall, "turns/s", 400, at="least", beside=bare_rate),
        Row("CPU of the server for a turn", cpu / turns * 1e3, "ms", 2.5, beside=bare_cpu),
        Row("load of the server's core", cpu / wall * 100, "%"),
        Row("load of this client", own_cpu / wall * 100, "%"),
    ]


async def turn_rate(server: Running, sessions: int, seconds: float) -> tuple[int, float, float, float]:
    """Turns of `sessions` at once, in how many seconds, and the CPU seconds of server and client."""
    turns = 0
    stopping = asyncio.Event()

    async def converse(poster: Connection, reader: Connection) -> None:
        nonlocal turns
        while not stopping.is_set():
            session_id = await open_session(poster, reader, MODEL)
            for _ in range(TURNS_PER_SESSION):
                if stopping.is_set():
                    break
                await take_turn(poster, reader, session_id, MESSAGE)
                turns += 1
            reader.close()
            reader = await Connection.connect(server.port)
        reader.close()

    async with connected(server.port, sessions) as posters, asyncio.TaskGroup() as group:
        for poster in posters:
            group.create_task(converse(poster, await Connection.connect(server.port)))
        await asyncio.sleep(seconds / 5)
        began, cpu, own, before = time.perf_counter(), server.cpu, time.process_time(), turns
        await asyncio.sleep(seconds)
        # On a machine that others use too, a short run may see too little to count.
        for _ in range(60):
            if turns - before >= sessions:
                break
            await asyncio.sleep(1)
        wall, cpu, own = time.perf_counter() - began, server.cpu - cpu, time.process_time() - own
        done = turns - before
        stopping.set()
    return done, wall, cpu, own
