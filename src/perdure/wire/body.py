"""Request bodies: bytes to JSON, strictly."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import jiter

from perdure.wire.errors import InvalidRequest, PayloadTooLarge

MAX_VALUES = 250_000
"""Members and elements of one body; each may become a fault to collect, so they are bounded."""

MAX_MEMBERS = 5_000
"""Members of one object: a body of unknown members would otherwise be one fault for each."""

_BOMS = (b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")
_DUPLICATE = re.compile(r'Detected duplicate key "(.*)" at line (\d+) column (\d+)', re.DOTALL)
_POSITION = re.compile(r"^(.*) at line (\d+) column (\d+)$", re.DOTALL)


def parse_json(raw: bytes, *, max_bytes: int) -> dict[str, Any]:
    """The JSON object a request body holds. U+0000 escapes are legal and stay.

    Raises:
        InvalidRequest: the body is empty, not UTF-8, not JSON or not an object, has a byte order mark,
            a repeated key, a lone surrogate or a number out of range, or is nested too deeply.
        PayloadTooLarge: it has more than `max_bytes` bytes.
    """
    if len(raw) > max_bytes:
        raise PayloadTooLarge(max_bytes)
    if raw.startswith(_BOMS):
        raise InvalidRequest("The request body starts with a byte order mark. Send plain UTF-8 without one.")
    if not raw.strip(b" \t\r\n"):
        raise InvalidRequest("The request body is empty. Send a JSON object.")
    try:
        value = jiter.from_json(raw, catch_duplicate_keys=True, allow_inf_nan=False)
    except ValueError as error:
        raise _explain(raw, str(error)) from None
    if not isinstance(value, dict):
        raise InvalidRequest(f"The request body must be a JSON object, but it is {json_type(value)}.")
    _check_values(value)
    return value


def json_type(value: object) -> str:
    """The JSON type of a value, with its article."""
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int():
            return "an integer"
        case float():
            return "a decimal number"
        case str():
            return "a string"
        case list() | tuple():
            return "an array"
        case _:
            return "an object"


def _explain(raw: bytes, fault: str) -> InvalidRequest:
    duplicate = _DUPLICATE.match(fault)
    if duplicate is not None:
        key, line, column = duplicate.groups()
        return InvalidRequest(
            f"Duplicate key '{_bounded(key)}' in the JSON body at line {line} column {column}. Give every "
            "key once.",
            param=_path_of_duplicate(raw) or _bounded(key),
        )
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError as error:
        return InvalidRequest(
            f"The request body is not valid UTF-8 (byte {error.start}). Encode it as UTF-8."
        )
    position = _POSITION.match(fault)
    what, line, column = position.groups() if position is not None else (fault, "1", "1")
    if "recursion limit" in what:
        return InvalidRequest("The JSON body is nested too deeply. Use fewer levels.")
    if ("surrogate" in what or "hex escape" in what) and _has_lone_surrogate(raw):
        return InvalidRequest(
            f"Invalid JSON body: lone surrogate in a \\u escape at line {line} column {column}. Escape "
            "characters as complete surrogate pairs, or send them as UTF-8."
        )
    if re.search(rb"\b(NaN|Infinity)\b", raw) and ("expected value" in what or "invalid number" in what):
        return InvalidRequest(
            f"Invalid JSON body: {what} at line {line} column {column}. NaN and Infinity are not JSON; use "
            "null."
        )
    return InvalidRequest(f"Invalid JSON body: {what} at line {line} column {column}.")


class _Repeated(dict[str, Any]):
    """An object in which `key` is given more than once."""

    key = ""


def _mark(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = dict(pairs)
    if len(made) == len(pairs):
        return made
    names = [name for name, _ in pairs]
    marked = _Repeated(made)
    marked.key = next(name for number, name in enumerate(names) if name in names[:number])
    return marked


def _path_of_duplicate(raw: bytes) -> str | None:
    """Where a key is repeated; None for a body that cannot be read even so."""
    try:
        root = json.loads(raw, object_pairs_hook=_mark)
    except (ValueError, RecursionError):
        return None
    todo: list[tuple[str, Any]] = [("", root)]
    while todo:
        path, value = todo.pop()
        if isinstance(value, _Repeated):
            return f"{path}.{_bounded(value.key)}".lstrip(".")
        if isinstance(value, dict):
            todo += [(f"{path}.{_bounded(name)}".lstrip("."), member) for name, member in value.items()]
        elif isinstance(value, list):
            todo += [(f"{path}[{number}]", member) for number, member in enumerate(value)]
    return None


def _has_lone_surrogate(raw: bytes) -> bool:
    # Pairs are removed first; what remains of the range is alone.
    pairs = rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    return re.search(rb"\\u[dD][89a-fA-F][0-9a-fA-F]{2}", re.sub(pairs, b"", raw)) is not None


def _check_values(root: dict[str, Any]) -> None:
    count = 0
    todo: list[Any] = [root]
    while todo:
        value = todo.pop()
        members = value.values() if isinstance(value, dict) else value
        count += len(members)
        if isinstance(value, dict) and len(value) > MAX_MEMBERS:
            raise InvalidRequest(f"The request body has an object with more than {MAX_MEMBERS:,} members.")
        if count > MAX_VALUES:
            raise InvalidRequest(f"The request body has more than {MAX_VALUES:,} JSON values. Send fewer.")
        for member in members:
            if isinstance(member, (dict, list)):
                todo.append(member)
            elif isinstance(member, float) and math.isinf(member):
                # The parser reads 1e999 as infinity.
                raise InvalidRequest("The request body has a number that is out of range.")


def _bounded(key: str) -> str:
    return key if len(key) <= 64 else key[:63] + "…"
