"""`perdure doctor`: what would keep the server from working, found before it starts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perdure.cli.options import FAILURE, ConfigFile, Database, DataDir
from perdure.cli.tables import print_table

if TYPE_CHECKING:
    from perdure.cli.checkup import Finding


def examine(
    config: ConfigFile = None,
    data_dir: DataDir = None,
    database: Database = None,
    network: Annotated[bool, typer.Option("--network", help="Also call each provider.")] = False,
) -> None:
    """Check configuration, data directory, database, API keys and providers; status 1 if one is wrong."""
    findings = list(_findings(config, data_dir, database, network))
    print_table(
        ("", "Check", "Result"), ((finding.state, finding.subject, finding.text) for finding in findings)
    )
    if any(finding.state == "wrong" for finding in findings):
        raise typer.Exit(FAILURE)


def _findings(
    config: Path | None, data_dir: Path | None, database: str | None, network: bool
) -> Iterator[Finding]:
    from perdure.cli import checkup
    from perdure.config.settings import ConfigError, load_settings

    try:
        settings = load_settings(config, overrides={"data_dir": data_dir, "database": database})
    except ConfigError as error:
        for problem in error.problems:
            yield checkup.Finding("wrong", problem.key, problem.message)
        return
    yield checkup.Finding("ok", "configuration", "every key is known and usable")
    yield checkup.check_data_dir(settings.data_dir)
    yield from checkup.check_database(settings)
    yield from checkup.check_models(settings)
    for provider in settings.providers:
        yield checkup.check_provider(provider)
    if network:
        from perdure.cli.reachability import check_reachability

        yield from check_reachability(settings.providers)
