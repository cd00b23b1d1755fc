"""Bringing a database to this version's schema, and refusing one that is newer."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, Engine, inspect, text

# The newest revision in migrations/versions; a test keeps it true.
HEAD = "0006"
MIGRATIONS = Path(__file__).parent / "migrations"


class SchemaTooNew(Exception):
    """The database was written by a newer perdure."""


def current_revision(conn: Connection) -> str | None:
    """The schema revision of the database, or None for an empty one."""
    if not inspect(conn).has_table("alembic_version"):
        return None
    row = conn.execute(text("SELECT version_num FROM alembic_version")).first()
    return None if row is None else str(row[0])


def migrate(engine: Engine) -> None:
    """Upgrade to `HEAD`; a no-op that imports no migration code when the schema is current.

    Raises:
        SchemaTooNew: this version does not know the database's revision.
    """
    with engine.connect() as conn:
        revision = current_revision(conn)
        conn.rollback()
    if revision == HEAD:
        return
    from alembic import command
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    if revision is not None and revision not in {
        script.revision for script in ScriptDirectory.from_config(config).walk_revisions()
    }:
        raise SchemaTooNew(
            f"The database has schema revision {revision}, which this version (newest {HEAD}) does not "
            "know. Run the perdure that wrote it, or a newer one."
        )
    if engine.dialect.name == "sqlite":
        with engine.connect() as conn:
            conn.exec_driver_sql("BEGIN IMMEDIATE")
            config.attributes["connection"] = conn
            command.upgrade(config, "head")
            conn.exec_driver_sql("COMMIT")
        return
    with engine.begin() as conn:
        # Servers that start at the same time: the first one migrates, the others find it done.
        conn.execute(text("SELECT pg_advisory_xact_lock(hashtextextended('perdure schema', 0))"))
        config.attributes["connection"] = conn
        command.upgrade(config, "head")
