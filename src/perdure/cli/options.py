"""Options that several commands share, and the settings they lead to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from perdure.config.settings import Settings

ConfigFile = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="Settings file [env: PERDURE_CONFIG].")
]
DataDir = Annotated[
    Path | None, typer.Option("--data-dir", metavar="DIR", help="Data directory [env: PERDURE_DATA_DIR].")
]
Database = Annotated[
    str | None, typer.Option("--database", metavar="URL", help="Database URL [env: PERDURE_DATABASE].")
]
Bus = Annotated[
    str | None,
    typer.Option(
        "--bus", metavar="URL", help="NATS servers between processes of one database [env: PERDURE_BUS]."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

FAILURE = 1
WRONG_USAGE = 2


def effective_settings(config: Path | None, **flags: object) -> Settings:
    """The settings with these flags on top; keys of sections are written `section__key`.

    Ends the command with status 2 and every problem on standard error when they cannot be used.
    """
    from perdure.config.settings import ConfigError, load_settings

    overrides = {name.replace("__", "."): value for name, value in flags.items()}
    try:
        return load_settings(config, overrides=overrides)
    except ConfigError as error:
        fail(str(error), WRONG_USAGE)


def fail(message: str, status: int = FAILURE) -> NoReturn:
    """End the command with a message on standard error."""
    typer.echo(message, err=True)
    raise typer.Exit(status)
