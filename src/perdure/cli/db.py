"""`perdure db`: upgrade, check, back up and restore the database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from perdure.cli.options import ConfigFile, Database, DataDir, effective_settings, fail

commands = typer.Typer(help="Upgrade, check, back up and restore the database.", no_args_is_help=True)

File = Annotated[Path, typer.Argument(metavar="FILE", help="The copy's file.")]


@commands.command("upgrade")
def upgrade_schema(config: ConfigFile = None, data_dir: DataDir = None, database: Database = None) -> None:
    """Bring the schema to this version. A server does the same when it starts."""
    settings = effective_settings(config, data_dir=data_dir, database=database)
    with _explained():
        from perdure.store.backup import upgrade
        from perdure.store.engine import is_sqlite

        before, after = upgrade(settings.database)
        if not is_sqlite(settings.database):
            from perdure.work.queue_schema import prepare_queue

            prepare_queue(settings.database)
    typer.echo(
        f"The schema is {after}." if before == after else f"Upgraded from {before or 'nothing'} to {after}."
    )


@commands.command("check")
def check_database(config: ConfigFile = None, data_dir: DataDir = None, database: Database = None) -> None:
    """Check the file, the schema and the order of events; status 1 if something is wrong."""
    settings = effective_settings(config, data_dir=data_dir, database=database)
    with _explained():
        from perdure.store.backup import check

        problems = check(settings.database)
    if problems:
        fail("\n".join(problems))
    typer.echo("The database is sound.")


@commands.command("backup")
def back_up_database(
    file: File, config: ConfigFile = None, data_dir: DataDir = None, database: Database = None
) -> None:
    """Copy the database as it is at one instant; a server may run meanwhile."""
    settings = effective_settings(config, data_dir=data_dir, database=database)
    with _explained():
        from perdure.store.backup import back_up

        size = back_up(settings.database, file)
    typer.echo(f"Wrote {file} ({size:,} bytes).")


@commands.command("restore")
def restore_database(
    file: File, config: ConfigFile = None, data_dir: DataDir = None, database: Database = None
) -> None:
    """Put a copy in the database's place; no server may run. The replaced database is kept."""
    settings = effective_settings(config, data_dir=data_dir, database=database)
    with _explained():
        from perdure.store.backup import restore

        kept = restore(settings.database, file)
    typer.echo(f"Restored {file}." + (f" The database it replaced is {kept}." if kept else ""))


@contextmanager
def _explained() -> Iterator[None]:
    from perdure.store.engine import StoreError
    from perdure.store.migrate import SchemaTooNew

    try:
        yield
    except (StoreError, SchemaTooNew) as error:
        fail(str(error))
