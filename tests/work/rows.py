"""A PostgreSQL database of perdure without any process: its rows, written by the store's own functions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

from sqlalchemy import Engine, text
from tests.conformance.watch import until

from perdure.store.accept import accept_once
from perdure.store.claims import claim
from perdure.store.engine import now_us, open_engine
from perdure.store.migrate import migrate
from perdure.store.sessions import create_session, resolve_settings
from perdure.store.steps import Spent, commit_step
from perdure.store.tx import Tx, Woken
from perdure.wire.ids import new_id
from perdure.wire.inputs import EventBatch
from perdure.wire.sessions import SessionCreate
from perdure.work.queue import enqueue
from perdure.work.queue_schema import prepare_queue

PROJECT = "default"
T = TypeVar("T")


class Rows:
    """The database behind a URL, with the queue's tables."""

    def __init__(self, url: str) -> None:
        self.engine: Engine = open_engine(url)
        migrate(self.engine)
        prepare_queue(url)

    @contextmanager
    def tx(self) -> Iterator[Tx]:
        """A transaction that ends like one of the store: its wakes are enqueued before the commit."""
        with self.engine.begin() as conn:
            tx = Tx(conn, now_us())
            yield tx
            for session_id in {said.session_id for said in tx.announcements if isinstance(said, Woken)}:
                enqueue(conn, session_id)

    def do(self, operation: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        with self.tx() as tx:
            return operation(tx, *args, **kwargs)

    def ask(self, query: str, **values: Any) -> list[tuple[Any, ...]]:
        with self.engine.connect() as conn:
            return [tuple(row) for row in conn.execute(text(query), values)]

    def create(self) -> str:
        """A session whose first turn is queued, with the job for it."""
        body = {"agent": {"model": "m"}, "environment": {"type": "none"}, "input": "Hello."}
        create = SessionCreate.model_validate(body)
        session_id = new_id("sess")
        with self.tx() as tx:
            name, settings = resolve_settings(tx.conn, PROJECT, create)
            create_session(tx, session_id, PROJECT, create, name, settings)
        return session_id

    def create_idle(self) -> str:
        """A session whose first turn has ended, without any job."""
        session_id = self.create()
        with self.tx() as tx:
            boundary = claim(tx, session_id, owner="worker_0")
            assert boundary is not None
            assert boundary.turn is not None
            commit_step(tx, boundary.lease, boundary.turn.id, 0, [], Spent(None, 0), ending="completed")
            tx.conn.execute(text("DELETE FROM procrastinate_jobs WHERE lock = :id"), {"id": session_id})
        return session_id

    def jobs(self) -> list[tuple[str, str]]:
        """The jobs as status and session, in the order they came."""
        return [
            (status, lock)
            for status, lock in self.ask("SELECT status, lock FROM procrastinate_jobs ORDER BY id")
        ]

    def register(self) -> int:
        """A worker that the queue knows, and nobody else."""
        with self.engine.begin() as conn:
            return int(
                conn.execute(text("SELECT worker_id FROM procrastinate_register_worker_v1()")).scalar_one()
            )

    def fetch(self, worker: int) -> int | None:
        """The id of the next job, which is then being done by the worker."""
        with self.engine.begin() as conn:
            fetched = text("SELECT (procrastinate_fetch_job_v2(ARRAY['perdure'], :worker)).id")
            return conn.execute(fetched, {"worker": worker}).scalar_one()

    def finish(self, job_id: int) -> None:
        """The job is done."""
        with self.engine.begin() as conn:
            conn.execute(text("SELECT procrastinate_finish_job_v1(:id, 'succeeded', true)"), {"id": job_id})

    def until_blocked(self, waiting: int = 1) -> None:
        """Return once so many connections wait for a lock that another one holds."""
        query = "SELECT count(*) FROM pg_stat_activity WHERE cardinality(pg_blocking_pids(pid)) > 0"
        until(lambda: self.ask(query)[0][0], lambda count: count >= waiting)


def say(tx: Tx, session_id: str, said: str) -> None:
    """Accept a message for a session."""
    accept(tx, session_id, {"type": "agent.session.input.message", "input": [_message(said)]})


def cancel(tx: Tx, session_id: str) -> None:
    """Accept a cancel."""
    accept(tx, session_id, {"type": "agent.session.input.cancel"})


def accept(tx: Tx, session_id: str, event: dict[str, Any]) -> None:
    batch = EventBatch.model_validate({"events": [event]})
    accept_once(tx, None, session_id, PROJECT, batch.events)


def on_thread(do: Callable[[], T]) -> Future[T]:
    """Begin something that may have to wait for another transaction."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(do())
        except BaseException as error:  # noqa: BLE001 - told to whoever asks
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def _message(said: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": said}]}
