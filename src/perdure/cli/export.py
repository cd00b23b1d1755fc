"""`perdure export`: everything that can be read of a session, as one JSON file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from perdure.cli.journals import JournalPlace, with_journal
from perdure.cli.options import fail
from perdure.cli.targets import (
    TROUBLE,
    Redact,
    Sources,
    StoreConfig,
    StoreDir,
    StoreUrl,
    Target,
    Url,
    explained,
)


def export_session(
    session: Target,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write here; default: stdout.")
    ] = None,
    events: Annotated[
        bool, typer.Option("--events", help="With the stored events, which only perdure has.")
    ] = False,
    ledger: Annotated[
        Path | None, typer.Option("--ledger", metavar="FILE", help="Put this ledger into the export.")
    ] = None,
    journal: JournalPlace = None,
    redact: Redact = None,
    url: Url = None,
    config: StoreConfig = None,
    data_dir: StoreDir = None,
    database: StoreUrl = None,
) -> None:
    """Write a session with its turns, items and subagents as one JSON document."""
    sources = Sources(url, config, data_dir, database, redact)
    with explained():
        from perdure.inspect.exports import with_ledger
        from perdure.inspect.jsontext import dump

        found = sources.export(session, events=events)
        if journal is not None:
            found = with_journal(sources, found, journal)
        if ledger is not None:
            found = with_ledger(found, sources.json(str(ledger)))
        text = dump(found.document(), indent=2) + "\n"
    if not found.settled:
        typer.echo("The session changed while it was read; export it again when it rests.", err=True)
    if output is None:
        typer.echo(text, nl=False)
        return
    try:
        _write(output, text)
    except OSError as error:
        fail(f"{output} cannot be written: {error.strerror or error}", TROUBLE)
    turns, items = (
        sum(len(getattr(thread, name)) for thread in found.threads) for name in ("turns", "items")
    )
    agents = f" of the main agent and {len(found.subagents)} subagents" if found.subagents else ""
    typer.echo(f"Wrote {output}: {turns} turns, {items} items{agents}.", err=True)


def _write(path: Path, text: str) -> None:
    """Write a new file that only its owner can read, as conversations are nobody else's."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
