"""Templates of a model script: text with `{placeholders}` that a model call fills in."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from perdure.models.jsontext import decode, encode, scrub

_PIECE = re.compile(
    r"(?P<escape>\{\{|\}\})"
    r"|\{(?P<name>[A-Za-z_]\w*)(?P<path>(?:\.[^\s.|{}]+)*)(?:\|(?P<default>[^{}]*))?\}"
    r"|(?P<stray>[{}])"
)


@dataclass(frozen=True, slots=True)
class Placeholder:
    """`{name}`, `{name.path.0.key}` or either with `|default`, which stands in for an empty value."""

    name: str
    path: tuple[str, ...] = ()
    default: str | None = None


@dataclass(frozen=True, slots=True)
class Template:
    """A parsed text. `parts` alternate freely between literal strings and placeholders."""

    source: str
    parts: tuple[str | Placeholder, ...]

    @classmethod
    def parse(cls, source: str) -> Template:
        """Parse `source`; `{{` and `}}` are literal braces. Raises ValueError at a brace that is neither."""
        parts: list[str | Placeholder] = []
        literal: list[str] = []
        end = 0
        for match in _PIECE.finditer(source):
            literal.append(source[end : match.start()])
            end = match.end()
            if match["stray"]:
                raise ValueError(
                    f"stray {match['stray']!r} at character {match.start() + 1}: "
                    "write {{ or }} for a literal brace, {name} for a placeholder"
                )
            if match["escape"]:
                literal.append(match["escape"][0])
                continue
            if text := "".join(literal):
                parts.append(text)
            literal.clear()
            path = tuple(match["path"].split(".")[1:])
            parts.append(Placeholder(match["name"], path, match["default"]))
        if text := "".join([*literal, source[end:]]):
            parts.append(text)
        return cls(source, tuple(parts))

    def placeholders(self) -> Iterator[Placeholder]:
        return (part for part in self.parts if isinstance(part, Placeholder))

    def render(self, values: Mapping[str, Any]) -> str:
        """The text with every placeholder filled in from `values`; what is missing renders empty."""
        return "".join(
            part if isinstance(part, str) else as_text(look_up(part, values)) for part in self.parts
        )

    def render_json(self, values: Mapping[str, Any]) -> Any:
        """Like `render`, but a text that is one placeholder and nothing else keeps its JSON type."""
        if len(self.parts) == 1 and isinstance(only := self.parts[0], Placeholder):
            value = look_up(only, values)
            return "" if value is None else scrub(value)
        return self.render(values)


Tree = Template | dict[str, "Tree"] | list["Tree"] | int | float | bool


def parse_tree(value: Any) -> Tree:
    """Turn every string of a TOML value into a template. Raises ValueError at what JSON cannot hold."""
    match value:
        case str():
            return Template.parse(value)
        case dict():
            return {str(key): parse_tree(item) for key, item in value.items()}
        case list() | tuple():
            return [parse_tree(item) for item in value]
        case bool() | int():
            return value
        case float() if value - value == 0:
            return value
    raise ValueError(f"{value!r} has no JSON form")


def render_tree(tree: Tree, values: Mapping[str, Any]) -> Any:
    match tree:
        case Template():
            return tree.render_json(values)
        case dict():
            return {key: render_tree(item, values) for key, item in tree.items()}
        case list():
            return [render_tree(item, values) for item in tree]
        case _:
            return tree


def tree_placeholders(tree: Tree) -> Iterator[Placeholder]:
    match tree:
        case Template():
            yield from tree.placeholders()
        case dict():
            for item in tree.values():
                yield from tree_placeholders(item)
        case list():
            for item in tree:
                yield from tree_placeholders(item)
        case _:
            return


def look_up(placeholder: Placeholder, values: Mapping[str, Any]) -> Any:
    """The placeholder's value, or its default (else None) where there is nothing or an empty text."""
    value = values.get(placeholder.name)
    if placeholder.path:
        value = parse_json(value) if isinstance(value, str) else value
        for key in placeholder.path:
            value = _member(value, key)
    return placeholder.default if value is None or value == "" else value


def as_text(value: Any) -> str:
    match value:
        case None:
            return ""
        case str():
            return str(scrub(value))
        case _:
            return write_json(value)


def write_json(value: Any) -> str:
    """Compact JSON text without lone surrogates."""
    return encode(value).decode()


def parse_json(text: str) -> Any:
    """The JSON value of a text, None where it is none."""
    try:
        return decode(text.encode("utf-8", "replace"))
    except ValueError:
        return None


def _member(value: Any, key: str) -> Any:
    if isinstance(value, dict):
        return value.get(key)
    if isinstance(value, list) and key.isdecimal() and int(key) < len(value):
        return value[int(key)]
    return None
