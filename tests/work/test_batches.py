"""A worker fetches jobs many at a time: none is lost or run twice on the way, and others get their share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AsyncExitStack

import pytest
from procrastinate import PsycopgConnector
from procrastinate import jobs as queue_jobs
from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool
from tests.conformance.sessions import answers
from tests.conformance.watch import DEADLINE, until, until_status

from perdure.store.claims import claim
from perdure.store.workers import worker_id
from perdure.work.jobs import LARGEST_BATCH, Jobs
from perdure.work.liveness import Tenure, elapsed
from perdure.work.queue import QUEUE, Seen, dead_jobs, enqueue_all, give_up

from .fleet import Fleet, begin
from .rows import Rows, cancel, say

LEASE = 10_000_000


class Worker:
    """A tenure and its manager of the queue, without the queue's worker around it."""

    def __init__(self, rows: Rows, connector: PsycopgConnector, url: str, places: int) -> None:
        number = rows.register()
        self.tenure = Tenure(worker_id(number), 3600.0, elapsed())
        self.jobs = Jobs(connector, url, self.tenure, places)

    async def fetch(self) -> queue_jobs.Job | None:
        return await self.jobs.fetch_job([QUEUE], self.tenure.number)

    async def finish(self, job: queue_jobs.Job) -> None:
        await self.jobs.finish_job(job, queue_jobs.Status.SUCCEEDED, True)

    async def leave(self) -> None:
        await self.jobs.unregister_worker(self.tenure.number)

    def seen(self, jobs: Collection[int] | None = None) -> Seen:
        return Seen(self.tenure.owner, self.jobs.known() if jobs is None else jobs, ())


@pytest.fixture
async def employ(rows: Rows, postgres_url: str) -> AsyncIterator[Callable[..., Worker]]:
    async def configure(connection: AsyncConnection) -> None:
        await connection.set_autocommit(True)

    async with AsyncExitStack() as stack:
        pool = AsyncConnectionPool(postgres_url, min_size=1, max_size=4, open=False, configure=configure)
        await pool.open()
        stack.push_async_callback(pool.close)
        connector = PsycopgConnector()
        await connector.open_async(pool)
        yield lambda places=1000: Worker(rows, connector, postgres_url, places)


def done_by(rows: Rows, worker: Worker) -> set[int]:
    found = rows.ask("SELECT id FROM procrastinate_jobs WHERE worker_id = :id", id=worker.tenure.number)
    return {job_id for (job_id,) in found}


def states(rows: Rows) -> dict[str, int]:
    found = rows.ask("SELECT status, count(*) FROM procrastinate_jobs GROUP BY 1")
    return {str(status): int(count) for status, count in found}


async def store_some(worker: Worker) -> queue_jobs.Job:
    """Fetch until there are jobs that are not begun; the last one that is."""
    while (job := await worker.fetch()) is not None:
        if len(worker.jobs.known()) > 3:
            return job
    raise AssertionError("there are too few jobs")


async def test_every_job_is_handed_out_once_and_in_the_order_they_came(
    rows: Rows, employ: Callable[..., Worker]
) -> None:
    sessions = [rows.create() for _ in range(40)]
    worker = employ()
    found = [await worker.fetch() for _ in sessions]
    assert [job.lock for job in found if job is not None] == sessions
    assert await worker.fetch() is None
    assert worker.jobs.known() == done_by(rows, worker)
    assert states(rows) == {"doing": 40}


async def test_jobs_of_higher_priority_come_first(rows: Rows, employ: Callable[..., Worker]) -> None:
    sessions = [rows.create() for _ in range(10)]
    with rows.tx() as tx:
        tx.conn.exec_driver_sql("UPDATE procrastinate_jobs SET priority = mod(id, 3)")
    ordered = rows.ask("SELECT lock FROM procrastinate_jobs ORDER BY priority DESC, id")
    worker = employ()
    assert [(job.lock,) for _ in sessions if (job := await worker.fetch()) is not None] == ordered


