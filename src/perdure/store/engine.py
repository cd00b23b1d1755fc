"""What a store is, opening its database, and the lock that gives one engine a database file."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from sqlalchemy import URL, Connection, Engine
from sqlalchemy.engine import make_url
from sqlalchemy.exc import OperationalError

from perdure.store.connections import connect_postgres, connect_sqlite, control
from perdure.store.migrate import HEAD, current_revision, migrate
from perdure.store.tx import Tx

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


class StoreError(Exception):
    """The database cannot be used; the message says why and what to do."""


class Store(Protocol):
    """Runs store functions in transactions.

    `write` resolves after COMMIT and re-raises what the function raised, with nothing written. Both
    raise `StoreError` while the database itself cannot be used (a full disk); trying again may work.
    `announce` receives what committed operations announced, in commit order.
    """

    async def write(
        self, operation: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T: ...

    async def read(
        self, query: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T: ...

    async def close(self) -> None: ...


async def outcome(name: str, future: asyncio.Future[T]) -> T:
    """The result of a write. If its waiter is cancelled, the write goes on: it may have landed already."""
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        future.add_done_callback(lambda done: _note_unheard(name, done))
        raise


def _note_unheard(name: str, future: asyncio.Future[T]) -> None:
    error = None if future.cancelled() else future.exception()
    if error is not None:
        log.info("%s failed, which nobody waits for any more: %s", name, type(error).__name__)


def now_us() -> int:
    """The current time in microseconds since the Unix epoch."""
    return time.time_ns() // 1000


def sqlite_path(url: str) -> Path | None:
    """The file behind a SQLite URL; None for an in-memory database."""
    database = make_url(url).database
    return None if database in (None, "", ":memory:") else Path(str(database))


def is_sqlite(url: str) -> bool:
    """Whether the URL names a SQLite file, which one engine owns."""
    return url.startswith("sqlite:")


def open_engine(url: str) -> Engine:
    """An SQLAlchemy engine for a database URL.

    Raises:
        StoreError: the URL is malformed or names a database this version does not serve.
    """
    try:
        parsed = make_url(url)
    except Exception as error:
        raise StoreError("The database URL is not valid") from error
    match parsed.get_backend_name():
        case "sqlite":
            return _open_sqlite(url)
        case "postgresql" | "postgres":
            return _open_postgres(parsed)
        case kind:
            raise StoreError(
                f"Databases of kind '{kind}' are not supported by this version; "
                "use sqlite:///path/to/perdure.db or postgresql://user@host/database"
            )


def _open_sqlite(url: str) -> Engine:
    path = sqlite_path(url)
    if path is None:
        raise StoreError("An in-memory database would lose accepted input; name a file")
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # Conversations are nobody else's to read; SQLite gives its other files the same mode.
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    return connect_sqlite(url)


def _open_postgres(url: URL) -> Engine:
    try:
        return connect_postgres(url)
    except ImportError as error:
        raise StoreError(
            f"PostgreSQL needs packages that are not installed ({error}); pip install 'perdure[postgres]'"
        ) from error


@contextmanager
def open_sync_connection(url: str) -> Iterator[Connection]:
    """One connection in one short write transaction, migrated first; for commands beside a server.

    Raises:
        StoreError, SchemaTooNew: the database cannot be used.
    """
    engine = open_engine(url)
    try:
        if not is_sqlite(url):
            with reachable():
                migrate(engine)
            with reachable(), engine.begin() as conn:
                yield conn
            return
        _migrate_alone(engine, url)
        with engine.connect() as conn:
            control(conn, "BEGIN IMMEDIATE")
            try:
                yield conn
            except BaseException:
                control(conn, "ROLLBACK")
                raise
            control(conn, "COMMIT")
    finally:
        engine.dispose()


@contextmanager
def reachable() -> Iterator[None]:
    """Say in words that a database server cannot be reached or used.

    Raises:
        StoreError: instead of the driver's error.
    """
    try:
        yield
    except OperationalError as error:
        raise StoreError(f"The database cannot be used: {' '.join(str(error.orig).split())}") from error


def _migrate_alone(engine: Engine, url: str) -> None:
    """Bring the schema up to date; an old one that a server is using is left to that server."""
    with engine.connect() as conn:
        if current_revision(conn) == HEAD:
            return
    path = sqlite_path(url)
    assert path is not None
    lock = DirectoryLock(path)
    lock.acquire()
    try:
        migrate(engine)
    finally:
        lock.release()


class DirectoryLock:
    """Only one engine may own a database file; a second one gets a clear error."""

    def __init__(self, database: Path) -> None:
        self._path = database.with_name(database.name + ".lock")
        self._file: int | None = None

    def acquire(self) -> None:
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
            os.close(descriptor)
            raise StoreError(
                f"{self._path.parent} is in use by another perdure server"
                + (f" (process {owner})" if owner else "")
                + ". Stop it, or give this one its own --data-dir."
            ) from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        self._file = descriptor

    def release(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
