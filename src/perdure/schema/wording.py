"""The words for a broken rule: what the schema asks for, never what the value was."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

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


def type_names(allowed: Sequence[object]) -> str:
    """`a string or null`."""
    names = list(dict.fromkeys(_TYPES.get(str(name), printable(str(name))) for name in allowed))
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def one_of(options: Sequence[object]) -> str:
    if len(options) == 1:
        return f"must be {quoted(options[0])}"
    return f"must be one of {listed((quoted(option, 60) for option in options), len(options))}"


def listed(words: Iterable[str], count: int) -> str:
    """`a, b, c`, as far as a short line allows, then how many of `count` are left."""
    shown: list[str] = []
    room = QUOTE_CHARACTERS
    for word in words:
        room -= len(word) + 2
        if room < 0 and shown:
            return f"{', '.join(shown)}, … ({count - len(shown)} more)"
        shown.append(word)
    return ", ".join(shown)


def quoted(value: object, limit: int = QUOTE_CHARACTERS) -> str:
    """A constant of the schema as JSON text, cut to `limit` characters."""
    return printable(json.dumps(value, ensure_ascii=False), limit)


def broken_rule(keyword: str, argument: Any, got: str = "") -> str:
    """What a keyword demands. `argument` is what the schema gives under it; `got` is the type that was found.

    Where a rule is about more than the keyword's value, `argument` is what `violations` says it is.
    """
    match keyword:
        case "type":
            return f"must be {type_names(argument if isinstance(argument, list) else [argument])}, got {got}"
        case "enum":
            return one_of(argument)
        case "const":
            return one_of([argument])
        case "enum or type":
            options, types = argument
            return f"{one_of(options)}, or {type_names(types)}"
        case "pattern":
            return f"does not match {printable(argument)}"
        case "uniqueItems":
            return "must not contain duplicates"
        case "contentEncoding":
            return f"must be encoded as {quoted(argument)}"
        case "contentMediaType":
            return f"must contain a document of type {quoted(argument)}"
        case "required":
            return "is required"
        case "dependentRequired":
            return f"is required beside {quoted(argument, KEY_CHARACTERS)}"
        case "additionalProperties":
            known = listed((printable(name, KEY_CHARACTERS) for name in argument), len(argument))
            return f"unknown property (known: {known})" if known else "unknown property"
        case "contains":
            return f"must have at least {argument} of the items that `contains` describes"
        case "maxContains":
            return f"must have at most {argument} of the items that `contains` describes"
        case "anyOf":
            return f"matches none of the {argument} allowed forms"
        case "oneOf":
            return f"matches several of the {argument} allowed forms, must match one"
        case "not":
            return "matches a form that is not allowed"
        case "false":
            return "is not allowed"
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
