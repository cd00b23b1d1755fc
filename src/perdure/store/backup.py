"""Backups of a database: made while servers run, checked, and put back while none does."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from sqlalchemy import text

from perdure.store.copies import copy_database, require_schema, restore_database
from perdure.store.engine import (
    DirectoryLock,
    StoreError,
    is_sqlite,
    open_engine,
    reachable,
    sqlite_path,
)
from perdure.store.migrate import HEAD, current_revision, migrate


def back_up(url: str, target: Path) -> int:
    """Copy the database as it is at one instant, beside a running server; returns the copy's bytes.

    Raises:
        StoreError: there is no database, or `target` exists or cannot be written.
    """
    if target.exists():
        raise StoreError(f"{target} exists already; name a new file")
    partial = target.with_name(target.name + ".partial")
    try:
        if is_sqlite(url):
            _copy_file(_existing(url), partial)
        else:
            partial.unlink(missing_ok=True)
            copy_database(url, partial)
        descriptor = os.open(partial, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
        partial.chmod(0o600)
        partial.rename(target)
    except StoreError:
        partial.unlink(missing_ok=True)
        raise
    except (sqlite3.Error, OSError) as error:
        partial.unlink(missing_ok=True)
        raise StoreError(f"The backup could not be written: {error}") from error
    return target.stat().st_size


def _copy_file(source: Path, target: Path) -> None:
    with (
        sqlite3.connect(f"file:{source}?mode=ro", uri=True) as database,
        sqlite3.connect(target) as copy,
    ):
        database.backup(copy, pages=4096)
        copy.execute("PRAGMA journal_mode=DELETE")
    copy.close()
    database.close()


def restore(url: str, source: Path) -> Path | None:
    """Put a checked copy in the database's place; returns where the old database was moved, if any.

    A database on a server is filled, and has to be empty.

    Raises:
        StoreError: the copy is damaged or of a newer version, or a server runs on the database.
    """
    problems = _check_file(source, outdated_is_fine=True)
    if problems:
        raise StoreError(f"{source} cannot be restored: {problems[0]}")
    if not is_sqlite(url):
        restore_database(source, url)
        return None
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
    if is_sqlite(url):
        return _check_file(_existing(url))
    engine = open_engine(url)
    try:
        with reachable(), engine.connect() as conn:
            try:
                require_schema(conn)
            except StoreError as error:
                return [str(error)]
            return _gaps([row[0] for row in conn.execute(text(GAPS))])
    finally:
        engine.dispose()


def _check_file(path: Path, *, outdated_is_fine: bool = False) -> list[str]:
    try:
        database = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        try:
            found = [row[0] for row in database.execute("PRAGMA integrity_check(10)")]
            if found != ["ok"]:
                return [f"the file is damaged: {line}" for line in found]
            problems = _schema_problems(database, path, outdated_is_fine)
            return problems or _gaps([row[0] for row in database.execute(GAPS)])
        finally:
            database.close()
    except sqlite3.DatabaseError as error:
        return [f"{path} is not a perdure database: {error}"]


def upgrade(url: str) -> tuple[str | None, str]:
    """Bring the schema to this version; returns the revisions before and after.

    Raises:
        StoreError, SchemaTooNew: it cannot be reached, or a newer perdure wrote it.
    """
    engine = open_engine(url)
    try:
        with reachable():
            with engine.connect() as conn:
                before = current_revision(conn)
            migrate(engine)
        return before, HEAD
    finally:
        engine.dispose()


def _schema_problems(database: sqlite3.Connection, path: Path, outdated_is_fine: bool) -> list[str]:
    tables = {row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if "alembic_version" not in tables or "sessions" not in tables:
        return ["it holds no perdure tables"]
    (revision,) = database.execute("SELECT version_num FROM alembic_version").fetchone()
    if revision > HEAD:
        return [f"a newer perdure wrote it (schema {revision}, this version knows {HEAD})"]
    if revision == HEAD or outdated_is_fine:
        return []
    return [f"its schema {revision} is old; run perdure db upgrade on {path}"]


# Sessions whose stored events are not numbered without a gap up to the last one.
GAPS = """
    SELECT s.id FROM sessions AS s JOIN (
        SELECT session_id, MAX(seq) AS newest, MIN(seq - json_array_length(entries)) AS before,
               SUM(json_array_length(entries)) AS held
        FROM events GROUP BY session_id
    ) AS e ON e.session_id = s.id
    WHERE s.deleted_us IS NULL AND (e.newest <> s.seq OR e.newest - e.before <> e.held)
    LIMIT 10
"""


def _gaps(session_ids: list[str]) -> list[str]:
    return [f"the events of session {session_id} have a gap" for session_id in session_ids]


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
