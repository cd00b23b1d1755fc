"""The migrations make exactly the tables that the code declares, on every database, and keep the data."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Connection,
    Engine,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    inspect,
    text,
)

from perdure.store.engine import open_engine
from perdure.store.migrate import HEAD, MIGRATIONS, SchemaTooNew, current_revision, migrate
from perdure.store.tables import metadata


def config() -> Config:
    made = Config()
    made.set_main_option("script_location", str(MIGRATIONS))
    return made


REVISIONS = [script.revision for script in ScriptDirectory.from_config(config()).walk_revisions()][::-1]


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    made = open_engine(database_url)
    yield made
    made.dispose()


def upgrade(engine: Engine, revision: str) -> None:
    with engine.connect() as conn:
        conn.exec_driver_sql("BEGIN")
        settings = config()
        settings.attributes["connection"] = conn
        command.upgrade(settings, revision)
        conn.exec_driver_sql("COMMIT")


def value_for(column: object, kind: object) -> object:
    """A value that a careless conversion would change."""
    match kind:
        case JSON():
            return {"text": "nul \u0000, é, 𝄞", "number": 2**70, "list": [None, 1.5, True]}
        case LargeBinary():
            return b"\x00\xff\x80"
        case Boolean():
            return True
        case BigInteger():
            return 2**53 + 1
        case Integer():
            return 7
        case String(length=int() as most):
            return str(column)[: min(most, 12)]
        case _:
            return str(column)[:12]


def reflected(conn: Connection) -> list[Table]:
    """The tables of the database with the types that the code declares for them."""
    found = []
    for name in inspect(conn).get_table_names():
        if name in metadata.tables:
            there = {column["name"] for column in inspect(conn).get_columns(name)}
            columns = [c._copy() for c in metadata.tables[name].columns if c.name in there]
            found.append(Table(name, MetaData(), *columns))
    return found


def test_the_newest_revision_is_the_one_the_code_expects() -> None:
    assert ScriptDirectory.from_config(config()).get_current_head() == HEAD == REVISIONS[-1]


def test_migrated_and_declared_tables_are_the_same(engine: Engine) -> None:
    migrate(engine)
    with engine.connect() as conn:
        assert compare_metadata(MigrationContext.configure(conn), metadata) == []


@pytest.mark.parametrize("revision", REVISIONS[:-1])
def test_an_upgrade_keeps_every_row(engine: Engine, revision: str) -> None:
    upgrade(engine, revision)
    rows: dict[str, dict[str, object]] = {}
    with engine.begin() as conn:
        if engine.dialect.name == "sqlite":
            conn.exec_driver_sql("BEGIN")
        for table in reflected(conn):
            rows[table.name] = {c.name: value_for(c.name, c.type) for c in table.columns}
            conn.execute(table.insert(), rows[table.name])
        if engine.dialect.name == "sqlite":
            conn.exec_driver_sql("COMMIT")
    assert len(rows) > 8
    migrate(engine)
    with engine.connect() as conn:
        assert current_revision(conn) == HEAD
        for name, row in rows.items():
            kept = conn.execute(metadata.tables[name].select()).mappings().one()
            assert {column: kept[column] for column in row} == row


def test_a_newer_schema_is_refused_and_left_alone(engine: Engine) -> None:
    migrate(engine)
    with engine.begin() as conn:
        conn.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(SchemaTooNew, match="9999"):
        migrate(engine)
    with engine.connect() as conn:
        assert current_revision(conn) == "9999"


def test_servers_that_start_together_migrate_once(postgres_url: str) -> None:
    def start(_: int) -> None:
        engine = open_engine(postgres_url)
        try:
            migrate(engine)
        finally:
            engine.dispose()

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(start, range(4)))
    engine = open_engine(postgres_url)
    with engine.connect() as conn:
        assert conn.execute(text("SELECT count(*) FROM alembic_version")).scalar_one() == 1
    engine.dispose()
