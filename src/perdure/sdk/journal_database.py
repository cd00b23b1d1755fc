"""The journal's database: where it is, how it is opened, and its transactions.

SQLite is opened in WAL mode with `synchronous=FULL`, and every write is one immediate transaction, so that
several processes and threads take turns. PostgreSQL needs psycopg. In both, a write has returned only when
it is durable.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, OperationalError

from perdure.sdk.journal_errors import JournalError, JournalUnavailable
from perdure.sdk.journal_tables import check_version, found_version, upgrade

try:
    import fcntl
except ImportError:  # Windows has other locks
    fcntl = None  # type: ignore[assignment]

log = logging.getLogger(__name__)

T = TypeVar("T")

VARIABLE = "PERDURE_JOURNAL"
BUSY_SECONDS = 30
PAUSES = (0.05, 0.3, 1.0, 2.0)
"""Seconds before a transaction is tried again that lost its connection."""

_POSTGRES = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "application_name": "perdure-journal",
    # A stopped process must not hold its row locks for long.
    "options": "-c idle_in_transaction_session_timeout=10s -c lock_timeout=30s",
}
_UPGRADE_LOCK = 0x7065726A  # any number; every release uses the same


def now_us() -> int:
    """The current time in microseconds since the Unix epoch."""
    return time.time_ns() // 1000


def default_location(environ: Mapping[str, str]) -> str:
    """`PERDURE_JOURNAL`, else `$XDG_DATA_HOME/perdure/journal.db`, else that below `~/.local/share`."""
    if named := environ.get(VARIABLE):
        return named
    base = environ.get("XDG_DATA_HOME", "")
    # The XDG specification says to ignore relative paths.
    home = Path(base) if base.startswith("/") else Path.home() / ".local" / "share"
    return str(home / "perdure" / "journal.db")


class JournalDatabase:
    """Runs functions of one connection in transactions. Safe for threads.

    `path` is the file of a SQLite journal, None for another database; `where` names it in messages, without
    a password.
    """

    def __init__(self, engine: Engine, where: str, path: Path | None) -> None:
        self.where = where
        self.path = path
        self._engine = engine
        self._turns = threading.Lock()

    @classmethod
    def open(cls, location: str | Path, *, read_only: bool = False) -> JournalDatabase:
        """Open a journal by path or database URL; without `read_only` it is made or upgraded if needed.

        Raises:
            JournalError: the location is none, or the tables are of a newer release.
            JournalUnavailable: the database cannot be opened.
        """
        engine, where, path = _engine(location)
        found = cls(engine, where, path)
        try:
            if read_only:
                found._check_readable()
            else:
                found._prepare()
        except BaseException:
            engine.dispose()
            raise
        return found

    @property
    def is_sqlite(self) -> bool:
        return self.path is not None

    def write(self, operation: Callable[[Connection], T]) -> T:
        """Run a function in one write transaction and return what it returns, once that is durable.

        It may run again when the connection was lost, even if its first run was committed: operations
        recognise what they did.

        Raises:
            JournalUnavailable: the database does not answer, is locked or is full. Nothing was written, or
                it cannot be known.
        """
        # Threads that wait here are served at once; those that wait for SQLite's lock sleep and poll.
        with self._turns if self.is_sqlite else nullcontext():
            return self._run(operation, writes=True)

    def read(self, operation: Callable[[Connection], T]) -> T:
        """Run a function that only reads, at one instant of the database.

        Raises:
            JournalUnavailable: the database does not answer.
        """
        return self._run(operation, writes=False)

    def close(self) -> None:
        self._engine.dispose()

    def forget_after_fork(self) -> None:
        """In a forked child: leave the parent's connections alone, and take locks of its own."""
        self._engine.dispose(close=False)
        self._turns = threading.Lock()

    def _run(self, operation: Callable[[Connection], T], *, writes: bool) -> T:
        for pause in (*PAUSES, None):
            try:
                with self._engine.connect() as connection:
                    if writes:
                        connection = connection.execution_options(perdure_write=True)
                    with connection.begin():
                        return operation(connection)
            except DBAPIError as error:
                if not isinstance(error, OperationalError) and not error.connection_invalidated:
                    raise
                if pause is None or not error.connection_invalidated:
                    raise JournalUnavailable(
                        f"The journal {self.where} cannot be used: {error.orig}"
                    ) from error
                log.warning("The journal's database closed the connection; trying again in %s s", pause)
            time.sleep(pause)
        raise AssertionError("the last try returns or raises")

    def _prepare(self) -> None:
        if self.path is not None:
            _make_file(self.path)
        with self._alone():
            # The lock of SQLite is for rows; that of the file also covers the change to WAL mode.
            self.write(self._upgrade)

    def _upgrade(self, connection: Connection) -> None:
        if not self.is_sqlite:
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _UPGRADE_LOCK})
        upgrade(connection, self.where)

    def _check_readable(self) -> None:
        if self.path is not None and not self.path.exists():
            raise JournalError(f"There is no journal {self.where}.")
        found = self.read(found_version)
        if found == 0:
            raise JournalError(f"{self.where} holds no journal.")
        check_version(found, self.where)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if self.path is None or fcntl is None:
            yield
            return
        descriptor = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _engine(location: str | Path) -> tuple[Engine, str, Path | None]:
    if isinstance(location, Path) or "://" not in location:
        return _sqlite(Path(location).expanduser())
    try:
        url = make_url(location)
    except ArgumentError as error:
        raise JournalError("The journal's URL is no database URL.") from error
    match url.get_backend_name():
        case "sqlite":
            if url.database in (None, "", ":memory:") or str(url.database).startswith("file:"):
                raise JournalError("A journal in memory is gone after the crash it is for; name a file.")
            return _sqlite(Path(str(url.database)))
        case "postgresql" | "postgres":
            return _postgres(url)
        case kind:
            raise JournalError(
                f"Journals in databases of kind {kind!r} are not supported; name a file, or a database as "
                "postgresql://user@host/name."
            )


def _sqlite(path: Path) -> tuple[Engine, str, Path]:
    path = path.absolute()
    engine = create_engine(
        URL.create("sqlite", database=str(path)),
        # Statements carry arguments and results; errors end in logs.
        hide_parameters=True,
        connect_args={"timeout": BUSY_SECONDS, "check_same_thread": False},
        pool_size=4,
        max_overflow=16,
    )

    @event.listens_for(engine, "connect")
    def _configure(connection: Any, _record: Any) -> None:
        # The driver's own transaction control is off; BEGIN is ours, below.
        connection.isolation_level = None
        cursor = connection.cursor()
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute("PRAGMA synchronous=FULL")
        cursor.execute(f"PRAGMA busy_timeout={BUSY_SECONDS * 1000}")
        cursor.close()

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get("perdure_write")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine, str(path), path


def _make_file(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Arguments and results are nobody else's to read; SQLite gives its other files the same mode.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise JournalUnavailable(
            f"The journal {path} cannot be opened: {error.strerror or error}."
        ) from error


def _postgres(url: URL) -> tuple[Engine, str, None]:
    try:
        engine = create_engine(
            url.set(drivername="postgresql+psycopg"), hide_parameters=True, connect_args=dict(_POSTGRES)
        )
    except ImportError as error:
        raise JournalError(
            f"A journal in PostgreSQL needs psycopg, which is not installed ({error}); "
            "pip install 'perdure[postgres]'."
        ) from error
    return engine, url.render_as_string(hide_password=True), None
