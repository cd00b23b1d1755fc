"""Who runs a call, and whether that one is still there.

An owner is one open journal of one process. Its id tells people the host and the process.

With a SQLite journal, the owner holds an exclusive lock (flock) on a file of its own in the directory
`<journal>.owners`. The kernel gives the lock back when the process ends, however it ends, so a free lock is
a dead owner, at once and without clocks, in containers that share the directory, too. A stopped process
keeps its lock. Where there is no flock, owners count as gone after `LEASE_SECONDS` without a sign.

With another database, the owner writes the time of the database's clock into its row every
`HEARTBEAT_SECONDS` from a thread, and counts as gone after `LEASE_SECONDS` without. A process that was only
cut off for so long may still be running its function. What it brings then is kept as late, and the result
that others have recorded stands.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import threading
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from sqlalchemy import Connection, delete, extract, func, select, update
from sqlalchemy.dialects import postgresql, sqlite

from perdure.sdk.journal_database import JournalDatabase, now_us
from perdure.sdk.journal_errors import JournalUnavailable
from perdure.sdk.journal_tables import owners

try:
    import fcntl
except ImportError:  # Windows has other locks
    fcntl = None  # type: ignore[assignment]

log = logging.getLogger(__name__)

HEARTBEAT_SECONDS = 3.0
LEASE_SECONDS = 15.0


def new_owner_id() -> str:
    """`host:process:random`, in letters that a file's name may have."""
    host = re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname())[:64] or "host"
    return f"{host}:{os.getpid()}:{uuid.uuid4().hex}"


def told(owner: str) -> str:
    """An owner in words for people."""
    host, process, _ = owner.split(":")
    return f"process {process} on {host}"


class Owner(Protocol):
    """One open journal's presence. `take` makes it known, before its first call is recorded."""

    @property
    def id(self) -> str | None:
        """The owner's id; None before `take` and after `release`."""
        ...

    def take(self) -> str: ...

    def is_alive(self, connection: Connection, owner: str) -> bool: ...

    def clean(self) -> None:
        """Remove the traces of owners that are gone."""
        ...

    def release(self) -> None: ...

    def forget_after_fork(self) -> None: ...


def owner_for(database: JournalDatabase) -> Owner:
    """The kind of presence that fits a database."""
    if database.path is not None and fcntl is not None:
        return LockedFile(database.path.with_name(database.path.name + ".owners"))
    return Heartbeat(database)


class LockedFile:
    """An owner that holds a lock on its own file."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._mutex = threading.Lock()
        self._id: str | None = None
        self._descriptor = -1

    @property
    def id(self) -> str | None:
        """See `Owner`."""
        return self._id

    def take(self) -> str:
        with self._mutex:
            if self._id is None:
                name = new_owner_id()
                self._descriptor = self._lock(self._directory / name)
                self._id = name
            return self._id

    def is_alive(self, connection: Connection, owner: str) -> bool:
        return owner == self._id or not _is_free(self._directory / owner)

    def clean(self) -> None:
        if not self._directory.is_dir():
            return
        for path in self._directory.iterdir():
            if path.name != self._id and _is_free(path):
                path.unlink(missing_ok=True)

    def release(self) -> None:
        with self._mutex:
            if self._id is not None:
                (self._directory / self._id).unlink(missing_ok=True)
                os.close(self._descriptor)
                self._id = None

    def forget_after_fork(self) -> None:
        # The lock belongs to the open file, which parent and child share: only the parent may keep it.
        if self._id is not None:
            os.close(self._descriptor)
        self._id = None
        self._mutex = threading.Lock()

    def _lock(self, path: Path) -> int:
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        while True:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            # A cleaner may have removed the file between the two.
            with suppress(FileNotFoundError):
                if os.stat(path).st_ino == os.fstat(descriptor).st_ino:
                    return descriptor
            os.close(descriptor)


def _is_free(path: Path) -> bool:
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        # Shared, so that two who look at once do not take each other for the owner.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)


class Heartbeat:
    """An owner that writes a sign of life into the database."""

    def __init__(self, database: JournalDatabase) -> None:
        self._database = database
        self._mutex = threading.Lock()
        self._id: str | None = None
        self._ended = threading.Event()

    @property
    def id(self) -> str | None:
        """See `Owner`."""
        return self._id

    def take(self) -> str:
        with self._mutex:
            if self._id is None:
                name = new_owner_id()
                self._database.write(lambda connection: self._beat(connection, name))
                self._id = name
                self._ended = threading.Event()
                threading.Thread(
                    target=self._keep_beating, args=(name, self._ended), name="journal-heartbeat", daemon=True
                ).start()
            return self._id

    def is_alive(self, connection: Connection, owner: str) -> bool:
        if owner == self._id:
            return True
        seen = connection.execute(select(owners.c.seen_us).where(owners.c.id == owner)).scalar()
        return seen is not None and seen > self._now(connection) - int(LEASE_SECONDS * 1e6)

    def clean(self) -> None:
        def remove(connection: Connection) -> None:
            old = self._now(connection) - int(LEASE_SECONDS * 1e6)
            connection.execute(delete(owners).where(owners.c.seen_us < old))

        self._database.write(remove)

    def release(self) -> None:
        with self._mutex:
            name, self._id = self._id, None
            self._ended.set()
        if name is not None:
            try:
                self._database.write(lambda c: c.execute(delete(owners).where(owners.c.id == name)))
            except JournalUnavailable:
                log.warning("The journal was closed without its database; its calls count as gone later.")

    def forget_after_fork(self) -> None:
        # The thread is the parent's alone.
        self._id = None
        self._mutex = threading.Lock()
        self._ended = threading.Event()

    def _keep_beating(self, name: str, ended: threading.Event) -> None:
        while not ended.wait(HEARTBEAT_SECONDS):
            try:
                self._database.write(lambda connection: self._beat(connection, name))
            except JournalUnavailable as error:
                log.warning("No sign of life could be written: %s", error)

    def _beat(self, connection: Connection, name: str) -> None:
        seen = self._now(connection)
        changed = connection.execute(update(owners).where(owners.c.id == name).values(seen_us=seen))
        if changed.rowcount == 0:
            insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
            connection.execute(insert(owners).values(id=name, seen_us=seen).on_conflict_do_nothing())

    def _now(self, connection: Connection) -> int:
        if connection.dialect.name != "postgresql":
            return now_us()
        # All owners by one clock.
        clock = extract("epoch", func.clock_timestamp())
        return int(connection.execute(select(clock)).scalar_one() * 1_000_000)
