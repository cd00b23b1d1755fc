"""`perdure path`: values by RFC 9535 path, with the item and the turn each belongs to."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import typer

from perdure.cli.options import FAILURE, AsJson
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

if TYPE_CHECKING:
    from perdure.inspect import Hit


def show_path(
    expression: Annotated[str, typer.Argument(metavar="PATH", help="A path expression, as $..order_id.")],
    targets: Targets,
    as_json: AsJson = False,
    redact: Redact = None,
    url: Url = None,
    config: StoreConfig = None,
    data_dir: StoreDir = None,
    database: StoreUrl = None,
) -> None:
    """Find values by an RFC 9535 path, also inside of JSON texts; status 1 if there are none."""
    sources = Sources(url, config, data_dir, database, redact)
    with explained():
        from perdure.inspect import find_path

        named = [sources.named(target) for target in targets]
        found = [(each.name, find_path(expression, each.document)) for each in named]
    if as_json:
        print_json(
            [
                {"target": name, **{member: getattr(hit, member) for member in hit.__dataclass_fields__}}
                for name, hits in found
                for hit in hits
            ]
        )
    else:
        for name, hits in found:
            _print_hits(name if len(found) > 1 else None, hits)
    if not any(hits for _, hits in found):
        if not as_json:
            typer.echo(f"Nothing is at {expression}.", err=True)
        raise typer.Exit(FAILURE)


def _print_hits(target: str | None, hits: Sequence[Hit]) -> None:
    """Print hits in groups, one for each item, with their values in front."""
    from rich.text import Text

    from perdure.cli.terminal import open_console, shown, visible

    console = open_console()
    if target is not None and hits:
        console.print(Text(visible(target), style="bold underline"))
    for (item_id, kind, turn_id, call_id), group in groupby(hits, _owner):
        if item_id or kind or turn_id:
            words = [(item_id or kind, "bold"), (kind if item_id else None, ""), (turn_id, "dim")]
            words.append((call_id, "dim"))
            parts = [Text(visible(word), style=style) for word, style in words if word]
            whole = Text("  ").join(parts)
            if whole.cell_len <= console.width:
                console.print(whole)
            else:
                console.print(Text("  ").join(parts[:2]), overflow="fold")
                console.print(Text("  ") + Text("  ").join(parts[2:]), overflow="fold")
        for hit in group:
            console.print(Text("  " + shown(hit.value), style="green"), no_wrap=True, overflow="ellipsis")
            where = Text("    " + visible(hit.path), style="cyan")
            if hit.inside is not None:
                where.append("  in JSON text", style="yellow")
            console.print(where, overflow="fold")


def _owner(hit: Hit) -> tuple[str | None, str | None, str | None, str | None]:
    turn = hit.turn_id if hit.turn_id != hit.item_id else None
    return hit.item_id, hit.type, turn, hit.call_id
