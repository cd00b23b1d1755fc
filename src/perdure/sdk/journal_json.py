"""JSON texts of the journal: any string survives, and any database takes them."""

from __future__ import annotations

import json
from typing import Any

from perdure.schema.dumping import jsonable
from perdure.sdk.journal_errors import NotJson

Json = Any
"""A JSON value: dict, list, str, int, float, bool or None."""


def encode(value: object, what: str) -> str:
    """A value as JSON in ASCII.

    U+0000 and lone surrogates are escapes in it, so a text column of any database takes it and gives the
    same value back. Models, dataclasses and the like become objects.

    Raises:
        NotJson: the value has no JSON form; `what` names it in the message.
    """
    try:
        return _dump(value)
    except (TypeError, ValueError, RecursionError):
        pass
    try:
        return _dump(jsonable(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise NotJson(f"{what} cannot be recorded: {error}") from error


def _dump(value: object) -> str:
    return json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))


def decode(text: str | None) -> Json:
    """The value of a JSON text; None for no text."""
    return None if text is None else json.loads(text)
