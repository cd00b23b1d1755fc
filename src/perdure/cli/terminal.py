"""Text of others on a terminal: one line, no control characters, as wide as there is room."""

from __future__ import annotations

import json
import unicodedata
from typing import TYPE_CHECKING, Any

import typer

from perdure.cli.tables import NARROWEST_PIPE

if TYPE_CHECKING:
    from rich.console import Console


def open_console() -> Console:
    """A console on standard output; a pipe gets wide lines."""
    from rich.console import Console

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=max(console.width, NARROWEST_PIPE))
    return console


def visible(text: str) -> str:
    """A text on one line, `escaped`."""
    return escaped(" ".join(text.split()))


def escaped(text: str) -> str:
    """A text with every control character written out.

    Models and tools write what they like; an escape sequence among it could command the terminal.
    """
    return "".join(
        _written(char) if unicodedata.category(char) in ("Cc", "Cf", "Cs") else char for char in text
    )


def _written(char: str) -> str:
    # The joiner makes emoji and several scripts; it commands nothing.
    return char if char == "\u200d" else f"\\u{ord(char):04x}"


def shown(value: Any) -> str:
    """A JSON value on one line; a string without quotes, as it is."""
    if isinstance(value, str):
        return visible(value)
    return visible(json.dumps(value, ensure_ascii=False))


def abbreviated(name: str, length: int = 11) -> str:
    """The beginning of an id, which is enough to tell it from the others of a session."""
    return visible(name if len(name) <= length + 1 else name[:length] + "…")


def print_json(document: Any) -> None:
    """Print a JSON document on standard output."""
    from perdure.inspect.jsontext import dump

    typer.echo(dump(document, indent=2))
