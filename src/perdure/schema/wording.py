"""The words for a broken rule: what the schema asks for, never what the value was."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence

PATH_CHARACTERS = 200
QUOTE_CHARACTERS = 200
KEY_CHARACTERS = 64

_PLAIN_KEY = re.compile(r"[A-Za-z_$][A-Za-z0-9_$-]*\Z")

_TYPES = {
    "string": "a string",
    "number": "a number",
    "integer": "an integer",
    "boolean": "a boolean",
    "object": "an object",
    "array": "an array",
    "null": "null",
}


def printable(text: str, limit: int = QUOTE_CHARACTERS) -> str:
    """`text` on one line, without control characters, cut to `limit` characters."""
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def json_path(parts: Sequence[str | int]) -> str:
    """A place in a schema: `$.properties.order_id.pattern`, `$.anyOf[1]`, `$.properties["a b"]`."""
    return _shorten("$" + _steps(parts))


def value_path(parts: Sequence[str | int]) -> str:
    """A place in a value: `order_id`, `lines[2].sku`, `(root)`."""
    return _shorten(_steps(parts).removeprefix(".")) if parts else "(root)"


def _steps(parts: Sequence[str | int]) -> str:
    return "".join(_step(part) for part in parts)


def _step(part: str | int) -> str:
    if isinstance(part, int):
        return f"[{part}]"
    if len(part) <= KEY_CHARACTERS and _PLAIN_KEY.match(part):
        return f".{part}"
    return f'["{printable(part, KEY_CHARACTERS)}"]'


def _shorten(path: str) -> str:
    half = PATH_CHARACTERS // 2
    return path if len(path) <= PATH_CHARACTERS else f"{path[: half - 1]}…{path[-half:]}"


def type_of(value: object) -> str:
    """The JSON type of a value as a noun: `a string`, `null`."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case str():
            return "a string"
        case int() | float():
            return "a number"
        case dict():
            return "an object"
        case list():
            return "an array"
        case _:
            return "not JSON"


def type_names(allowed: Iterable[object]) -> str:
    """`a string or null`."""
    names = list(dict.fromkeys(_TYPES.get(str(name), printable(str(name))) for name in allowed))
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def wrong_type(allowed: Sequence[object], value: object) -> str:
    fraction = isinstance(value, float) and "integer" in allowed
    return f"must be {type_names(allowed)}, got {'a number with a fraction' if fraction else type_of(value)}"


def one_of(options: Sequence[object]) -> str:
    if len(options) == 1:
        return f"must be {quoted(options[0])}"
    return f"must be one of {listed([quoted(option, 60) for option in options])}"


def unknown_property(known: Iterable[str]) -> str:
    names = [printable(name, KEY_CHARACTERS) for name in known]
    return f"unknown property (known: {listed(names)})" if names else "unknown property"


def listed(words: Sequence[str]) -> str:
    """`a, b, c`, as far as a short line allows, then how many are left."""
    shown: list[str] = []
    room = QUOTE_CHARACTERS
    for word in words:
        room -= len(word) + 2
        if room < 0 and shown:
            return f"{', '.join(shown)}, … ({len(words) - len(shown)} more)"
        shown.append(word)
    return ", ".join(shown)


def quoted(value: object, limit: int = QUOTE_CHARACTERS) -> str:
    """A constant of the schema as JSON text, cut to `limit` characters."""
    return printable(json.dumps(value, ensure_ascii=False), limit)


def broken_rule(keyword: str, argument: object, value: object) -> str:
    """What a keyword that looks at one value only demands of it. `argument` is the keyword's value."""
    match keyword, argument:
        case "type", list():
            return wrong_type(argument, value)
        case "type", _:
            return wrong_type([argument], value)
        case "enum", list():
            return one_of(argument)
        case "const", _:
            return one_of([argument])
        case "pattern", str():
            return f"does not match {printable(argument)}"
        case "uniqueItems", _:
            return "must not contain duplicates"
        case "contentEncoding", _:
            return f"must be encoded as {quoted(argument)}"
        case "contentMediaType", _:
            return f"must contain a document of type {quoted(argument)}"
        case _ if keyword in _BOUNDS:
            before, singular, plural = _BOUNDS[keyword]
            return f"{before} {quoted(argument)} {singular if argument == 1 else plural}".rstrip()
        case _:
            return f"breaks the rule {printable(keyword)}"


_BOUNDS = {
    "minimum": ("must be ≥", "", ""),
    "maximum": ("must be ≤", "", ""),
    "exclusiveMinimum": ("must be >", "", ""),
    "exclusiveMaximum": ("must be <", "", ""),
    "multipleOf": ("must be a multiple of", "", ""),
    "minLength": ("must have at least", "character", "characters"),
    "maxLength": ("must have at most", "character", "characters"),
    "minItems": ("must have at least", "item", "items"),
    "maxItems": ("must have at most", "item", "items"),
    "minProperties": ("must have at least", "property", "properties"),
    "maxProperties": ("must have at most", "property", "properties"),
}
