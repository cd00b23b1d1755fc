"""`perdure worker`: run sessions of a shared database, without HTTP."""

from __future__ import annotations

from typing import Annotated

import typer

from perdure.cli.options import WRONG_USAGE, Bus, ConfigFile, Database, DataDir, effective_settings, fail


def work(
    concurrency: Annotated[
        int | None,
        typer.Option(metavar="NUMBER", help="Most sessions at once [env: PERDURE_WORK_SESSION_CONCURRENCY]."),
    ] = None,
    config: ConfigFile = None,
    data_dir: DataDir = None,
    database: Database = None,
    bus: Bus = None,
) -> None:
    """Run sessions of a PostgreSQL database, beside servers and other workers, until told to stop."""
    settings = effective_settings(
        config, work__session_concurrency=concurrency, data_dir=data_dir, database=database, bus=bus
    )
    from perdure.api.worker import run
    from perdure.config.settings import ConfigError

    try:
        status = run(settings)
    except ConfigError as error:
        fail(str(error), WRONG_USAGE)
    raise typer.Exit(status)