async def test_a_worker_never_holds_more_jobs_than_it_has_places(
    rows: Rows, employ: Callable[..., Worker]
) -> None:
    for _ in range(20):
        rows.create()
    worker = employ(3)
    begun = [await worker.fetch() for _ in range(3)]
    assert states(rows) == {"doing": 3, "todo": 17}
    for job in begun:
        assert job is not None
        await worker.finish(job)
    for _ in range(3):
        assert await worker.fetch() is not None
        assert states(rows)["doing"] <= 3


async def test_two_workers_share_what_waits(rows: Rows, employ: Callable[..., Worker]) -> None:
    sessions = [rows.create() for _ in range(LARGEST_BATCH * 3)]
    first, second = employ(), employ()
    handed: list[list[str | None]] = [[], []]
    for _ in sessions:
        for worker, got in zip((first, second), handed, strict=True):
            if (job := await worker.fetch()) is not None:
                got.append(job.lock)
    assert sorted(str(lock) for got in handed for lock in got) == sorted(sessions)
    assert min(len(got) for got in handed) >= len(sessions) // 4


async def test_a_few_jobs_are_not_all_taken_by_the_first_who_looks(
    rows: Rows, employ: Callable[..., Worker]
) -> None:
    rows.create(), rows.create()
    first, second = employ(), employ()
    assert await first.fetch() is not None
    assert await second.fetch() is not None


async def test_a_session_has_one_job_that_is_done_and_the_next_one_after_it(
    rows: Rows, employ: Callable[..., Worker]
) -> None:
    sessions = [rows.create() for _ in range(8)]
    first, second = employ(), employ()
    job = await store_some(first)
    for session_id in sessions:
        rows.do(say, session_id, "More.")
    # Each of the first worker's sessions has another wake now.
    rest = [found async for found in _until_none(second)]
    assert {found.lock for found in rest} == set(sessions) - _locks(rows, first)
    assert job.id is not None
    await first.finish(job)
    after = await second.fetch()
    assert after is not None
    assert after.lock == job.lock


async def test_a_draining_worker_gives_back_what_it_has_not_begun(
    rows: Rows, employ: Callable[..., Worker]
) -> None:
    for _ in range(8):
        rows.create()
    worker, other = employ(), employ()
    await store_some(worker)
    fetched = _locks(rows, worker)
    worker.jobs.drain()
    assert await worker.fetch() is None
    await worker.leave()
    begun = _locks(rows, worker)
    assert worker.jobs.known() == done_by(rows, worker)
    assert len(begun) == 4
    assert states(rows) == {"doing": 4, "todo": 4}
    assert {job.lock async for job in _until_none(other)} >= fetched - begun


async def test_a_session_that_is_given_back_while_another_wake_waits_is_run_once(
    rows: Rows, employ: Callable[..., Worker]
) -> None:
    sessions = [rows.create() for _ in range(8)]
    worker, other = employ(), employ()
    await store_some(worker)
    rows.do(enqueue_all, sessions)
    worker.jobs.drain()
    await worker.leave()
    begun = _locks(rows, worker)
    waiting = [lock for status, lock in rows.jobs() if status == "todo"]
    assert sorted(waiting) == sorted(sessions)
    assert {job.lock async for job in _until_none(other)} == set(sessions) - begun


async def test_what_is_being_fetched_when_the_drain_begins_is_given_back(
    rows: Rows, employ: Callable[..., Worker]
) -> None:
    for _ in range(8):
        rows.create()
    worker = employ()
    await store_some(worker)
    while len(worker.jobs.known()) < 7:
        await worker.fetch()
    before = len(done_by(rows, worker))
    fetching = asyncio.create_task(worker.fetch())
    await asyncio.sleep(0)
    worker.jobs.drain()
    await fetching
    await worker.leave()
    assert done_by(rows, worker) == set(worker.jobs.known())
    assert len(done_by(rows, worker)) <= before
    assert sum(states(rows).values()) == 8


async def test_a_worker_of_the_queue_that_stops_gives_back_before_it_waits_for_what_runs(
    rows: Rows, employ: Callable[..., Worker]
) -> None:
    for _ in range(8):
        rows.create()
    worker = employ()
    told = asyncio.Event()

    async def tell(*, channel: str, notification: queue_jobs.Notification) -> None:
        told.set()

    listening = asyncio.create_task(worker.jobs.listen_for_jobs(on_notification=tell, queues=[QUEUE]))
    async with asyncio.timeout(DEADLINE):
        await told.wait()
    await store_some(worker)
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)
    await asyncio.to_thread(until, lambda: states(rows), lambda found: found == {"doing": 4, "todo": 4})


