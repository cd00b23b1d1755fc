"""JSON text written by a model: read strictly, and faults named without repeating the text."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal

import jiter

from perdure.schema.wording import KEY_CHARACTERS, quoted, type_of

ARGUMENT_BYTES = 1 << 20

FaultKind = Literal["too_large", "invalid_json", "duplicate_key", "out_of_range", "not_an_object"]


@dataclass(frozen=True, slots=True)
class TextFault:
    """Why a text is not the JSON asked for. `reason` continues "the text …": "is not valid JSON: …"."""

    kind: FaultKind
    reason: str


@dataclass(frozen=True, slots=True)
class ArgumentFault(TextFault):
    """Why a call's arguments cannot even be compared with the function's schema."""


_POSITION = re.compile(r"(?P<reason>.*) (?P<position>at line \d+ column \d+)\Z", re.DOTALL)
_DUPLICATE = re.compile(r'Detected duplicate key "(?P<key>.*)"\Z', re.DOTALL)
_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    r"|(?P<lone>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
_HUGE_EXPONENT = re.compile(r"[0-9][eE]\+?[0-9]{3}")
# The longest number without an exponent that is certainly finite.
_FINITE_DIGITS = 308


def parse_arguments(text: str) -> dict[str, object] | ArgumentFault:
    """The arguments of a function call, from the text that the model wrote.

    An empty text is an empty object, and an object inside one JSON string is taken out of it, because models
    write both. A key given twice, NaN, Infinity, a number outside the double range, and a text above
    `ARGUMENT_BYTES` are faults. Lone surrogates become U+FFFD.
    """
    if not text.strip():
        return {}
    value = read_json(text, ARGUMENT_BYTES)
    if isinstance(value, str) and value.lstrip().startswith("{"):
        inner = read_json(value, ARGUMENT_BYTES)
        value = inner if isinstance(inner, dict) else value
    if isinstance(value, TextFault):
        return ArgumentFault(value.kind, value.reason)
    if not isinstance(value, dict):
        return ArgumentFault("not_an_object", f"is {type_of(value)}, must be a JSON object")
    return value


def read_json(text: str, limit_bytes: int) -> object | TextFault:
    """The one JSON document that `text` is, or the fault in it. Members of an object are unique."""
    if len(text) > limit_bytes:
        return _too_large(limit_bytes)
    try:
        data = text.encode()
    except UnicodeEncodeError:
        data = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()
    if len(data) > limit_bytes:
        return _too_large(limit_bytes)
    try:
        value = _parse(data)
    except ValueError as error:
        repaired = _ESCAPE.sub(_replace_lone, data.decode())
        try:
            value = _parse(repaired.encode())
        except ValueError:
            return _fault(str(error))
    if (len(text) > _FINITE_DIGITS or _HUGE_EXPONENT.search(text)) and not _is_finite(value):
        return TextFault("out_of_range", "has a number outside the double range")
    return value


def _parse(data: bytes) -> object:
    return jiter.from_json(data, allow_inf_nan=False, catch_duplicate_keys=True)


def _replace_lone(escape: re.Match[str]) -> str:
    return r"\ufffd" if escape["lone"] else escape[0]


def _too_large(limit_bytes: int) -> TextFault:
    return TextFault("too_large", f"is larger than {limit_bytes >> 10:,} KiB")


def _fault(message: str) -> TextFault:
    found = _POSITION.match(message)
    reason, position = (found["reason"], found["position"]) if found else ("", "")
    if duplicate := _DUPLICATE.match(reason):
        return TextFault(
            "duplicate_key", f"repeats the key {quoted(duplicate['key'], KEY_CHARACTERS)} {position}"
        )
    if reason == "number out of range":
        return TextFault("out_of_range", f"has a number with too many digits {position}")
    if reason.startswith("EOF"):
        reason = "it ends too early, perhaps cut off,"
    elif reason == "trailing characters":
        reason = "something follows the JSON document"
    elif reason == "expected ident":
        reason = "unknown word"
    return TextFault("invalid_json", f"is not valid JSON: {reason} {position}".rstrip(": "))


def _is_finite(value: object) -> bool:
    stack = [value]
    while stack:
        match stack.pop():
            case dict() as members:
                stack.extend(members.values())
            case list() as items:
                stack.extend(items)
            case float() as number if not math.isfinite(number):
                return False
    return True
