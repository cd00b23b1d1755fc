"""Differences for people: one line for what was added or removed, one for each value that changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from perdure.cli.terminal import open_console, shown, visible
from perdure.inspect.difference import Change, Difference
from perdure.inspect.exports import texts_of
from perdure.inspect.operations import Operation

if TYPE_CHECKING:
    from perdure.cli.targets import Named
    from perdure.inspect import CallComparison, Comparison

MARKS = {"added": ("+", "green"), "removed": ("-", "red"), "changed": ("~", "yellow"), "moved": (">", "cyan")}
OPERATION_MARKS = {
    "add": ("+", "green"),
    "remove": ("-", "red"),
    "replace": ("~", "yellow"),
    "move": (">", "cyan"),
}
HOW = {
    "id": "matched by id",
    "place": "two sessions: matched by turn and place, ids and times left out",
    "path": "compared by path",
}


def print_difference(difference: Difference, old: Named, new: Named) -> None:
    """Print what differs, section by section."""
    console = open_console()
    for mark, named, style in (("---", old, "red"), ("+++", new, "green")):
        of = "" if named.export is None else f"  {visible(named.export.session_id or 'no session')}"
        console.print(
            Text(f"{mark} {visible(named.name)}{of if of.strip() != named.name else ''}", style=style)
        )
    console.print(Text(HOW[difference.aligned_by], style="dim"))
    if difference.is_empty:
        console.print(Text("They say the same.", style="green"))
    for section in difference.sections:
        console.print(Text(section.name, style="bold"))
        for change in section.changes:
            _print_change(console, change)


def _print_change(console: Console, change: Change) -> None:
    if change.name is not None or change.kind != "changed":
        mark, style = MARKS[change.kind]
        words = [change.name or "?", *_words(change)]
        line = Text(f"  {mark} ", style=style) + Text("  ".join(map(visible, words)))
        console.print(line, no_wrap=True, overflow="ellipsis")
    for operation in change.operations:
        _print_operation(console, operation)


def _words(change: Change) -> list[str]:
    entry = change.entry
    words = [str(entry[name]) for name in ("type", "role", "name", "status") if entry.get(name)]
    if change.kind in ("added", "removed"):
        said = next((entry[name] for name in ("arguments", "output", "error") if entry.get(name)), None)
        words.append(shown(said) if said is not None else " ".join(texts_of(entry)))
    return [word for word in words if word]


def _print_operation(console: Console, operation: Operation) -> None:
    mark, style = OPERATION_MARKS[operation.op]
    line = Text(f"{mark} ", style=style) + Text(visible(operation.path) or "(all)", style="cyan")
    if operation.in_text is not None:
        line.append(" in JSON text", style="yellow")
    match operation.op:
        case "add":
            line.append(f": {_quoted(operation.after)}")
        case "remove":
            line.append(f": {_quoted(operation.before)}")
        case "replace":
            line.append(f": {_quoted(operation.before)} → {_quoted(operation.after)}")
        case "move":
            line.append(f": from {visible(operation.source or '')}")
    console.print(Padding(line, (0, 0, 0, 6), expand=False), overflow="fold")


def print_call(compared: CallComparison) -> None:
    """Print a call beside its result."""
    console = open_console()
    call, result = compared.call, compared.result
    words = (call.call_id or "no call_id", call.name or "?", call.state, f"in {call.turn_id or 'no turn'}")
    console.print(Text("  ".join(map(visible, words)), style="bold"), overflow="fold")
    if result is None:
        console.print(Text("  It has no result.", style="yellow"))
        return
    if result.success is False:
        console.print(Text("  It failed: ", style="red") + Text(shown(result.error)), overflow="fold")
    for each in compared.comparisons:
        console.print(_comparison(each), overflow="fold")


def _comparison(each: Comparison) -> Text:
    match each.kind:
        case "same":
            return Text("  = ", style="dim") + Text(f"{_path(each.asked_at)}: {_quoted(each.asked)}")
        case "differs":
            where = _path(each.asked_at)
            if each.answered_at != each.asked_at:
                where += f" and {_path(each.answered_at)}"
            return Text("  ~ ", style="bold red") + Text(
                f"{where}: asked {_quoted(each.asked)}, answered {_quoted(each.answered)}"
            )
        case "only_asked":
            return Text("  - ", style="dim") + Text(
                f"{_path(each.asked_at)}: {_quoted(each.asked)}, only asked"
            )
        case "only_answered":
            return Text("  + ", style="dim") + Text(
                f"{_path(each.answered_at)}: {_quoted(each.answered)}, only answered"
            )


def _path(path: str | None) -> str:
    return visible(path or "$")


def _quoted(value: Any) -> str:
    """A value on one line, strings in quotes, the middle of a long one left out."""
    import json

    text = visible(json.dumps(value, ensure_ascii=False))
    return text if len(text) <= 400 else f"{text[:240]} … {text[-120:]}"
