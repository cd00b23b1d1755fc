"""A chain for people as a table: one line for each entry, in the columns of a narrow terminal, too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from rich.cells import cell_len
from rich.text import Text

from perdure.cli.chain_view import (
    REPORTS,
    STYLES,
    Names,
    came_of,
    line_of,
    names_of,
    route_of,
    session_words,
    short_kind,
    thread_line,
)
from perdure.cli.terminal import abbreviated, escaped, open_console, shown, visible
from perdure.inspect.links import (
    Call,
    Chain,
    Coordination,
    Entry,
    Message,
    Orphan,
    Result,
    ThreadLink,
    Work,
)

Row = tuple[str, str, str, str, str]

HEADINGS: Row = ("Turn", "What", "Id", "State", "Said")
STATE = HEADINGS.index("State")
WIDE = 130
"""Columns from which on ids are shown whole."""


def print_table_of(chain: Chain) -> None:
    """Print a chain as a table, with a line for each agent above what it did."""
    console = open_console()
    short = console.width < WIDE
    names = names_of(chain)
    blocks = [
        (Text("  " * (thread.depth - 1)) + thread_line(thread), list(_rows(thread, short, names)))
        for thread in chain.threads
    ]
    owed = [
        (
            _id(each.turn_id, short),
            "owed",
            _id(each.key, short),
            "owed",
            f"{each.type} {visible(each.name or '')}",
        )
        for each in chain.owed
    ]
    every = [HEADINGS, *(row for _, rows in blocks for row in rows), *owed]
    widths = [max(cell_len(row[column]) for row in every) for column in range(len(HEADINGS) - 1)]
    console.print(line_of((visible(chain.session_id or "no session"), "bold"), *session_words(chain)))
    _print_row(HEADINGS, widths, "dim")
    for head, rows in blocks:
        console.print(head, no_wrap=True, overflow="ellipsis")
        for row in rows:
            _print_row(row, widths)
    for row in owed:
        _print_row(row, widths)


def _print_row(row: Row, widths: list[int], style: str = "") -> None:
    *cells, said = row
    text = Text(style=style)
    for column, (cell, width) in enumerate(zip(cells, widths, strict=True)):
        text.append(cell, style=STYLES.get(cell) if column == STATE else None)
        text.append(" " * (width - cell_len(cell) + 2))
    open_console().print(text.append(said), no_wrap=True, overflow="ellipsis")


def _rows(thread: ThreadLink, short: bool, names: Names) -> Iterator[Row]:
    for turn in thread.turns:
        said = " ".join(
            (*(shown(error) for error in (turn.error,) if error), REPORTS.get(turn.report or "", ""))
        )
        yield _id(turn.id, short), "turn", "", escaped(turn.status or "not listed"), said.strip()
        for entry in turn.entries:
            for what, name, state, said in _entry_rows(entry, names):
                yield "", escaped(what), _id(name, short), escaped(state), said


def _id(name: str | None, short: bool) -> str:
    return "-" if name is None else abbreviated(name) if short else visible(name)


def _entry_rows(entry: Entry, names: Names) -> Iterator[tuple[str, str | None, str, str]]:
    match entry:
        case Message():
            yield entry.role, entry.place.id, entry.place.status or "", visible(entry.text)
        case Work():
            kind = short_kind(entry.place.type)
            yield kind, entry.place.id, entry.place.status or "", visible(entry.summary)
        case Coordination():
            words = (route_of(entry, names), came_of(entry, names), visible(entry.text))
            said = " ".join(word for word in words if word)
            yield short_kind(entry.place.type), entry.place.id, entry.place.status or "", said
        case Call():
            yield "call", entry.call_id, entry.state, f"{visible(entry.name or '')} {shown(entry.arguments)}"
            for result in entry.results:
                yield _result(result, "failed" if result.success is False else "")
        case Orphan():
            yield _result(entry.result, "orphaned")
        case _:
            assert_never(entry)


def _result(result: Result, state: str) -> tuple[str, str | None, str, str]:
    said = result.output if result.error is None else result.error
    return "result", result.call_id, state, shown(said)
