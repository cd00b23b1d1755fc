"""The job queue's own tables: made when they are missing, brought up to date when they are older.

The queue's package has no record of which of its migrations a database has. Ours is the comment on its
table of jobs: the name of the newest one.
"""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path

from sqlalchemy import Connection, text
from sqlalchemy.engine import make_url

from perdure.store.engine import StoreError, open_engine, reachable

PACKAGE = "procrastinate"
OLDEST, TOO_NEW = (3, 10), (4,)
MARK = "schema of procrastinate, migrations up to "
_FUNCTION = re.compile(r"CREATE (?:OR REPLACE )?FUNCTION (procrastinate_\w+)")


def prepare_queue(url: str) -> None:
    """Make or upgrade the queue's tables; servers that start at the same time wait for the first.

    Raises:
        StoreError: the installed package does not fit, or the tables are not ones it knows.
    """
    check_package(version(PACKAGE))
    engine = open_engine(url)
    try:
        with reachable(), engine.begin() as conn:
            conn.execute(text("SELECT pg_advisory_xact_lock(hashtextextended('perdure queue schema', 0))"))
            _upgrade(conn, make_url(url).database or "")
    finally:
        engine.dispose()


def check_package(installed: str) -> None:
    """Refuse a version of the queue's package that this code was not written for.

    Raises:
        StoreError: it is older or newer.
    """
    numbers = tuple(int(number) for number in re.findall(r"\d+", installed)[:2])
    if not OLDEST <= numbers < TOO_NEW:
        wanted = ".".join(map(str, OLDEST))
        raise StoreError(
            f"PostgreSQL needs {PACKAGE} {wanted} or a newer {OLDEST[0]}.x; {installed} is installed. "
            "pip install 'perdure[postgres]' installs one that fits."
        )


def _upgrade(conn: Connection, database: str) -> None:
    from procrastinate.schema import SchemaManager

    migrations = sorted(Path(SchemaManager.get_migrations_path()).glob("*.sql"))
    newest = migrations[-1].name
    applied = _applied(conn)
    if applied == newest:
        return
    if applied is None and not _exists(conn):
        _run(conn, SchemaManager.get_schema())
    elif applied is None:
        # Somebody else's work: taken as it is if it has all that this version uses.
        missing = set(_FUNCTION.findall(SchemaManager.get_schema())) - _functions(conn)
        if missing:
            raise StoreError(
                f"The database {database!r} has tables of {PACKAGE} of another version (without "
                f"{', '.join(sorted(missing))}). Apply {PACKAGE}'s migrations, or give perdure a database "
                "of its own."
            )
    elif applied not in {migration.name for migration in migrations}:
        raise StoreError(
            f"The database {database!r} has tables of a newer {PACKAGE} (up to {applied}) than the one "
            f"installed, which ends with {newest}. Install the newer one."
        )
    else:
        for migration in migrations:
            if migration.name > applied:
                _run(conn, migration.read_text(encoding="utf-8"))
    _run(conn, f"COMMENT ON TABLE procrastinate_jobs IS '{MARK}{newest}'")


def _exists(conn: Connection) -> bool:
    return conn.execute(text("SELECT to_regclass('procrastinate_jobs')")).scalar_one() is not None


def _applied(conn: Connection) -> str | None:
    """The newest migration that the database is known to have."""
    comment = conn.execute(
        text("SELECT obj_description(to_regclass('procrastinate_jobs'), 'pg_class')")
    ).scalar_one()
    return comment.removeprefix(MARK) if comment is not None and comment.startswith(MARK) else None


def _functions(conn: Connection) -> set[str]:
    found = conn.execute(text("SELECT proname FROM pg_proc WHERE proname LIKE 'procrastinate%'"))
    return {row[0] for row in found}


def _run(conn: Connection, script: str) -> None:
    """Run a script of several statements, which only a query without parameters can be."""
    driver = conn.connection.driver_connection
    driver.execute(script)  # type: ignore[union-attr]
