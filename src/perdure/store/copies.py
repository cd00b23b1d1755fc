"""Copies of a whole database as a SQLite file, whatever kind of database it is.

The tables are the same on every database, so a copy of one kind can be restored to another: that is
how a server that has outgrown a file moves to PostgreSQL, and back.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection, Engine, func, select, text

from perdure.store.engine import StoreError, open_engine, reachable
from perdure.store.migrate import HEAD, current_revision, migrate
from perdure.store.tables import agents, api_keys, blobs, metadata, sessions, workers

ROWS = 500
# Of a table whose rows may have megabytes each.
FEW_ROWS = 8
# Which processes run is not part of the data.
TABLES = tuple(table for table in metadata.sorted_tables if table is not workers)


def copy_database(url: str, target: Path) -> None:
    """Write the database of a server to a new SQLite file, as it is at one instant.

    Raises:
        StoreError: it cannot be read, or its schema is not this version's.
    """
    source = open_engine(url)
    try:
        with reachable(), _reading(source) as reading:
            require_schema(reading)
            with open_file(target) as writing:
                _copy(reading, writing)
    finally:
        source.dispose()


def restore_database(file: Path, url: str) -> None:
    """Fill an empty database of a server from a SQLite file, in one transaction.

    Raises:
        StoreError: the database holds data already, or cannot be written.
    """
    with tempfile.TemporaryDirectory(prefix="perdure-restore-") as directory:
        # The copy is brought to this version's schema; the file stays as it is.
        fresh = Path(directory) / "copy.db"
        shutil.copyfile(file, fresh)
        engine = open_engine(url)
        try:
            with reachable():
                migrate(engine)
            with open_file(fresh) as reading, reachable(), engine.begin() as writing:
                # Long copies are no idle transactions, and nobody waits for them.
                writing.execute(text("SET LOCAL statement_timeout = 0"))
                writing.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
                _require_empty(writing)
                _copy(reading, writing)
        finally:
            engine.dispose()


def require_schema(conn: Connection) -> None:
    """Raises StoreError for a schema that is not this version's."""
    revision = current_revision(conn)
    if revision is None:
        raise StoreError("The database holds no perdure tables")
    if revision > HEAD:
        raise StoreError(f"A newer perdure wrote the database (schema {revision}, this version knows {HEAD})")
    if revision != HEAD:
        raise StoreError(f"The schema {revision} of the database is old; run perdure db upgrade")


@contextmanager
def open_file(path: Path) -> Iterator[Connection]:
    """One transaction on a SQLite file with this version's schema."""
    engine = open_engine(f"sqlite:///{path}")
    try:
        migrate(engine)
        with engine.connect() as conn:
            conn.exec_driver_sql("PRAGMA journal_mode=DELETE")
            conn.exec_driver_sql("BEGIN IMMEDIATE")
            yield conn
            conn.exec_driver_sql("COMMIT")
    finally:
        engine.dispose()


@contextmanager
def _reading(engine: Engine) -> Iterator[Connection]:
    options = engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
    with options.connect() as conn, conn.begin():
        conn.execute(text("SET LOCAL statement_timeout = 0"))
        conn.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
        yield conn


def _require_empty(conn: Connection) -> None:
    for table in (sessions, agents, api_keys):
        count = conn.execute(select(func.count()).select_from(table)).scalar_one()
        if count:
            raise StoreError(
                f"The database holds data already ({count} rows in {table.name}); restore to an empty one"
            )


def _copy(reading: Connection, writing: Connection) -> None:
    for table in TABLES:
        size = FEW_ROWS if table is blobs else ROWS
        result = reading.execution_options(yield_per=size).execute(select(table))
        for part in result.mappings().partitions():
            writing.execute(table.insert(), [dict(row) for row in part])
