"""A worker knows that it is taken for dead before the others do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from sqlalchemy import text

from perdure.store.workers import live_workers
from perdure.work import liveness
from perdure.work.liveness import Liveness, Tenure

from .rows import Rows

DEADLINE = 30.0
LEASE = 60.0  # longer than any test, so that nothing ends by itself
US = 1_000_000


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(liveness, "elapsed", made)
    return made


def test_a_tenure_lives_as_long_as_its_heartbeats_come(clock: Clock) -> None:
    tenure = Tenure("worker_1", 10.0, clock.now)
    for _ in range(5):
        clock.now += 9.0
        assert tenure.alive()
        assert tenure.renew(clock.now)
    clock.now += 9.999
    assert tenure.alive()


def test_a_tenure_that_was_over_once_stays_so(clock: Clock) -> None:
    tenure = Tenure("worker_1", 10.0, clock.now)
    clock.now += 10.0
    # The process went on after a stop, and its heartbeat is sent before anything else is done.
    assert not tenure.renew(clock.now)
    assert not tenure.alive()


def test_a_heartbeat_counts_from_when_it_was_sent(clock: Clock) -> None:
    tenure = Tenure("worker_1", 10.0, clock.now)
    sent = clock.now + 5.0
    clock.now += 9.0
    assert tenure.renew(sent)
    clock.now = sent + 10.0
    assert not tenure.alive()


@asynccontextmanager
async def beating(url: str, lease: float = LEASE) -> AsyncIterator[tuple[Liveness, asyncio.Queue[Tenure]]]:
    tenures: asyncio.Queue[Tenure] = asyncio.Queue()
    thread = Liveness(url, lease, tenures.put_nowait)
    thread.start()
    try:
        yield thread, tenures
    finally:
        await thread.stop()


async def following(tenures: asyncio.Queue[Tenure]) -> Tenure:
    async with asyncio.timeout(DEADLINE):
        return await tenures.get()


def living(rows: Rows, lease: float = LEASE) -> list[str]:
    with rows.engine.connect() as conn:
        return list(live_workers(conn, int(lease * US)))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE):
        while not await asyncio.to_thread(condition):
            pass


async def test_a_worker_is_listed_while_it_lives(rows: Rows, postgres_url: str) -> None:
    async with beating(postgres_url) as (_, tenures), beating(postgres_url) as (_, others):
        tenure, other = await following(tenures), await following(others)
        assert sorted(living(rows)) == sorted([tenure.owner, other.owner])
        assert tenure.alive()
    assert living(rows) == []
    assert not tenure.alive()
    assert rows.ask("SELECT id FROM workers") == rows.ask("SELECT id FROM procrastinate_workers") == []


async def test_a_broken_connection_is_replaced_and_the_tenure_goes_on(rows: Rows, postgres_url: str) -> None:
    lease = 2.0  # so that the next heartbeat is not long in coming
    async with beating(postgres_url, lease) as (_, tenures):
        tenure = await following(tenures)
        holder = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2"
        ((first,),) = rows.ask(holder)
        rows.ask("SELECT pg_terminate_backend(:pid)", pid=first)
        await until(lambda: rows.ask(holder) not in ([], [(first,)]))
        assert living(rows) == [tenure.owner]
        assert tenures.empty()


async def test_a_worker_that_the_others_have_given_up_begins_anew(rows: Rows, postgres_url: str) -> None:
    async with beating(postgres_url, 2.0) as (_, tenures):
        tenure = await following(tenures)
        with rows.engine.begin() as conn:
            conn.execute(text("DELETE FROM workers"))
        after = await following(tenures)
        assert after.number > tenure.number
        assert not tenure.alive()
        assert living(rows) == [after.owner]
