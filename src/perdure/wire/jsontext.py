"""JSON text of values we keep: exact, also for integers that need more than 64 bits."""

from __future__ import annotations

import json
from typing import Any

import jiter
import orjson


def dumps(value: Any, *, sort_keys: bool = False) -> bytes:
    """A JSON value as compact UTF-8. Raises TypeError for what is no JSON."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS if sort_keys else None)
    except TypeError:
        # Integers beyond 64 bits; anything that is no JSON fails here too.
        text = json.dumps(
            value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=sort_keys
        )
        return text.encode()


def loads(text: str | bytes) -> Any:
    """The value of a JSON text that `dumps` wrote; integers of any size stay integers."""
    return jiter.from_json(text.encode() if isinstance(text, str) else text)
