"""The migrations make exactly the tables that the code declares."""

from __future__ import annotations

from pathlib import Path

from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from perdure.store.engine import open_engine
from perdure.store.migrate import HEAD, MIGRATIONS, migrate
from perdure.store.tables import metadata


def test_the_newest_revision_is_the_one_the_code_expects() -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    assert ScriptDirectory.from_config(config).get_current_head() == HEAD


def test_migrated_and_declared_tables_are_the_same(tmp_path: Path) -> None:
    engine = open_engine(f"sqlite:///{tmp_path}/m.db")
    migrate(engine)
    with engine.connect() as conn:
        assert compare_metadata(MigrationContext.configure(conn), metadata) == []
    engine.dispose()
