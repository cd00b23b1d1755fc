"""JSON values, and JSON texts inside of them: what a tool was called with is often a text in a text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from perdure.inspect.faults import Unreadable

Json = Any
"""Any JSON value."""

Location = tuple[str | int, ...]
"""Where a value stands: member names and array indices from the root."""

MAX_DEPTH = 96
"""Levels of nesting that are looked into, those of JSON texts included."""


def parse_json(data: bytes | str, name: str) -> Json:
    """The value of a JSON document.

    Args:
        data: the document; bytes are UTF-8.
        name: what the document is called in the error.

    Raises:
        Unreadable: it is no JSON, or nested too deeply.
    """
    try:
        text = data.decode("utf-8-sig") if isinstance(data, bytes) else data
        value = json.loads(text, parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise Unreadable(f"{name} is not JSON: it is not UTF-8 text (byte {error.start}).") from error
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise Unreadable(f"{name} is not JSON: {error.msg} at {where}.") from error
    except ValueError as error:
        raise Unreadable(f"{name} is not JSON: {error}.") from error
    except RecursionError as error:
        raise Unreadable(f"{name} is nested too deeply to be read.") from error
    if depth_of(value) > MAX_DEPTH:
        raise Unreadable(f"{name} is nested more than {MAX_DEPTH} levels deep.")
    return value


def _refuse_constant(name: str) -> Json:
    raise ValueError(f"it holds {name}")


def embedded_json(text: str) -> dict[str, Json] | list[Json] | None:
    """The object or array that a string holds as JSON text; None for any other string."""
    bare = text.strip()
    if not bare or (bare[0], bare[-1]) not in {("{", "}"), ("[", "]")}:
        return None
    try:
        value = json.loads(bare, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict | list) else None


def opened(value: Json) -> Json:
    """A value, or what it says when it is a JSON text."""
    found = embedded_json(value) if isinstance(value, str) else None
    return value if found is None else found


def depth_of(value: Json) -> int:
    """How many arrays and objects are inside one another; 0 for a scalar."""
    deepest = 0
    waiting = [(value, 1)]
    while waiting:
        current, depth = waiting.pop()
        children = _children(current)
        if children is None:
            continue
        deepest = max(deepest, depth)
        waiting.extend((child, depth + 1) for _, child in children)
    return deepest


def _children(value: Json) -> list[tuple[str | int, Json]] | None:
    match value:
        case dict():
            return list(value.items())
        case list() | tuple():
            return list(enumerate(value))
        case _:
            return None


@dataclass(frozen=True, slots=True)
class Expanded:
    """A document in which every JSON text is replaced by the value it stands for.

    `texts` are the locations where those texts stood.
    """

    value: Json
    texts: frozenset[Location]

    def text_around(self, location: Location) -> Location | None:
        """The innermost JSON text that a location lies inside of; None when it is in none."""
        for end in range(len(location) - 1, -1, -1):
            if location[:end] in self.texts:
                return location[:end]
        return None


def expand(value: Json) -> Expanded:
    """Open every JSON text of a value, as far as `MAX_DEPTH` allows."""
    texts: set[Location] = set()

    def walk(current: Json, location: Location) -> Json:
        match current:
            case dict():
                return {name: walk(member, (*location, name)) for name, member in current.items()}
            case list() | tuple():
                return [walk(element, (*location, index)) for index, element in enumerate(current)]
            case str():
                found = embedded_json(current)
                if found is None or len(location) + depth_of(found) > MAX_DEPTH:
                    return current
                texts.add(location)
                return walk(found, location)
            case _:
                return current

    return Expanded(walk(value, ()), frozenset(texts))


def leaves(value: Json, location: Location = ()) -> Iterator[tuple[Location, Json]]:
    """Every scalar of a value with its location, JSON texts opened."""
    match opened(value):
        case dict() as members:
            for name, member in members.items():
                yield from leaves(member, (*location, name))
        case list() as elements:
            for index, element in enumerate(elements):
                yield from leaves(element, (*location, index))
        case scalar:
            yield location, scalar


def at(value: Json, location: Location) -> Json:
    """The value at a location. Raises KeyError, IndexError or TypeError when there is none."""
    for step in location:
        value = value[step]
    return value


def dump(value: Json, *, indent: int | None = None) -> str:
    """A value as JSON text that any UTF-8 terminal or file takes."""
    separators = (",", ":") if indent is None else None
    text = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators)
    try:
        text.encode()
    except UnicodeEncodeError:
        # Half a surrogate pair is legal JSON only as an escape.
        return json.dumps(value, indent=indent, separators=separators)
    return text
