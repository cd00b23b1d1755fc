"""`perdure chain`: the objects of a session hung on one another by their ids, and what does not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perdure.cli.journals import JournalPlace, with_drift, with_journal
from perdure.cli.options import FAILURE, WRONG_USAGE, AsJson, fail
from perdure.cli.targets import (
    Redact,
    Sources,
    StoreConfig,
    StoreDir,
    StoreUrl,
    Targets,
    Url,
    explained,
)
from perdure.cli.terminal import print_json


def show_chain(
    targets: Targets,
    as_table: Annotated[bool, typer.Option("--table", help="A table instead of a tree.")] = False,
    as_json: AsJson = False,
    check: Annotated[bool, typer.Option("--check", help="Exit with 1 if there is a problem.")] = False,
    ids: Annotated[bool, typer.Option("--ids", help="Show the ids of items, too.")] = False,
    id_pattern: Annotated[
        list[str] | None,
        typer.Option("--id", metavar="REGEX", help="What a business id looks like; repeat it for more."),
    ] = None,
    ledger: Annotated[
        Path | None, typer.Option("--ledger", metavar="FILE", help="The application's ledger of the session.")
    ] = None,
    journal: JournalPlace = None,
    redact: Redact = None,
    url: Url = None,
    config: StoreConfig = None,
    data_dir: StoreDir = None,
    database: StoreUrl = None,
) -> None:
    """Rebuild the chain of a session: agent, turn, call, result, subagent.

    Says what is owed, orphaned, answered twice, dropped or mismatched, and whose reports are missing; of
    several sessions also which look like a second try of another.
    """
    if as_table and as_json:
        fail("Choose one of --table and --json.", WRONG_USAGE)
    if ledger is not None and len(targets) > 1:
        fail("A ledger belongs to one session: name just one with --ledger.", WRONG_USAGE)
    sources = Sources(url, config, data_dir, database, redact)
    with explained():
        from perdure.inspect import build_chain, find_retries
        from perdure.inspect.exports import with_ledger

        exports = [sources.export(target, events="for_subagents") for target in targets]
        if journal is not None:
            exports = [with_journal(sources, export, journal) for export in exports]
        if ledger is not None:
            exports = [with_ledger(exports[0], sources.json(str(ledger)))]
        chains = [build_chain(export, id_patterns=id_pattern or ()) for export in exports]
        if journal is not None:
            chains = [with_drift(chain, export) for chain, export in zip(chains, exports, strict=True)]
        retries = find_retries(exports)
    if as_json:
        print_json(
            {
                "object": "perdure.chain",
                "version": 1,
                "sessions": [chain.document() for chain in chains],
                "findings": [
                    {name: getattr(each, name) for name in each.__dataclass_fields__} for each in retries
                ],
            }
        )
    else:
        from perdure.cli.chain_table import print_table_of
        from perdure.cli.chain_view import print_findings, print_tree

        for chain in chains:
            if as_table:
                print_table_of(chain)
            else:
                print_tree(chain, with_ids=ids)
        print_findings([*(each for chain in chains for each in chain.findings), *retries], len(chains))
    if check and any(each.severity == "problem" for chain in chains for each in (*chain.findings, *retries)):
        raise typer.Exit(FAILURE)