async def test_the_workers_own_sweep_takes_stored_jobs_for_its_own(
    rows: Rows, employ: Callable[..., Worker]
) -> None:
    for _ in range(8):
        rows.create()
    worker = employ()
    await store_some(worker)
    with rows.engine.connect() as conn:
        assert dead_jobs(conn, LEASE, worker.seen()) == []
        # A worker that forgot them, or another one after this one's death, finds all of them.
        assert set(dead_jobs(conn, LEASE, worker.seen(()))) == done_by(rows, worker)
        assert set(dead_jobs(conn, LEASE, employ().seen())) == done_by(rows, worker)


async def test_a_worker_whose_tenure_is_over_leaves_its_jobs_to_the_others(
    rows: Rows, employ: Callable[..., Worker]
) -> None:
    for _ in range(8):
        rows.create()
    worker, other = employ(), employ()
    job = await store_some(worker)
    held = done_by(rows, worker)
    worker.tenure.end()
    assert await worker.fetch() is None
    await worker.finish(job)
    worker.jobs.drain()
    await worker.leave()
    assert done_by(rows, worker) == held
    with rows.engine.connect() as conn:
        dead = dead_jobs(conn, LEASE, other.seen())
    assert rows.do(give_up, dead) == len(held)
    assert len([job async for job in _until_none(other)]) == 8


async def test_a_cancel_reaches_a_session_whose_job_is_stored(
    rows: Rows, employ: Callable[..., Worker]
) -> None:
    for _ in range(8):
        rows.create()
    worker = employ()
    await store_some(worker)
    for session_id in _locks(rows, worker):
        rows.do(cancel, session_id)
    stored = len(_locks(rows, worker)) - 4
    for _ in range(stored):
        job = await worker.fetch()
        assert job is not None
        assert job.lock is not None
        boundary = rows.do(claim, job.lock, owner=worker.tenure.owner)
        assert boundary is None or boundary.state == "idle"
        await worker.finish(job)
    assert stored > 0
    assert rows.ask("SELECT count(*) FROM turns WHERE status = 'cancelled'") == [(stored,)]


async def test_jobs_that_end_together_are_removed_though_another_worker_gave_one_up(
    rows: Rows, employ: Callable[..., Worker]
) -> None:
    sessions = [rows.create() for _ in range(8)]
    worker = employ()
    begun = [job async for job in _until_none(worker)]
    assert begun[3].id is not None
    rows.do(give_up, [begun[3].id])
    async with asyncio.timeout(DEADLINE):
        await asyncio.gather(*(worker.finish(job) for job in begun))
    assert worker.jobs.known() == set()
    assert rows.jobs() == [("todo", sessions[3])]


@pytest.mark.slow
def test_a_worker_that_is_killed_with_many_fetched_jobs_leaves_all_of_them_to_another(fleet: Fleet) -> None:
    client = fleet.client(fleet.server())
    said = [f"Message {number}." for number in range(60)]
    sessions = [begin(client, each) for each in said]
    first = fleet.worker(environ={"PERDURE_FAULT": "claim:before-commit#8=kill"})
    first.wait()
    held = fleet.ask("SELECT count(*) FROM procrastinate_jobs WHERE status = 'doing'")[0][0]
    assert held > fleet.ask("SELECT count(*) FROM sessions WHERE epoch > 0")[0][0]
    fleet.worker()
    for session_id, each in zip(sessions, said, strict=True):
        until_status(client, session_id, "idle")
        assert answers(client, session_id) == [f"You said: {each}"]
    until(lambda: fleet.ask("SELECT count(*) FROM procrastinate_jobs"), lambda found: found == [(0,)])


async def _until_none(worker: Worker) -> AsyncIterator[queue_jobs.Job]:
    while (job := await worker.fetch()) is not None:
        yield job


def _locks(rows: Rows, worker: Worker) -> set[str]:
    found = rows.ask("SELECT lock FROM procrastinate_jobs WHERE worker_id = :id", id=worker.tenure.number)
    return {lock for (lock,) in found}
