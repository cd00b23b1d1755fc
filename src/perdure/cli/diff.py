"""`perdure diff`: what changed between two exports, sessions or files, and a call against its result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from perdure.cli.options import FAILURE, WRONG_USAGE, AsJson, fail
from perdure.cli.targets import (
    Redact,
    Sources,
    StoreConfig,
    StoreDir,
    StoreUrl,
    Target,
    Url,
    explained,
)
from perdure.cli.terminal import print_json

if TYPE_CHECKING:
    from perdure.cli.targets import Named
    from perdure.inspect import CallComparison, Difference, Export


def show_difference(
    before: Target,
    after: Annotated[str | None, typer.Argument(metavar="[TARGET]", help="What to compare it with.")] = None,
    call: Annotated[
        str | None,
        typer.Option(
            "--call",
            metavar="ID",
            help="With one target: this call, or the calls of this business id, against their results. "
            "With two: this call's items alone.",
        ),
    ] = None,
    as_json: AsJson = False,
    redact: Redact = None,
    url: Url = None,
    config: StoreConfig = None,
    data_dir: StoreDir = None,
    database: StoreUrl = None,
) -> None:
    """Compare two times of a session, two sessions, or two files; status 1 if they differ.

    Items are matched by id, of two sessions by turn and place. Other JSON, as ledgers, is compared by path.
    """
    sources = Sources(url, config, data_dir, database, redact)
    if after is None:
        if call is None:
            fail("Name two targets to compare, or one with --call ID.", WRONG_USAGE)
        _show_call(sources, before, call, as_json)
        return
    with explained():
        old, new = sources.named(before), sources.named(after)
        difference = _difference(old, new, call)
    if as_json:
        print_json(difference.document() | {"before": before, "after": after})
    else:
        from perdure.cli.diff_view import print_difference

        print_difference(difference, old, new)
    if not difference.is_empty:
        raise typer.Exit(FAILURE)


def _difference(old: Named, new: Named, call: str | None) -> Difference:
    from perdure.inspect import BadQuestion, compare, compare_json

    if old.export is not None and new.export is not None:
        return compare(old.export, new.export, call=call)
    if call is not None:
        raise BadQuestion("--call needs sessions on both sides.")
    return compare_json(_plain(old.export, old), _plain(new.export, new))


def _plain(export: Export | None, named: Named) -> object:
    """What to compare with JSON that is no session: a session's ledger, if it has one."""
    return named.document if export is None or export.ledger is None else export.ledger


def _show_call(sources: Sources, target: str, name: str, as_json: bool) -> None:
    with explained():
        from perdure.inspect import compare_call

        found = compare_call(sources.export(target), name)
    if as_json:
        print_json([_document(each) for each in found])
    else:
        from perdure.cli.diff_view import print_call

        for each in found:
            print_call(each)
    if any(each.drifted for each in found):
        raise typer.Exit(FAILURE)


def _document(each: CallComparison) -> dict[str, object]:
    from dataclasses import asdict

    return asdict(each) | {"drifted": each.drifted}
