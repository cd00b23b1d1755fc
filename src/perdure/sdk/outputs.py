"""What a tool returns, as a result that the protocol takes: text, or content parts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from perdure.schema import Failure, Schema, jsonable
from perdure.sdk.calls import ToolResult
from perdure.sdk.errors import OutputInvalid

_PARTS = ("input_text", "input_image")


def succeeded(tool: str, value: Any, schema: Schema[Any] | None = None) -> ToolResult:
    """The result of a call whose function returned `value`.

    Text goes out as it is, a list of content parts as a list, None as no output, everything else as JSON
    text. With a schema, the JSON is validated first.

    Raises OutputInvalid, with a message for the model that repeats nothing of the value.
    """
    if schema is not None:
        return ToolResult(True, _text(tool, _validated(tool, value, schema)))
    match value:
        case None:
            return ToolResult(True)
        case str():
            return ToolResult(True, _encodable(tool, value))
        case list() if value and all(_is_part(part) for part in value):
            return ToolResult(True, [dict(part) for part in value])
        case _:
            return ToolResult(True, _text(tool, _json(tool, value)))


def failed(message: str) -> ToolResult:
    """The result of a call that failed; the model reads the message."""
    return ToolResult(False, error=message.encode("utf-8", "replace").decode())


def json_text(value: Any) -> str:
    """Compact JSON. Raises ValueError for NaN and infinities, which are no JSON."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _validated(tool: str, value: Any, schema: Schema[Any]) -> Any:
    heading = f"The result of {tool} does not match its output schema:"
    if isinstance(value, str):
        outcome = schema.parse_output(value)
        value = None if isinstance(outcome, Failure) else schema.dump(outcome.value)
    else:
        value = _json(tool, value)
        outcome = schema.validate(value)
    if isinstance(outcome, Failure):
        raise OutputInvalid(outcome.describe(heading))
    return value


def _json(tool: str, value: Any) -> Any:
    try:
        return jsonable(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise OutputInvalid(f"The tool {tool} returned something that has no JSON form.") from error


def _text(tool: str, value: Any) -> str:
    try:
        return _encodable(tool, json_text(value))
    except (TypeError, ValueError) as error:
        raise OutputInvalid(f"The tool {tool} returned something that has no JSON form.") from error


def _encodable(tool: str, text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise OutputInvalid(f"The tool {tool} returned text that is not valid Unicode.") from error
    return text


def _is_part(part: Any) -> bool:
    return isinstance(part, Mapping) and part.get("type") in _PARTS
