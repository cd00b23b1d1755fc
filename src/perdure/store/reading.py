"""A look at a database that changes nothing, beside whatever uses it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

from sqlalchemy import Connection, Engine, create_engine, select
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import NullPool

from perdure.store.engine import StoreError, sqlite_path
from perdure.store.migrate import HEAD, current_revision
from perdure.store.tables import sessions
from perdure.wire.jsontext import dumps, loads


@contextmanager
def open_read_only(url: str) -> Iterator[Connection]:
    """A connection in one read-only transaction, which sees the database as it is at one instant.

    Nothing is created and nothing is migrated.

    Raises:
        StoreError: there is no such database, it is none of perdure, or its schema is of another version.
    """
    engine = _read_only_engine(url)
    try:
        with engine.connect() as conn:
            revision = current_revision(conn)
            if revision is None:
                raise StoreError("it holds no perdure tables")
            if revision != HEAD:
                raise StoreError(
                    f"its schema is {revision}, and this version reads {HEAD}; run the perdure that wrote it, "
                    "or perdure db upgrade"
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


def _read_only_engine(url: str) -> Engine:
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise StoreError(f"the URL is not valid: {error}") from error
    settings: dict[str, Any] = {
        "poolclass": NullPool,
        "json_serializer": lambda value: dumps(value).decode(),
        "json_deserializer": loads,
        # Statements carry what people wrote; errors end in logs.
        "hide_parameters": True,
    }
    match parsed.get_backend_name():
        case "sqlite":
            path = sqlite_path(url)
            if path is None or not path.is_file():
                raise StoreError(f"there is no database at {path or url}")
            return create_engine("sqlite://", creator=lambda: _open_file(str(path.absolute())), **settings)
        case "postgresql":
            engine = create_engine(
                parsed.set(drivername="postgresql+psycopg"), isolation_level="REPEATABLE READ", **settings
            )
            return engine.execution_options(postgresql_readonly=True)
        case other:
            raise StoreError(f"databases of kind '{other}' are not supported by this version")


def _open_file(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"file:{quote(path)}?mode=ro", uri=True, timeout=10, isolation_level=None, check_same_thread=False
    )
    # The driver begins no transaction before a SELECT; without one, each read would see its own instant.
    connection.execute("BEGIN")
    return connection
