"""Work of several processes on one PostgreSQL: each runs the sessions whose jobs it fetches.

A job is there from the commit that made a session have something to do until that is done. A tenure
(see `work/liveness.py`) stands behind whatever runs; when it is over, all of it stops at once, and what
was left is found by the sweep of any worker: jobs and sessions whose worker is dead.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Collection, Hashable
from typing import Generic, TypeVar

from procrastinate import PsycopgConnector
from procrastinate.worker import Worker
from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool
from sqlalchemy.engine import make_url

from perdure.harness.deps import Deps
from perdure.store.connections import POSTGRES_TRANSPORT, postgres_text
from perdure.store.engine import StoreError, now_us
from perdure.store.handover import arrivals_among, hand_back
from perdure.store.stuck import end_stuck
from perdure.store.workers import forget_workers
from perdure.work.cleaning import alone, clean
from perdure.work.jobs import Jobs, queue_app
from perdure.work.liveness import Liveness, Tenure
from perdure.work.queue import (
    QUEUE,
    Seen,
    dead_jobs,
    due_without_job,
    enqueue_all,
    give_up,
    lost_sessions,
    prune_queue,
)
from perdure.work.runner import Runner
from perdure.work.sweep import Chore, Sweep

log = logging.getLogger(__name__)

SWEEP_SECONDS = 0.7
WATCH_SECONDS = 0.5
POLL_SECONDS = 1.0
STUCK_EVERY = 2  # sweeps
LOST_EVERY = 7
CLEAN_EVERY = 45
LOOK_TWICE_SECONDS = 0.3
BATCH = 200
POOL = 4
POOL_SECONDS = 2.0
START_SECONDS = 15.0
RESTART_SECONDS = 1.0
FORGET_SECONDS = 60.0

K = TypeVar("K", bound=Hashable)


class PostgresWork:
    """Runs `advance` for sessions of a database that other processes work on too."""

    def __init__(self, deps: Deps) -> None:
        settings = deps.settings
        self._deps = deps
        self._lease_us = int(settings.work.lease * 1e6)
        self._runner = Runner(deps)
        self._conninfo = postgres_text(make_url(settings.database))
        self._pool = AsyncConnectionPool(
            self._conninfo,
            min_size=1,
            max_size=POOL,
            timeout=POOL_SECONDS,
            # Else the pauses of the pool grow with an outage, and outlast it by as much again.
            reconnect_timeout=POOL_SECONDS / 2,
            open=False,
            configure=_configure,
            kwargs={**POSTGRES_TRANSPORT, "application_name": "perdure queue"},
        )
        self._connector = PsycopgConnector()
        self._liveness = Liveness(settings.database, settings.work.lease, self._began)
        self._tenures: asyncio.Queue[Tenure] = asyncio.Queue()
        self._tenure: Tenure | None = None
        self._jobs: Jobs | None = None
        self._worker: Worker | None = None
        self._doing: dict[int, str] = {}
        self._ready = asyncio.Event()
        self._supervisor: asyncio.Task[None] | None = None
        self._suspect_jobs: _Twice[int] = _Twice()
        self._suspect_sessions: _Twice[str] = _Twice()
        self._sweep = Sweep(
            "sweep",
            SWEEP_SECONDS,
            Chore(1, self._give_up_dead_jobs),
            Chore(1, self._enqueue_due),
            Chore(STUCK_EVERY, self._end_stuck),
            Chore(LOST_EVERY, self._enqueue_lost),
            Chore(CLEAN_EVERY, self._clean),
            jitter=0.2,
            at_once=True,
        )
        self._watch = Sweep("watch for arrivals", WATCH_SECONDS, Chore(1, self._see_arrivals))
        for noisy in ("procrastinate", "psycopg.pool"):
            logging.getLogger(noisy).setLevel(logging.ERROR)

    async def start(self) -> None:
        """Register as a worker, take jobs, and begin to look after those of dead ones.

        Raises:
            StoreError: the database did not let this process register.
        """
        await self._pool.open()
        await self._connector.open_async(self._pool)
        self._liveness.start()
        self._supervisor = asyncio.create_task(self._supervise(), name="supervise queue worker")
        try:
            async with asyncio.timeout(START_SECONDS):
                await self._ready.wait()
        except TimeoutError:
            raise StoreError("The database did not register this worker in time") from None
        self._sweep.start()
        self._watch.start()

    def wake(self, session_id: str) -> None:
        """Tell a run of this process; for all others a job was enqueued with the data."""
        if not self._runner.tell(session_id) and self._jobs is not None and not self._runner.draining():
            self._jobs.nudge()

    def owns(self, session_id: str) -> bool:
        """Whether this process runs the session now."""
        return self._runner.runs(session_id)

    def may_publish(self) -> bool:
        """Whether no other process can have taken over what this one runs."""
        return self._tenure is None or self._tenure.alive()

    def drain(self) -> None:
        """Fetch nothing more; what runs stops at its next step boundary and is enqueued for others."""
        self._runner.drain()
        if self._jobs is not None:
            self._jobs.drain()
        if self._worker is not None:
            self._worker.stop()  # type: ignore[no-untyped-call]

    def hurry(self) -> None:
        """Wait for no step: `stop` breaks off what still runs."""
        self._runner.hurry()

    async def stop(self) -> None:
        """Hand every session back, at its next step boundary or where it is, and deregister."""
        self.drain()
        await self._sweep.stop()
        await self._runner.finish()
        await self._watch.stop()
        if self._supervisor is not None:
            self._supervisor.cancel()
            await asyncio.gather(self._supervisor, return_exceptions=True)
        await self._liveness.stop()
        await self._pool.close()

    # ---- tenures, and the queue's worker in each

    def _began(self, tenure: Tenure) -> None:
        self._tenures.put_nowait(tenure)

    async def _supervise(self) -> None:
        """One worker of the queue after the other, each for a tenure at most."""
        tenure: Tenure | None = None
        while not self._runner.draining():
            while tenure is None or not tenure.alive():
                tenure = await self._tenures.get()
            try:
                await self._serve(tenure)
            except Exception:
                # Whatever it was, sessions have to be run: another worker of the queue is started.
                log.exception("the queue's worker failed")
            if tenure.alive() and not self._runner.draining():
                await asyncio.sleep(RESTART_SECONDS)

    async def _serve(self, tenure: Tenure) -> None:
        places = self._deps.settings.work.session_concurrency
        manager = self._jobs = Jobs(self._connector, self._conninfo, tenure, places)
        self._tenure = tenure
        self._suspect_jobs.forget()
        self._suspect_sessions.forget()
        app = queue_app(self._connector, manager, self._perform)
        worker = self._worker = Worker(
            app,
            queues=[QUEUE],
            name=tenure.owner,
            concurrency=places,
            fetch_job_polling_interval=POLL_SECONDS,
            delete_jobs="always",
            install_signal_handlers=False,
        )
        running = asyncio.create_task(worker.run(), name="queue worker")  # type: ignore[no-untyped-call]
        registered = asyncio.create_task(manager.registered.wait())
        registered.add_done_callback(lambda _: self._ready.set() if manager.registered.is_set() else None)
        pause = min(self._deps.settings.work.lease / 10, 0.5)
        try:
            while tenure.alive() and not running.done():
                await asyncio.wait({running}, timeout=pause)
            if not running.done():
                log.warning("%s was silent for too long and stops what it runs", tenure.owner)
        finally:
            registered.cancel()
            if not tenure.alive():
                self._runner.abandon()
            worker.stop()  # type: ignore[no-untyped-call]
            await _ended(running)
        running.result()

    async def _perform(self, job_id: int, session_id: str) -> None:
        """Do a job: run its session until it waits, or until this process must not any more."""
        tenure = self._tenure
        if tenure is None or not tenure.alive():
            return
        if self._runner.draining():
            await self._deps.store.write(enqueue_all, [session_id])
            return
        self._doing[job_id] = session_id
        try:
            await self._runner.displace(session_id)
            run = self._runner.start(session_id, tenure)
            try:
                await asyncio.wait({run})
            except asyncio.CancelledError:
                run.cancel()
                await asyncio.wait({run})
                raise
            if run.cancelled() and self._runner.draining() and tenure.alive():
                # What was under way was begun: the next claim counts it.
                await self._deps.store.write(hand_back, session_id, tenure.owner, 0)
        finally:
            del self._doing[job_id]

    # ---- what is looked at again and again

    async def _give_up_dead_jobs(self) -> None:
        """Enqueue anew what dead workers were doing."""
        found = await self._read_dead_jobs()
        dead = self._suspect_jobs.again(found)
        if found and not dead:
            await asyncio.sleep(LOOK_TWICE_SECONDS)
            dead = self._suspect_jobs.again(await self._read_dead_jobs())
        for start in range(0, len(dead), BATCH):
            given_up = await self._deps.store.write(give_up, dead[start : start + BATCH])
            if given_up:
                log.info("took over %d jobs of workers that are dead", given_up)
                self._nudge()

    async def _read_dead_jobs(self) -> Collection[int]:
        seen = self._seen()
        if seen is None:
            return ()
        try:
            return await self._deps.store.read(dead_jobs, self._lease_us, seen)
        except StoreError:
            # All workers have lost their locks, and need a moment to take them again.
            self._suspect_jobs.forget()
            raise

    async def _enqueue_lost(self) -> None:
        """Enqueue sessions with something to do that no job asks for."""
        seen = self._seen()
        if seen is None:
            return
        found = await self._deps.store.read(lost_sessions, self._lease_us, seen)
        await self._enqueue(self._suspect_sessions.again(found))

    async def _enqueue_due(self) -> None:
        """Enqueue sessions whose time has come."""
        await self._enqueue(await self._deps.store.read(due_without_job))

    async def _enqueue(self, session_ids: Collection[str]) -> None:
        ordered = sorted(session_ids)
        for start in range(0, len(ordered), BATCH):
            await self._deps.store.write(enqueue_all, ordered[start : start + BATCH])
            self._nudge()

    async def _end_stuck(self) -> None:
        """Let nobody wait for the locks of a process that stands still."""
        if ended := await self._deps.store.read(end_stuck):
            log.warning("ended %d transactions of processes that stand still", ended)

    async def _clean(self) -> None:
        store, settings = self._deps.store, self._deps.settings
        await clean(store, settings, shared=True)
        age = max(FORGET_SECONDS, 2 * settings.work.lease)
        await alone(store, forget_workers, self._lease_us, int(age * 1e6))
        await alone(store, prune_queue, age)

    async def _see_arrivals(self) -> None:
        """Let runs of this process see what other processes accepted while no step of theirs would."""
        running = self._runner.sessions()
        if running:
            for session_id in await self._deps.store.read(arrivals_among, list(running), now_us()):
                self._runner.look(session_id)

    def _seen(self) -> Seen | None:
        if self._tenure is None or not self._tenure.alive():
            return None
        known = () if self._jobs is None else self._jobs.known()
        return Seen(self._tenure.owner, {*self._doing, *known}, self._runner.sessions())

    def _nudge(self) -> None:
        if self._jobs is not None:
            self._jobs.nudge()


class _Twice(Generic[K]):
    """Believes only what it is told in two looks that follow each other, some time apart."""

    def __init__(self) -> None:
        self._before: dict[K, float] = {}

    def again(self, found: Collection[K]) -> list[K]:
        """Those that were found some time ago as well."""
        now = time.monotonic()
        self._before = {key: self._before.get(key, now) for key in found}
        return [key for key, since in self._before.items() if now - since >= LOOK_TWICE_SECONDS]

    def forget(self) -> None:
        self._before = {}


async def _configure(connection: AsyncConnection) -> None:
    # The queue's statements are transactions of their own: no BEGIN and COMMIT around each.
    await connection.set_autocommit(True)


async def _ended(task: asyncio.Task[None]) -> None:
    """Wait until a task has ended, also while this one is cancelled."""
    while not task.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait({task})
