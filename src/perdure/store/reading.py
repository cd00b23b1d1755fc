"""A look at a database that changes nothing, beside whatever uses it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote

from sqlalchemy import Connection, Engine, create_engine, select
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import NullPool

from perdure.store.engine import StoreError, is_sqlite, open_engine, reachable, sqlite_path
from perdure.store.migrate import HEAD, current_revision
from perdure.store.tables import sessions
from perdure.wire.jsontext import loads


@contextmanager
def open_read_only(url: str) -> Iterator[Connection]:
    """A connection in one read-only transaction, which sees the database as it is at one instant.

    Nothing is created and nothing is migrated.

    Raises:
        StoreError: there is no such database, it is none of perdure, or its schema is of another version.
    """
    engine = _open_file(url) if is_sqlite(url) else _open_server(url)
    try:
        with reachable(), engine.connect() as conn:
            if engine.dialect.name == "sqlite":
                # The driver begins none before a SELECT, and each read would see its own instant.
                conn.exec_driver_sql("BEGIN")
            revision = current_revision(conn)
            if revision is None:
                raise StoreError("It holds no perdure tables")
            if revision != HEAD:
                raise StoreError(
                    f"Its schema is {revision}, and this version reads {HEAD}; run the perdure that "
                    "wrote it, or perdure db upgrade"
                )
            yield conn
    finally:
        engine.dispose()


def project_of(conn: Connection, session_id: str) -> str | None:
    """The project of a session; None when there is no such session, or no longer."""
    found = conn.execute(
        select(sessions.c.project_id).where(sessions.c.id == session_id, sessions.c.deleted_us.is_(None))
    )
    return found.scalar_one_or_none()


def _open_server(url: str) -> Engine:
    return open_engine(url).execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)


def _open_file(url: str) -> Engine:
    try:
        path = sqlite_path(url)
    except ArgumentError as error:
        raise StoreError("The database URL is not valid") from error
    if path is None or not path.is_file():
        raise StoreError(f"There is no database at {path or url}")
    file = f"file:{quote(str(path.absolute()))}?mode=ro"

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(file, uri=True, timeout=10, isolation_level=None, check_same_thread=False)

    # Statements carry what people wrote; errors end in logs.
    return create_engine(
        "sqlite://", creator=connect, poolclass=NullPool, json_deserializer=loads, hide_parameters=True
    )
