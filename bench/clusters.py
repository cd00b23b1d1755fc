"""`stores`, `takeover` and `recovery`: turns on both stores, and what a killed process costs.

On PostgreSQL the processes share the cores with the database, the provider and this client: the numbers
say what one small machine does in all, not what a cluster of machines does.
"""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import uvloop
from tests.postgres import PostgresServer

from bench.client import SESSIONS, Connection, connected, creation
from bench.processes import Running, start_provider, start_server, start_worker
from bench.report import Row, percentile
from bench.turns import turn_rate

CONCURRENCY = 32
LAYOUTS: Sequence[tuple[str, int | None]] = (
    ("PostgreSQL, one process", None),
    ("PostgreSQL, one API process and one worker", 1),
    ("PostgreSQL, one API process and two workers", 2),
)


def measure_stores(directory: Path, smoke: bool) -> list[Row]:
    """Turns a second of many sessions at once, on the same machine, without a core of its own for anybody."""
    sessions, seconds = (8, 1.0) if smoke else (64, 8.0)
    rows = []
    with start_provider(directory) as provider:
        rate, cpu = _rate_of(directory / "sqlite", [], None, provider.port, sessions, seconds)
        rows.append(Row("SQLite, one process", rate, "turns/s"))
        rows.append(Row("SQLite, CPU for a turn", cpu, "ms"))
        for name, workers in LAYOUTS:
            with PostgresServer(durable=True) as postgres:
                options = ["--database", postgres.create_database()]
                home = directory / f"postgres-{workers}"
                rate, cpu = _rate_of(home, options, workers, provider.port, sessions, seconds)
            rows.append(Row(name, rate, "turns/s"))
            rows.append(Row(f"{name}, CPU for a turn", cpu, "ms"))
    return rows


def _rate_of(
    home: Path, options: list[str], workers: int | None, provider: int, sessions: int, seconds: float
) -> tuple[float, float]:
    """Turns a second, and CPU milliseconds of all our processes for a turn."""
    home.mkdir()
    with ExitStack() as stack:
        layout = [] if workers is None else ["--workers", "0"]
        server = stack.enter_context(
            start_server(home, provider=provider, pin=False, arguments=[*options, *layout])
        )
        running = [
            stack.enter_context(start_worker(home, number, provider=provider, arguments=options))
            for number in range(workers or 0)
        ]
        before = sum(each.cpu for each in running)
        turns, wall, cpu, _ = uvloop.run(turn_rate(server, sessions, seconds))
        # The workers' share of the warm-up is small, and counted.
        cpu += sum(each.cpu for each in running) - before
    return turns / wall, cpu / turns * 1e3


def measure_takeover(directory: Path, smoke: bool) -> list[Row]:
    """A worker is killed while a model writes: when another owns the session, and when its turn has ended."""
    rounds = 2 if smoke else 10
    owned: list[float] = []
    ended: list[float] = []
    with (
        PostgresServer(durable=True) as postgres,
        start_provider(directory) as provider,
        ExitStack() as stack,
    ):
        url = postgres.create_database()
        options = ["--database", url]
        server = stack.enter_context(
            start_server(directory, provider=provider.port, pin=False, arguments=[*options, "--workers", "0"])
        )
        workers = [
            stack.enter_context(start_worker(directory, n, provider=provider.port, arguments=options))
            for n in range(2)
        ]
        for number in range(rounds):
            taken, finished = uvloop.run(_take_over(server, url, workers))
            owned.append(taken)
            ended.append(finished)
            workers = [each for each in workers if each.process.poll() is None]
            workers.append(
                stack.enter_context(
                    start_worker(directory, number + 2, provider=provider.port, arguments=options)
                )
            )
    return [
        Row("another worker owns the session, median", percentile(owned, 0.5), "s", 3.0),
        Row("another worker owns the session, longest", max(owned), "s", 3.0),
        Row("the turn has ended, median", percentile(ended, 0.5), "s"),
    ]


