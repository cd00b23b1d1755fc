"""Copies of a SQLite database: made while a server runs, checked, and put back while none does."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from perdure.store.engine import DirectoryLock, StoreError, open_engine, sqlite_path
from perdure.store.migrate import HEAD, current_revision, migrate


def back_up(url: str, target: Path) -> int:
    """Copy the database as it is at one instant, beside a running server; returns the copy's bytes.

    Raises:
        StoreError: there is no database, or `target` exists or cannot be written.
    """
    source = _existing(url)
    if target.exists():
        raise StoreError(f"{target} exists already; name a new file")
    partial = target.with_name(target.name + ".partial")
    try:
        with (
            sqlite3.connect(f"file:{source}?mode=ro", uri=True) as database,
            sqlite3.connect(partial) as copy,
        ):
            database.backup(copy, pages=4096)
            copy.execute("PRAGMA journal_mode=DELETE")
        copy.close()
        database.close()
        descriptor = os.open(partial, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
        partial.chmod(0o600)
        partial.rename(target)
    except (sqlite3.Error, OSError) as error:
        partial.unlink(missing_ok=True)
        raise StoreError(f"The backup could not be written: {error}") from error
    return target.stat().st_size


def restore(url: str, source: Path) -> Path | None:
    """Put a checked copy in the database's place; returns where the old database was moved, if any.

    Raises:
        StoreError: the copy is damaged or of a newer version, or a server runs on the database.
    """
    problems = check(f"sqlite:///{source}")
    if problems:
        raise StoreError(f"{source} cannot be restored: {problems[0]}")
    path = sqlite_path(url)
    assert path is not None
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = DirectoryLock(path)
    lock.acquire()
    try:
        fresh = path.with_name(path.name + ".restoring")
        copy = sqlite3.connect(f"file:{source}?mode=ro", uri=True)
        database = sqlite3.connect(fresh)
        with copy, database:
            copy.backup(database)
        copy.close()
        database.close()
        fresh.chmod(0o600)
        kept = _move_aside(path)
        fresh.rename(path)
        return kept
    finally:
        lock.release()


def check(url: str) -> list[str]:
    """What is wrong with a database, in words; empty when it can be served.

    Looks at the file's integrity, the schema, and the promise that each session's events are numbered
    without a gap up to its last one.
    """
    path = _existing(url)
    try:
        database = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        try:
            found = [row[0] for row in database.execute("PRAGMA integrity_check(10)")]
            if found != ["ok"]:
                return [f"the file is damaged: {line}" for line in found]
            return _schema_problems(database, url) or _event_problems(database)
        finally:
            database.close()
    except sqlite3.DatabaseError as error:
        return [f"{path} is not a perdure database: {error}"]


def upgrade(url: str) -> tuple[str | None, str]:
    """Bring the schema to this version; returns the revisions before and after.

    Raises:
        SchemaTooNew: a newer perdure wrote it.
    """
    engine = open_engine(url)
    try:
        with engine.connect() as conn:
            before = current_revision(conn)
        migrate(engine)
        return before, HEAD
    finally:
        engine.dispose()


def _schema_problems(database: sqlite3.Connection, url: str) -> list[str]:
    tables = {row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if "alembic_version" not in tables or "sessions" not in tables:
        return ["it holds no perdure tables"]
    (revision,) = database.execute("SELECT version_num FROM alembic_version").fetchone()
    if revision > HEAD:
        return [f"a newer perdure wrote it (schema {revision}, this version knows {HEAD})"]
    return [] if revision == HEAD else [f"its schema {revision} is old; run perdure db upgrade on {url}"]


def _event_problems(database: sqlite3.Connection) -> list[str]:
    gaps = database.execute(
        """
        SELECT s.id FROM sessions AS s JOIN (
            SELECT session_id, MAX(seq) AS newest, MIN(seq - json_array_length(entries)) AS before,
                   SUM(json_array_length(entries)) AS held
            FROM events GROUP BY session_id
        ) AS e ON e.session_id = s.id
        WHERE s.deleted_us IS NULL AND (e.newest <> s.seq OR e.newest - e.before <> e.held)
        LIMIT 10
        """
    )
    return [f"the events of session {row[0]} have a gap" for row in gaps]


def _existing(url: str) -> Path:
    path = sqlite_path(url)
    if path is None or not path.exists():
        raise StoreError(f"There is no database at {path or url}")
    return path


def _move_aside(path: Path) -> Path | None:
    """Keep the database that is replaced, with its write-ahead log, under a name of its own."""
    if not path.exists():
        return None
    number = 1
    while (kept := path.with_name(f"{path.name}.replaced-{number}")).exists():
        number += 1
    for suffix in ("", "-wal", "-shm"):
        part = path.with_name(path.name + suffix)
        if part.exists():
            part.rename(kept.with_name(kept.name + suffix))
    return kept
