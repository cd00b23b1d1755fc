"""JSON in and out that never lets a lone surrogate through."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import orjson

SURROGATE = re.compile("[\ud800-\udfff]")
REPLACEMENT = "\ufffd"


def decode(payload: bytes) -> Any:
    """Parse JSON; an invalid UTF-8 byte or a lone `\\ud800` escape becomes U+FFFD, NUL stays.

    Raises:
        ValueError: the payload is not JSON.
    """
    try:
        return orjson.loads(payload)
    except orjson.JSONDecodeError:
        try:
            return scrub(json.loads(payload.decode("utf-8", "replace")))
        except RecursionError as error:
            raise ValueError("nested too deeply") from error


@dataclass(frozen=True, slots=True)
class Encoded:
    """A value that was written before; `encode` takes its JSON as it is."""

    json: bytes


def encode(value: Any) -> bytes:
    """Write compact JSON; what orjson refuses (surrogates, integers beyond 64 bits) goes the slow way."""
    try:
        # Else `Encoded` would be written as the dataclass that it is, and never reach `_fragment`.
        return orjson.dumps(value, default=_fragment, option=orjson.OPT_PASSTHROUGH_DATACLASS)
    except orjson.JSONEncodeError:
        text = json.dumps(scrub(value), ensure_ascii=False, separators=(",", ":"), default=_parsed)
        return text.encode()


def _fragment(value: object) -> orjson.Fragment:
    if isinstance(value, Encoded):
        return orjson.Fragment(value.json)
    raise TypeError(f"{type(value).__name__} is not JSON")


def _parsed(value: object) -> Any:
    if isinstance(value, Encoded):
        return json.loads(value.json)
    raise TypeError(f"{type(value).__name__} is not JSON")


def scrub(value: Any) -> Any:
    """Replace every lone surrogate inside a JSON value by U+FFFD."""
    match value:
        case str():
            return SURROGATE.sub(REPLACEMENT, value)
        case list() | tuple():
            return [scrub(element) for element in value]
        case dict():
            return {scrub(key): scrub(element) for key, element in value.items()}
    return value
