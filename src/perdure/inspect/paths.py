"""RFC 9535 path expressions over exports, ledgers and any JSON, also into JSON texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from perdure.inspect.faults import BadQuestion
from perdure.inspect.jsontext import MAX_DEPTH, Expanded, Json, Location, at, expand


@dataclass(frozen=True, slots=True)
class Hit:
    """A value that a path expression finds.

    `path` is the normalised path from the root of the document. When the value lies inside a JSON text,
    `inside` is the path of that text, and the rest of `path` leads through it. `item_id`, `turn_id` and
    `call_id` are those of the object around it, `type` that object's type.
    """

    path: str
    value: Json
    inside: str | None = None
    type: str | None = None
    item_id: str | None = None
    turn_id: str | None = None
    call_id: str | None = None


def find_path(expression: str, document: Json) -> list[Hit]:
    """Everything that a path expression selects, in document order.

    The expression is asked of the document as it is and again with all JSON texts opened, so that a name
    inside of a tool's arguments or output is found, and so is the text itself.

    Raises:
        BadQuestion: the expression is not valid, or `jsonpath-rfc9535` is not installed.
    """
    query = _compile(expression)
    expanded = expand(document)
    plain = dict(_select(query, document))
    hits = []
    for location, value in _select(query, expanded.value):
        shown = plain.pop(location) if location in plain else value
        if location not in expanded.texts or not isinstance(shown, str):
            shown = _as_it_is(document, expanded, location, shown)
        hits.append(_hit(document, expanded, location, shown))
    # What only the document as it is selects: a filter that compares a text.
    hits += [_hit(document, expanded, location, value) for location, value in plain.items()]
    return hits


def _as_it_is(document: Json, expanded: Expanded, location: Location, value: Json) -> Json:
    """A value outside of JSON texts, as it stands in the document."""
    return value if expanded.text_around(location) is not None else at(document, location)


def _compile(expression: str) -> Any:
    try:
        from jsonpath_rfc9535 import JSONPathEnvironment, JSONPathError
    except ModuleNotFoundError as error:
        raise BadQuestion("Path expressions need the package jsonpath-rfc9535; install it.") from error

    class Environment(JSONPathEnvironment):
        max_recursion_depth = 2 * MAX_DEPTH

    try:
        return Environment().compile(expression)
    except (JSONPathError, RecursionError) as error:
        raise BadQuestion(
            f"{expression!r} is no path expression of RFC 9535: {error}. It begins with $, as in $..order_id."
        ) from error


def _select(query: Any, document: Json) -> Iterator[tuple[Location, Json]]:
    from jsonpath_rfc9535 import JSONPathError

    try:
        for node in query.finditer(document):
            yield node.location, node.value
    except (JSONPathError, RecursionError) as error:
        raise BadQuestion(f"The path expression cannot be followed: {error}") from error


def _hit(document: Json, expanded: Expanded, location: Location, value: Json) -> Hit:
    text = expanded.text_around(location)
    around = _owner(document, location if text is None else text)
    name = around.get("id")
    return Hit(
        path=normalised(location),
        value=value,
        inside=None if text is None else normalised(text),
        type=_word(around.get("type") or around.get("object")),
        item_id=_word(name),
        turn_id=_word(around.get("turn_id") if "turn_id" in around else _turn(around)),
        call_id=_word(around.get("call_id")),
    )


def _owner(document: Json, location: Location) -> Mapping[str, Json]:
    """The innermost object on the way that is an item, an action, a turn or another resource."""
    owner: Mapping[str, Json] = {}
    current = document
    for step in (*location, None):
        if isinstance(current, Mapping) and ("turn_id" in current or {"id", "object"} <= current.keys()):
            owner = current
        if step is None:
            break
        try:
            current = current[step]
        except (KeyError, IndexError, TypeError):
            break
    return owner


def _turn(owner: Mapping[str, Json]) -> Json:
    return owner.get("id") if owner.get("object") == "agent.session.turn" else None


def _word(value: Json) -> str | None:
    return value if isinstance(value, str) else None


def normalised(location: Location) -> str:
    """A location as a normalised path of RFC 9535."""
    return "$" + "".join(f"[{step}]" if isinstance(step, int) else f"[{_quoted(step)}]" for step in location)


_SHORT = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", "'": "\\'", "\\": "\\\\"}


def _quoted(name: str) -> str:
    escaped = (_SHORT.get(char) or (f"\\u{ord(char):04x}" if char < " " else char) for char in name)
    return "'" + "".join(escaped) + "'"
