"""The store on PostgreSQL: a bounded number of threads, each with a connection of its own.

A connection is in a transaction only while an operation runs, so none is held while a model, a tool
or a reader is waited for. An operation's statements leave in a pipeline; its wakes are enqueued in its
transaction. Transactions of one session follow each other under its row lock, and what they announce
leaves in that order: each takes a ticket while it holds its locks, and announcements are delivered by
ticket.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, TypeVar

import psycopg
from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError

from perdure.config.faults import reach
from perdure.config.metrics import Metrics, StoreMetrics
from perdure.store.engine import StoreError, now_us, open_engine, outcome, reachable
from perdure.store.migrate import migrate
from perdure.store.tx import Announcement, Tx, Woken

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

Enqueue = Callable[[Connection, str], None]

ATTEMPTS = 8
# deadlock_detected, serialization_failure: the transaction is gone, and trying again is right.
REPEATABLE_CODES = frozenset({"40P01", "40001"})
# A standby, a transaction that was idle for too long; other internal errors are mistakes of ours.
UNUSABLE_CODES = frozenset({"25006", "25P03"})


@dataclass(slots=True)
class _Operation:
    name: str
    run: Callable[[Tx], Any]
    future: asyncio.Future[Any]
    result: Any = None
    error: BaseException | None = None
    announcements: Sequence[Announcement] = ()


@dataclass(slots=True)
class _Ticket:
    operation: _Operation | None = None
    settled: bool = False


class _Order:
    """Delivers operations in the order of their tickets, whichever thread commits first."""

    def __init__(self, deliver: Callable[[list[_Operation]], None]) -> None:
        self._deliver = deliver
        self._lock = threading.Lock()
        self._tickets: deque[_Ticket] = deque()

    def take(self) -> _Ticket:
        ticket = _Ticket()
        with self._lock:
            self._tickets.append(ticket)
        return ticket

    def settle(self, ticket: _Ticket, operation: _Operation | None) -> None:
        """The transaction of the ticket has ended; None: not by a commit."""
        with self._lock:
            ticket.operation, ticket.settled = operation, True
            ready: list[_Operation] = []
            while self._tickets and self._tickets[0].settled:
                first = self._tickets.popleft().operation
                if first is not None:
                    ready.append(first)
            # Under the lock, or two threads could hand over in the wrong order.
            if ready:
                self._deliver(ready)


class PostgresStore:
    """The store on a PostgreSQL database (see the module's text)."""

    def __init__(
        self,
        engine: Engine,
        announce: Callable[[Announcement], None],
        enqueue: Enqueue | None,
        connections: int,
        metrics: StoreMetrics,
    ) -> None:
        self._engine = engine
        self._announce = announce
        self._enqueue = enqueue
        self._loop = asyncio.get_running_loop()
        self._order = _Order(lambda ready: self._call_loop(self._deliver, ready))
        self._local = threading.local()
        self._open: set[Connection] = set()
        readers = max(1, connections * 2 // 5)
        self._readers = ThreadPoolExecutor(readers, thread_name_prefix="store-read")
        self._writers = ThreadPoolExecutor(max(1, connections - readers), thread_name_prefix="store-write")
        self._closed = False
        self._metrics = metrics
        metrics.watch_queue(self._writers._work_queue.qsize)

    @classmethod
    async def open(
        cls,
        url: str,
        announce: Callable[[Announcement], None],
        *,
        enqueue: Enqueue | None = None,
        connections: int = 10,
        metrics: StoreMetrics | None = None,
    ) -> PostgresStore:
        """Migrate and open the database.

        Args:
            enqueue: called in the transaction of each wake, before it commits.
            connections: the most that are open at once.

        Raises:
            StoreError, SchemaTooNew: it cannot be reached, or a newer version wrote it.
        """
        engine = open_engine(url)

        def prepare() -> None:
            with reachable():
                migrate(engine)

        await asyncio.to_thread(prepare)
        return cls(engine, announce, enqueue, connections, metrics or Metrics().store)

    async def write(self, operation: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        if self._closed:
            raise StoreError("The store is closed")
        future: asyncio.Future[T] = self._loop.create_future()
        queued = _Operation(operation.__name__, lambda tx: operation(tx, *args, **kwargs), future)
        self._writers.submit(self._perform, queued)
        # A cancelled waiter must not cancel the write: it may have landed, and its events must leave.
        return await outcome(operation.__name__, future)

    async def read(
        self, query: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        if self._closed:
            raise StoreError("The store is closed")
        return await self._loop.run_in_executor(
            self._readers, self._look, lambda c: query(c, *args, **kwargs)
        )

    async def close(self) -> None:
        """Finish queued writes and close every connection."""
        if self._closed:
            return
        self._closed = True
        await asyncio.to_thread(self._writers.shutdown)
        await asyncio.sleep(0)
        await asyncio.to_thread(self._readers.shutdown)
        for connection in tuple(self._open):
            connection.close()
        self._engine.dispose()

    # ---- in threads

    def _look(self, query: Callable[[Connection], T]) -> T:
        """Run a query in a transaction that sees one state of the database."""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                connection = self._connection(isolation_level="REPEATABLE READ", postgresql_readonly=True)
                with _driver(connection).pipeline(), connection.begin():
                    return query(connection)
            except (psycopg.Error, DBAPIError) as error:
                if self._settles(error, attempt, stale=attempt == 1):
                    raise self._said(error) from error
        raise AssertionError("the last attempt settles")

    def _perform(self, operation: _Operation) -> None:
        for attempt in range(1, ATTEMPTS + 1):
            ticket: _Ticket | None = None
            committing = False
            began = time.perf_counter()
            try:
                connection = self._connection()
                with _driver(connection).pipeline(), connection.begin():
                    tx = Tx(connection, now_us())
                    operation.result = operation.run(tx)
                    if self._enqueue is not None:
                        for session_id in {a.session_id for a in tx.announcements if isinstance(a, Woken)}:
                            self._enqueue(connection, session_id)
                    reach(f"{operation.name}:before-commit")
                    if tx.announcements:
                        ticket = self._order.take()
                    committing = True
                self._metrics.committed(1, time.perf_counter() - began)
                reach(f"{operation.name}:after-commit")
                operation.announcements = tx.announcements
                break
            except BaseException as error:  # noqa: BLE001 - handed to the operation's own waiter
                if ticket is not None:
                    self._order.settle(ticket, None)
                    ticket = None
                if self._settles(error, attempt, stale=attempt == 1 and not committing):
                    operation.error = self._said(error)
                    if isinstance(operation.error, StoreError | psycopg.Error | DBAPIError):
                        self._metrics.failed(unusable=isinstance(operation.error, StoreError))
                    break
        if ticket is not None:
            self._order.settle(ticket, operation)
        else:
            self._call_loop(self._deliver, [operation])

    def _connection(self, **options: Any) -> Connection:
        """The thread's own connection."""
        connection: Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._engine.connect().execution_options(**options)
            self._local.connection = connection
            self._open.add(connection)
        return connection

    def _settles(self, error: BaseException, attempt: int, *, stale: bool) -> bool:
        """Whether an error is the outcome; otherwise the transaction is gone and is to be run again.

        stale: the connection may have been closed long ago, and nothing was committed.
        """
        code = _code(error)
        broken = self._clear()
        if attempt == ATTEMPTS or not (code in REPEATABLE_CODES or (broken and stale)):
            return True
        if not broken:
            time.sleep(random.uniform(0.0, 0.005) * 2**attempt)
        return False

    def _clear(self) -> bool:
        """Leave the thread's connection idle; a broken one is given up, and said to be."""
        connection: Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            return False
        if not connection.invalidated and not _driver(connection).closed:
            try:
                # An error that comes with the answer to COMMIT leaves the transaction open in a pipeline.
                _driver(connection).rollback()
            except psycopg.Error as error:
                log.info("giving a connection up: %s", error)
            else:
                return False
        self._local.connection = None
        self._open.discard(connection)
        connection.invalidate()
        connection.close()
        return True

    def _said(self, error: BaseException) -> BaseException:
        """What the caller is told: an unusable database in words, everything else as it is."""
        cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
        unusable = isinstance(cause, psycopg.OperationalError | psycopg.InterfaceError)
        if not unusable and _code(error) not in UNUSABLE_CODES:
            return error
        text = " ".join(str(cause).split())
        log.error("the database cannot be used: %s", text)
        said = StoreError(f"The database cannot be used: {text}")
        said.__cause__ = error
        return said

    # ---- on the event loop

    def _call_loop(self, function: Callable[..., None], *args: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *args)
        except RuntimeError:
            log.warning("a commit ended after its event loop")

    def _deliver(self, ready: list[_Operation]) -> None:
        """Announce in commit order, then wake the waiters."""
        for operation in ready:
            for announcement in operation.announcements if operation.error is None else ():
                try:
                    self._announce(announcement)
                except Exception:
                    # The rows are committed; a reader that misses this reads them.
                    log.exception("announcing a commit of %s failed", operation.name)
            reach(f"{operation.name}:after-announce")
            future = operation.future
            if future.cancelled():
                continue
            if operation.error is not None:
                future.set_exception(operation.error)
            else:
                future.set_result(operation.result)


def _driver(connection: Connection) -> psycopg.Connection[Any]:
    driver = connection.connection.driver_connection
    assert isinstance(driver, psycopg.Connection)
    return driver


def _code(error: BaseException) -> str | None:
    cause = error.orig if isinstance(error, DBAPIError) else error
    return cause.sqlstate if isinstance(cause, psycopg.Error) else None
