"""The job queue's manager as a worker of ours needs it: it survives the database and knows one tenure.

The queue's own worker ends when a query fails, polls slowly for a job that became free, and takes its own
heartbeat for the sign of life. Here every query that fails is tried again in the next round, a finished
job is followed by a look for the next one, and liveness is the tenure's alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any

import psycopg
from procrastinate import App, exceptions, jobs
from procrastinate.connector import BaseConnector
from procrastinate.manager import JobManager, NotificationCallback, get_channel_for_queues

from perdure.work.liveness import Tenure
from perdure.work.queue import QUEUE, TASK

log = logging.getLogger(__name__)

CHANNEL = next(iter(get_channel_for_queues([QUEUE])))
LISTEN_SECONDS = 30.0
RECONNECT_SECONDS = 1.0
FINISH_PAUSES = (0.1, 0.5, 2.0)
# Tells the others of a wake that the finished job was in front of.
_PASS_ON = (
    "SELECT pg_notify(%s, json_build_object('type', 'job_inserted', 'job_id', max(id))::text) "
    "FROM procrastinate_jobs WHERE lock = %s AND status = 'todo' HAVING count(*) > 0"
)

Perform = Callable[[int, str], Any]


class Jobs(JobManager):
    """The manager of one tenure (see the module's text)."""

    def __init__(self, connector: BaseConnector, conninfo: str, tenure: Tenure) -> None:
        super().__init__(connector)
        self.registered = asyncio.Event()
        self._conninfo = conninfo
        self._tenure = tenure
        self._news = asyncio.Event()
        self._asked = False
        self._draining = False

    def nudge(self) -> None:
        """There may be a job to fetch."""
        self._asked = True
        self._news.set()

    def drain(self) -> None:
        """Fetch nothing more; what a finished job was in front of is for others."""
        self._draining = True

    # ---- what the queue's worker calls

    async def register_worker(self) -> int:
        """The number of the tenure, which is registered already."""
        self.registered.set()
        return self._tenure.number

    async def unregister_worker(self, worker_id: int) -> None:
        """Nothing: the tenure ends by itself."""

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
            self._asked = False
            try:
                job = await super().fetch_job(queues, worker_id)
            except exceptions.ConnectorException as error:
                if isinstance(error.__cause__, psycopg.errors.ForeignKeyViolation):
                    # The queue has forgotten this worker.
                    self._tenure.end()
                log.warning("no job can be fetched: %s", _reason(error))
                return None
            # The queue's worker forgets what it was told while it fetched.
            if job is not None or not self._asked:
                return job
        return None

    async def finish_job(self, job: jobs.Job, status: jobs.Status, delete_job: bool) -> None:
        """Remove a finished job and see to the wake behind it; otherwise the sweep finds it."""
        for pause in (*FINISH_PAUSES, None):
            if not self._tenure.alive():
                return
            try:
                await super().finish_job(job, status, delete_job)
                break
            except exceptions.ConnectorException as error:
                if isinstance(error.__cause__, psycopg.errors.RaiseException):
                    log.info("job %s was given up by another worker", job.id)
                    break
                if pause is None:
                    log.warning("job %s cannot be finished now: %s", job.id, _reason(error))
                    return
                await asyncio.sleep(pause)
        if self._draining:
            await self._pass_on(job.lock)
        else:
            self.nudge()

    async def listen_for_jobs(
        self, *, on_notification: NotificationCallback, queues: Iterable[str] | None = None
    ) -> None:
        """Tell the queue's worker of new jobs, from the database and from this process; never ends."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._listen())
            while True:
                await self._news.wait()
                self._news.clear()
                await on_notification(channel=CHANNEL, notification={"type": "job_inserted", "job_id": 0})

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

    async def _pass_on(self, lock: str | None) -> None:
        try:
            pool = self.connector.pool  # type: ignore[attr-defined]
            async with pool.connection() as conn:
                await conn.execute(_PASS_ON, (CHANNEL, lock))
        except psycopg.Error as error:
            log.info("the others find the wake of %s by looking: %s", lock, " ".join(str(error).split()))


def queue_app(connector: BaseConnector, manager: Jobs, perform: Perform) -> App:
    """The queue's application with the one task there is: `perform(job_id, session_id)`."""
    app = App(connector=connector)
    app.job_manager = manager

    @app.task(name=TASK, queue=QUEUE, pass_context=True)
    async def run(context: Any, session_id: str) -> None:
        await perform(context.job.id, session_id)

    return app


def _reason(error: BaseException) -> str:
    cause = error.__cause__ or error
    return " ".join(str(cause).split()) or type(cause).__name__
