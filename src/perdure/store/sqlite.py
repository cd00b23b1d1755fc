"""The store on SQLite: a writer thread with group commit.

Every write of the process goes through one queue. The thread takes what is queued, runs each
operation in a savepoint of one transaction and commits once for all; a waiter gets its result only
after COMMIT. Reads run on their own connections and never wait for a writer (WAL).
"""

from __future__ import annotations

import asyncio
import logging
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import OperationalError

from perdure.config.faults import reach
from perdure.config.metrics import Metrics, StoreMetrics
from perdure.store.connections import control
from perdure.store.engine import DirectoryLock, StoreError, now_us, open_engine, outcome, sqlite_path
from perdure.store.migrate import migrate
from perdure.store.tx import Announcement, Tx

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

BATCH = 256
READERS = 4
# A full disk, a failing one, a lock that is not given back; other errors are mistakes of ours.
UNUSABLE_CODES = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
    }
)


@dataclass(slots=True)
class _Operation:
    name: str
    run: Callable[[Tx], Any]
    future: asyncio.Future[Any]
    result: Any = None
    error: BaseException | None = None
    announcements: Sequence[Announcement] = ()


class SqliteStore:
    """The store on one SQLite file (see the module's text)."""

    def __init__(
        self,
        engine: Engine,
        lock: DirectoryLock,
        announce: Callable[[Announcement], None],
        metrics: StoreMetrics,
    ) -> None:
        self._engine = engine
        self._lock = lock
        self._announce = announce
        self._metrics = metrics
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[_Operation | None] = queue.SimpleQueue()
        self._local = threading.local()
        self._reader_connections: list[Connection] = []
        self._readers = ThreadPoolExecutor(READERS, thread_name_prefix="store-read")
        self._closed = False
        metrics.watch_queue(self._queue.qsize)
        self._writer = threading.Thread(target=self._write_loop, name="store-write", daemon=True)
        self._writer.start()

    @classmethod
    async def open(
        cls, url: str, announce: Callable[[Announcement], None], metrics: StoreMetrics | None = None
    ) -> SqliteStore:
        """Lock, migrate and open the database.

        Raises:
            StoreError: another engine owns it, its schema is newer, or it cannot be opened.
        """
        engine = open_engine(url)
        path = sqlite_path(url)
        assert path is not None
        lock = DirectoryLock(path)
        lock.acquire()
        try:
            migrate(engine)
        except BaseException:
            lock.release()
            raise
        return cls(engine, lock, announce, metrics or Metrics().store)

    async def write(self, operation: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        if self._closed:
            raise StoreError("The store is closed")
        future: asyncio.Future[T] = self._loop.create_future()
        name = operation.__name__
        self._queue.put(_Operation(name, lambda tx: operation(tx, *args, **kwargs), future))
        # A cancelled waiter must not cancel the write: it may have landed, and its events must leave.
        return await outcome(operation.__name__, future)

    async def read(
        self, query: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        try:
            return await self._loop.run_in_executor(
                self._readers, self._read, lambda c: query(c, *args, **kwargs)
            )
        except (sqlite3.OperationalError, OperationalError) as error:
            if _is_unusable(error):
                raise _unusable(error) from error
            raise

    async def close(self) -> None:
        """Finish queued writes, close every connection, release the lock."""
        if self._closed:
            return
        self._closed = True
        self._queue.put(None)
        await self._loop.run_in_executor(None, self._writer.join)
        await asyncio.sleep(0)
        self._readers.shutdown(wait=True)
        for connection in self._reader_connections:
            connection.close()
        self._engine.dispose()
        self._lock.release()

    # ---- reader threads

    def _read(self, query: Callable[[Connection], T]) -> T:
        connection: Connection | None = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._engine.connect()
            self._local.connection = connection
            self._reader_connections.append(connection)
        control(connection, "BEGIN")
        try:
            return query(connection)
        finally:
            control(connection, "COMMIT")

    # ---- the writer thread

    def _write_loop(self) -> None:
        connection = self._engine.connect()
        try:
            stopping = False
            while not stopping:
                first = self._queue.get()
                if first is None:
                    break
                batch = [first]
                while len(batch) < BATCH:
                    try:
                        more = self._queue.get_nowait()
                    except queue.Empty:
                        break
                    if more is None:
                        stopping = True
                        break
                    batch.append(more)
                self._commit(connection, batch)
                self._loop.call_soon_threadsafe(self._deliver, batch)
        finally:
            connection.close()

    def _commit(self, connection: Connection, batch: list[_Operation]) -> None:
        """Run the batch in one transaction; a failed BEGIN or COMMIT fails every member."""
        began = time.perf_counter()
        try:
            control(connection, "BEGIN IMMEDIATE")
            try:
                if len(batch) == 1:
                    self._run_alone(connection, batch[0])
                else:
                    for operation in batch:
                        self._run_in_savepoint(connection, operation)
                for operation in batch:
                    reach(f"{operation.name}:before-commit")
                control(connection, "COMMIT")
                done = sum(operation.error is None for operation in batch)
                self._metrics.committed(done, time.perf_counter() - began)
                for operation in batch:
                    reach(f"{operation.name}:after-commit")
            except BaseException:
                # A full disk has ended the transaction already.
                if connection.connection.driver_connection.in_transaction:  # type: ignore[union-attr]
                    control(connection, "ROLLBACK")
                raise
        except Exception as error:
            alone = len(batch) == 1 and batch[0].error is error
            unusable = _is_unusable(error)
            if unusable or not alone:
                self._metrics.failed(unusable=unusable)
            if not alone and not unusable:
                log.exception("a group commit of %d operations failed", len(batch))
            for operation in batch:
                operation.error = operation.error or error

    def _run_alone(self, connection: Connection, operation: _Operation) -> None:
        tx = Tx(connection, now_us())
        try:
            operation.result = operation.run(tx)
        except BaseException as error:
            operation.error = error
            raise
        operation.announcements = tx.announcements

    def _run_in_savepoint(self, connection: Connection, operation: _Operation) -> None:
        control(connection, "SAVEPOINT operation")
        tx = Tx(connection, now_us())
        try:
            operation.result = operation.run(tx)
        except Exception as error:  # noqa: BLE001 - handed to the operation's own waiter
            operation.error = error
            control(connection, "ROLLBACK TO operation")
        control(connection, "RELEASE operation")
        operation.announcements = tx.announcements

    def _announce_all(self, operation: _Operation) -> None:
        for announcement in operation.announcements:
            try:
                self._announce(announcement)
            except Exception:
                # The rows are committed; a reader that misses this reads them.
                log.exception("announcing a commit of %s failed", operation.name)

    def _deliver(self, batch: list[_Operation]) -> None:
        """On the event loop: announce in commit order, then wake the waiters."""
        for operation in batch:
            if operation.error is None:
                self._announce_all(operation)
            reach(f"{operation.name}:after-announce")
            future = operation.future
            if future.cancelled():
                continue
            if operation.error is not None and _is_unusable(operation.error):
                error = _unusable(operation.error)
                error.__cause__ = operation.error
                future.set_exception(error)
            elif operation.error is not None:
                future.set_exception(operation.error)
            else:
                future.set_result(operation.result)


def _is_unusable(error: BaseException) -> bool:
    """Whether the database cannot do now what is right to ask: full, locked, failing, gone."""
    if isinstance(error, OperationalError) and isinstance(error.orig, sqlite3.OperationalError):
        error = error.orig
    if not isinstance(error, sqlite3.OperationalError):
        return False
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in UNUSABLE_CODES


def _unusable(error: BaseException) -> StoreError:
    log.error("the database cannot be used: %s", error)
    return StoreError(f"The database cannot be used: {error}")
