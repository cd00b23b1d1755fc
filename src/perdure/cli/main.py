"""The `perdure` command. Heavy modules are imported by the commands that need them."""

from __future__ import annotations

from typing import Annotated

import typer

from perdure.cli import db, keys, sessions
from perdure.cli.chain import show_chain
from perdure.cli.configuration import show_configuration
from perdure.cli.diff import show_difference
from perdure.cli.doctor import examine
from perdure.cli.export import export_session
from perdure.cli.options import WRONG_USAGE, Bus, ConfigFile, Database, DataDir, effective_settings, fail
from perdure.cli.path import show_path
from perdure.cli.worker import work

app = typer.Typer(
    name="perdure",
    help="The self-hosted home for long-running AI agents.",
    no_args_is_help=True,
    add_completion=False,
    # A pretty traceback prints local variables, and those hold secrets.
    pretty_exceptions_enable=False,
)


def print_version(wanted: bool) -> None:
    """Print the version and end the command, when asked to."""
    if wanted:
        from importlib.metadata import version

        typer.echo(f"perdure {version('perdure')}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=print_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """The self-hosted home for long-running AI agents."""


@app.command()
def serve(
    host: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Address to listen on [env: PERDURE_SERVER_HOST].")
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(metavar="PORT", help="TCP port, 0 for a free one [env: PERDURE_SERVER_PORT]."),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            metavar="NUMBER",
            help="Processes that run sessions, 0 for none; SQLite takes 1 [env: PERDURE_WORK_WORKERS].",
        ),
    ] = None,
    config: ConfigFile = None,
    data_dir: DataDir = None,
    database: Database = None,
    bus: Bus = None,
) -> None:
    """Run the server until it is told to stop."""
    settings = effective_settings(
        config,
        server__host=host,
        server__port=port,
        work__workers=workers,
        data_dir=data_dir,
        database=database,
        bus=bus,
    )
    from perdure.api.server import run
    from perdure.config.settings import ConfigError

    try:
        status = run(settings)
    except ConfigError as error:
        fail(str(error), WRONG_USAGE)
    raise typer.Exit(status)


@app.command("version")
def show_version() -> None:
    """Print the version."""
    print_version(True)


app.command("worker")(work)
app.command("config")(show_configuration)
app.command("doctor")(examine)
app.command("export")(export_session)
app.command("chain")(show_chain)
app.command("path")(show_path)
app.command("diff")(show_difference)
app.add_typer(keys.commands, name="keys")
app.add_typer(db.commands, name="db")
app.add_typer(sessions.commands, name="sessions")

if __name__ == "__main__":
    app()