async def _take_over(server: Running, url: str, workers: list[Running]) -> tuple[float, float]:
    async with connected(server.port, 2) as (poster, reader):
        session = await poster.request("POST", SESSIONS, creation("deltas-3000-every-1", "Write."))
        session_id = str(session["id"])
        reader.follow(f"{SESSIONS}/{session_id}/events")
        await reader.until(b"agent.session.turn.output_text.delta")
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as database:

            async def state() -> tuple[int, int]:
                found = await database.execute(
                    "SELECT s.epoch, w.pid FROM sessions s JOIN workers w ON w.id = s.owner WHERE s.id = %s",
                    (session_id,),
                )
                return await found.fetchone() or (0, 0)

            epoch, pid = await state()
            owner = next(each for each in workers if each.process.pid == pid)
            owner.process.send_signal(signal.SIGKILL)
            killed = time.perf_counter()
            for _ in range(6000):
                if (await state())[0] > epoch:
                    break
                await asyncio.sleep(0.01)
            else:
                raise RuntimeError("no worker took the session over within a minute")
            taken = time.perf_counter() - killed
        await reader.until(b"agent.session.turn.completed")
        return taken, time.perf_counter() - killed


def measure_recovery(directory: Path, smoke: bool) -> list[Row]:
    """A server is killed with many unfinished turns: when the next one has claimed all of them."""
    count = 50 if smoke else 1_000
    rows = []
    for name, place in (("SQLite", _in_file), ("PostgreSQL", _on_server)):
        home = directory / name
        home.mkdir()
        with place(home) as (options, query):
            ready, claimed = _recover(home, options, query, count)
        rows.append(Row(f"{name}, {count:,} unfinished turns, listening", ready, "s", 1.5))
        rows.append(Row(f"{name}, all of them claimed after that", claimed, "s", 1.0))
    return rows


Query = Callable[[str], int]


def _recover(home: Path, options: list[str], query: Query, count: int) -> tuple[float, float]:
    with start_provider(home) as provider:
        with start_server(home, provider=provider.port, pin=False, arguments=options) as server:
            uvloop.run(_create(server, count))
            _until(lambda: query("SELECT count(*) FROM sessions WHERE epoch >= 1") >= count)
            server.process.kill()
            server.process.wait()
        unfinished = query("SELECT count(*) FROM turns WHERE status = 'in_progress'")
        if unfinished < count:
            raise RuntimeError(f"only {unfinished} of {count} turns were unfinished")
        with start_server(home, provider=provider.port, pin=False, arguments=options) as server:
            began = time.perf_counter()
            _until(lambda: query("SELECT count(*) FROM sessions WHERE epoch >= 2") >= count)
            return server.seconds, time.perf_counter() - began


async def _create(server: Running, count: int) -> None:
    """Sessions whose answers take longer than the benchmark."""
    remaining = count

    async def create(connection: Connection) -> None:
        nonlocal remaining
        while remaining > 0:
            remaining -= 1
            await connection.request("POST", SESSIONS, creation("deltas-1000-every-1000", "Write slowly."))

    async with connected(server.port, CONCURRENCY) as connections, asyncio.TaskGroup() as group:
        for connection in connections:
            group.create_task(create(connection))


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        if time.monotonic() > deadline:
            raise RuntimeError("not reached within two minutes")
        time.sleep(0.01)


@contextmanager
def _in_file(home: Path) -> Iterator[tuple[list[str], Query]]:
    def query(statement: str) -> int:
        with closing(sqlite3.connect(f"file:{home / 'data' / 'perdure.db'}?mode=ro", uri=True)) as reading:
            return int(reading.execute(statement).fetchone()[0])

    yield [], query


@contextmanager
def _on_server(home: Path) -> Iterator[tuple[list[str], Query]]:
    with PostgresServer(durable=True) as postgres:
        url = postgres.create_database()
        with psycopg.connect(url, autocommit=True) as reading:

            def query(statement: Any) -> int:
                row = reading.execute(statement).fetchone()
                assert row is not None
                return int(row[0])

            yield ["--database", url], query
