"""The job queue's manager as a worker of ours needs it: it survives the database and knows one tenure.

The queue's own worker ends when a query fails, polls slowly for a job that became free, and takes its own
heartbeat for the sign of life. Here every query that fails is tried again in the next round, a finished
job is followed by a look for the next one, and liveness is the tenure's alone.

The queue's worker asks for one job at a time. It is handed them from a small store of jobs that were
fetched together, never more than it has places for; jobs that end together are removed together.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable
from typing import Any

import psycopg
from procrastinate import App, PsycopgConnector, exceptions, jobs
from procrastinate.connector import BaseConnector
from procrastinate.manager import JobManager, NotificationCallback, get_channel_for_queues

from perdure.work import batches
from perdure.work.liveness import Tenure
from perdure.work.queue import QUEUE, TASK

log = logging.getLogger(__name__)

CHANNEL = next(iter(get_channel_for_queues([QUEUE])))
LISTEN_SECONDS = 30.0
RECONNECT_SECONDS = 1.0
FINISH_PAUSES = (0.1, 0.5, 2.0)
# So few that a worker beside this one finds some, too; so many that a statement for them is cheap.
LARGEST_BATCH = 64

Perform = Callable[[int, str], Any]


class Jobs(JobManager):
    """The manager of one tenure (see the module's text), for a worker that runs `places` jobs at once."""

    def __init__(self, connector: PsycopgConnector, conninfo: str, tenure: Tenure, places: int) -> None:
        super().__init__(connector)
        self._pool: batches.Pool = connector.pool
        self.registered = asyncio.Event()
        self._conninfo = conninfo
        self._tenure = tenure
        self._places = places
        self._news = asyncio.Event()
        self._asked = False
        self._draining = False
        self._stored: deque[jobs.Job] = deque()
        self._begun: set[int] = set()
        self._batch = 1
        self._giving_back: asyncio.Task[None] | None = None
        self._ended: dict[int, tuple[str | None, asyncio.Future[None]]] = {}
        self._removing: asyncio.Task[None] | None = None

    def known(self) -> Collection[int]:
        """The jobs of this worker that it has fetched and not finished."""
        return {*self._begun, *(job.id for job in self._stored if job.id is not None)}

    def nudge(self) -> None:
        """There may be a job to fetch."""
        self._asked = True
        self._news.set()

    def drain(self) -> None:
        """Fetch nothing more; what was fetched and not begun, or behind a finished job, is for others."""
        self._draining = True
        self._let_go()

    # ---- what the queue's worker calls

    async def register_worker(self) -> int:
        """The number of the tenure, which is registered already."""
        self.registered.set()
        return self._tenure.number

    async def unregister_worker(self, worker_id: int) -> None:
        """The tenure ends by itself; what the queue's worker leaves is given back."""
        if self._giving_back is not None:
            await self._giving_back
        await self._give_back()

    async def update_heartbeat(self, worker_id: int) -> None:
        """Nothing: the tenure has its own."""

    async def prune_stalled_workers(self, seconds_since_heartbeat: float) -> list[int]:
        """Nothing: workers are forgotten by the sweep."""
        return []

    async def list_jobs_to_abort_async(self, queue: str | None = None) -> Iterable[int]:
        """None: a cancel is an input of its session."""
        return []

    async def fetch_job(self, queues: Iterable[str] | None, worker_id: int) -> jobs.Job | None:
        """The next job; None when there is none, or this worker must not take one."""
        while self._tenure.alive() and not self._draining:
            if self._stored:
                job = self._stored.popleft()
                assert job.id is not None
                self._begun.add(job.id)
                return job
            self._asked = False
            try:
                fetched = await self._fetch(queues or [QUEUE], worker_id)
            except (psycopg.Error, exceptions.ConnectorException) as error:
                if isinstance(_cause(error), psycopg.errors.ForeignKeyViolation):
                    # The queue has forgotten this worker.
                    self._tenure.end()
                log.warning("no job can be fetched: %s", _reason(error))
                return None
            self._stored.extend(fetched)
            # The queue's worker forgets what it was told while it fetched.
            if not fetched and not self._asked:
                return None
        await self._give_back()
        return None

    async def finish_job(self, job: jobs.Job, status: jobs.Status, delete_job: bool) -> None:
        """Remove a finished job and see to the wake behind it; otherwise the sweep finds it."""
        assert job.id is not None
        assert delete_job
        removed = asyncio.get_running_loop().create_future()
        self._ended[job.id] = job.lock, removed
        if self._removing is None or self._removing.done():
            self._removing = asyncio.create_task(self._remove_ended(), name="remove finished jobs")
        try:
            await removed
        finally:
            self._begun.discard(job.id)

    async def listen_for_jobs(
        self, *, on_notification: NotificationCallback, queues: Iterable[str] | None = None
    ) -> None:
        """Tell the queue's worker of new jobs, from the database and from this process, until it stops."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._listen())
                while True:
                    await self._news.wait()
                    self._news.clear()
                    await on_notification(channel=CHANNEL, notification={"type": "job_inserted", "job_id": 0})
        finally:
            # It waits for what runs now, and that may be long.
            self._let_go()

    # ---- jobs by the batch

    async def _fetch(self, queues: Iterable[str], worker_id: int) -> list[jobs.Job]:
        """Some jobs, and more of them each time as long as there are more."""
        limit = min(self._batch, max(1, self._places - len(self._begun)))
        try:
            fetched = await batches.fetch(self._pool, queues, worker_id, limit)
        except psycopg.errors.UniqueViolation:
            # One of them may not be done now. The queue's own statement is for one, and passes over it.
            job = await super().fetch_job(queues, worker_id)
            fetched = [] if job is None else [job]
        self._batch = min(2 * limit, LARGEST_BATCH) if len(fetched) == limit else max(1, len(fetched))
        return fetched

    def _let_go(self) -> None:
        if self._stored:
            self._giving_back = asyncio.create_task(self._give_back(), name="give jobs back")

    async def _give_back(self) -> None:
        """Let what was fetched and not begun wait for others; the sweep finds what cannot be given back."""
        job_ids = [job.id for job in self._stored if job.id is not None]
        self._stored.clear()
        if not job_ids or not self._tenure.alive():
            return
        try:
            await self._pass_on(await batches.give_back(self._pool, self._tenure.number, job_ids))
        except psycopg.Error as error:
            log.info("%d jobs cannot be given back: %s", len(job_ids), _reason(error))

    async def _remove_ended(self) -> None:
        """Remove the jobs that have ended; those that end meanwhile are the next batch."""
        while self._ended:
            ended, self._ended = self._ended, {}
            try:
                await self._remove(ended.keys())
                if self._draining:
                    await self._pass_on([lock for lock, _ in ended.values() if lock is not None])
            except psycopg.Error as error:
                log.warning("%d jobs cannot be finished now: %s", len(ended), _reason(error))
            finally:
                for _, removed in ended.values():
                    if not removed.done():
                        removed.set_result(None)
            self.nudge()

    async def _remove(self, job_ids: Collection[int]) -> None:
        for pause in (*FINISH_PAUSES, None):
            if not self._tenure.alive():
                return
            try:
                removed = await batches.remove(self._pool, job_ids)
            except psycopg.Error:
                if pause is None:
                    raise
                await asyncio.sleep(pause)
            else:
                for job_id in set(job_ids) - removed:
                    log.info("job %s was given up by another worker", job_id)
                return

    async def _pass_on(self, sessions: Collection[str]) -> None:
        """Tell the others of wakes that a job of this worker was in front of."""
        try:
            await batches.pass_on(self._pool, CHANNEL, sessions)
        except psycopg.Error as error:
            log.info("the others find %d wakes by looking: %s", len(sessions), _reason(error))

    async def _listen(self) -> None:
        while True:
            try:
                async with await psycopg.AsyncConnection.connect(self._conninfo, autocommit=True) as conn:
                    await conn.execute(psycopg.sql.SQL("LISTEN {}").format(psycopg.sql.Identifier(CHANNEL)))
                    self.nudge()
                    while True:
                        async for _ in conn.notifies(timeout=LISTEN_SECONDS):
                            self.nudge()
                        await conn.execute("SELECT 1")
            except (psycopg.Error, OSError) as error:
                log.info("not told of new jobs, only looking for them: %s", " ".join(str(error).split()))
            await asyncio.sleep(RECONNECT_SECONDS)


def queue_app(connector: BaseConnector, manager: Jobs, perform: Perform) -> App:
    """The queue's application with the one task there is: `perform(job_id, session_id)`."""
    app = App(connector=connector)
    app.job_manager = manager

    @app.task(name=TASK, queue=QUEUE, pass_context=True)
    async def run(context: Any, session_id: str) -> None:
        await perform(context.job.id, session_id)

    return app


def _cause(error: BaseException) -> BaseException:
    """What the database said; the queue's own statements wrap it."""
    return error.__cause__ or error if isinstance(error, exceptions.ConnectorException) else error


def _reason(error: BaseException) -> str:
    cause = _cause(error)
    return " ".join(str(cause).split()) or type(cause).__name__
