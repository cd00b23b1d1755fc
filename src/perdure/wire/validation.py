"""Validation faults as one sentence with the path of the member at fault."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from perdure.wire.body import json_type
from perdure.wire.errors import InvalidRequest

M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")

MAX_SHOWN = 64
_PLACES = frozenset({"body", "query", "path", "header", "cookie"})
_EXPECTED = {
    "string_type": "a string",
    "string_sub_type": "a string",
    "bool_type": "a boolean",
    "bool_parsing": "a boolean",
    "int_type": "an integer",
    "int_parsing": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "float_parsing": "a number",
    "list_type": "an array",
    "tuple_type": "an array",
    "dict_type": "an object",
    "mapping_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "none_required": "null",
}
_BOUNDS = {
    "greater_than_equal": ("below minimum", ">=", "ge"),
    "greater_than": ("below minimum", ">", "gt"),
    "less_than_equal": ("above maximum", "<=", "le"),
    "less_than": ("above maximum", "<", "lt"),
}
_MISSING = object()


def validate(model: type[M], value: Any) -> M:
    """The value as a model.

    Raises:
        InvalidRequest: for the first fault, with its `param`.
    """
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise invalid_request(error.errors(include_url=False), value) from None


def validate_as(adapter: TypeAdapter[T], value: Any) -> T:
    """The value as a type that is not a model, such as a union; raises as `validate` does."""
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        raise invalid_request(error.errors(include_url=False), value) from None


def invalid_request(
    errors: Iterable[Mapping[str, Any]], value: Any = _MISSING, *, located: bool = False
) -> InvalidRequest:
    """One error for the first of pydantic's faults.

    Args:
        errors: what `ValidationError.errors()` or FastAPI's `RequestValidationError.errors()` returns.
        value: the whole value that was validated; it tells union tags from members in a path.
        located: whether paths start with where the value was: body, query, path, header.
    """
    faults = list(errors)
    fault = _first(faults)
    loc: Sequence[str | int] = fault["loc"]
    if located and loc and loc[0] in _PLACES:
        value = value if loc[0] == "body" else _MISSING
        loc = loc[1:]
    kind: str = fault["type"]
    path, _ = _walk(loc, value, last_is_member=kind in ("missing", "extra_forbidden"))
    return _describe(kind, path, fault.get("ctx") or {}, fault.get("input"), fault.get("msg", ""))


def _first(faults: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    # A misspelt member is missing and unknown at once; naming the spelling helps more.
    first = faults[0]
    if first["type"] == "missing":
        *above, name = first["loc"]
        for other in faults[1:]:
            *beside, spelt = other["loc"]
            if other["type"] == "extra_forbidden" and beside == above and get_close_matches(spelt, [name]):
                return other
    return first


def _walk(loc: Sequence[str | int], value: Any, *, last_is_member: bool) -> tuple[list[str | int], Any]:
    """The path without union tags, found by following it through the value."""
    path: list[str | int] = []
    tags: set[Any] = set()
    for position, step in enumerate(loc):
        is_last = position == len(loc) - 1
        match value:
            case dict():
                # Compared one by one: what a client sends as a tag may be unhashable.
                names_branch = any(value.get(name) == step for name in ("type", "role", "action"))
                if names_branch and step not in tags and not (is_last and last_is_member):
                    tags.add(step)
                    continue
                path.append(step)
                value, tags = value.get(step, _MISSING), set()
            case list():
                if not isinstance(step, int):
                    continue
                path.append(step)
                value, tags = (value[step] if step < len(value) else _MISSING), set()
            case _ if value is _MISSING:
                path.append(step)
            case _:
                # Nothing is below a scalar, so this is the name of a union's branch.
                continue
    return path, value


def _describe(
    kind: str, path: list[str | int], ctx: Mapping[str, Any], value: Any, message: str
) -> InvalidRequest:
    if kind in ("refused", "value_error", "assertion_error"):
        return _refused(path, ctx, value, message)
    if kind == "union_tag_not_found":
        path = [*path, str(ctx["discriminator"]).strip("'")]
        return InvalidRequest(f"Missing required parameter: '{dotted(path)}'.", dotted(path))
    if kind == "union_tag_invalid":
        path = [*path, str(ctx["discriminator"]).strip("'")]
        found = value.get(path[-1]) if isinstance(value, dict) else value
        return _unsupported(dotted(path), found, str(ctx["expected_tags"]))
    param = dotted(path)
    if not path and kind in _EXPECTED:
        return InvalidRequest(f"The request body must be {_EXPECTED[kind]}, but it is {json_type(value)}.")
    if kind == "missing":
        return InvalidRequest(f"Missing required parameter: '{param}'.", param)
    if kind == "extra_forbidden":
        return InvalidRequest(f"Unknown parameter: '{param}'.", param)
    if kind in ("literal_error", "enum"):
        return _unsupported(param, value, str(ctx["expected"]))
    if kind in _EXPECTED:
        return InvalidRequest(
            f"Invalid type for '{param}': expected {_EXPECTED[kind]}, but got {json_type(value)} instead.",
            param,
        )
    return InvalidRequest(f"Invalid '{param}': {_out_of_bounds(kind, ctx, value, message)}", param)


def _refused(path: list[str | int], ctx: Mapping[str, Any], value: Any, message: str) -> InvalidRequest:
    text = ctx.get("text")
    if text is None:
        text = str(ctx.get("error") or message)
    below = [*path, *ctx.get("path", ())]
    param = dotted(below) if below else None
    text = text.replace("{param}", param or "body").replace("{got}", json_type(value))
    return InvalidRequest(text, param, ctx.get("code", "invalid_request_error"))


def _unsupported(param: str, value: Any, expected: str) -> InvalidRequest:
    choices = re.findall(r"'([^']*)'", expected)
    if not isinstance(value, str):
        one_of = _enumerate(choices, "or")
        return InvalidRequest(
            f"Invalid type for '{param}': expected {'one of ' if len(choices) > 1 else ''}{one_of}, but got "
            f"{json_type(value)} instead.",
            param,
        )
    shown = value if len(value) <= MAX_SHOWN else value[: MAX_SHOWN - 1] + "…"
    return InvalidRequest(
        f"Invalid value: '{shown}'. Supported values are: {_enumerate(choices, 'and')}.", param
    )


def _enumerate(choices: Sequence[str], word: str) -> str:
    quoted = [f"'{choice}'" for choice in choices]
    if len(quoted) < 3:
        return f" {word} ".join(quoted)
    return f"{', '.join(quoted[:-1])}, {word} {quoted[-1]}"


def _out_of_bounds(kind: str, ctx: Mapping[str, Any], value: Any, message: str) -> str:
    if kind in _BOUNDS:
        what, sign, name = _BOUNDS[kind]
        return (
            f"integer {what} value. Expected a value {sign} {ctx[name]:,}, but got {_number(value)} instead."
        )
    match kind:
        case "string_too_long":
            size = len(value) if isinstance(value, str) else 0
            return (
                f"string too long. Expected a string with maximum length {ctx['max_length']:,}, but got a "
                f"string with length {size:,} instead."
            )
        case "string_too_short":
            return (
                f"string too short. Expected a string with minimum length {ctx['min_length']}, but got "
                f"{'an empty string' if not value else f'a string with length {len(value)}'} instead."
            )
        case "string_pattern_mismatch":
            return f"expected a string that matches the pattern '{ctx['pattern']}'."
        case "too_long" if isinstance(value, dict):
            return (
                f"too many properties. Expected an object with at most {ctx['max_length']} properties, but "
                f"got an object with {len(value)} properties instead."
            )
        case "too_long":
            return (
                f"array too long. Expected an array with maximum length {ctx['max_length']}, but got an "
                f"array with length {len(value)} instead."
            )
        case "too_short":
            return (
                f"array too short. Expected an array with minimum length {ctx['min_length']}, but got "
                f"{'an empty array' if not value else f'an array with length {len(value)}'} instead."
            )
        case "string_unicode":
            return "the string has a lone surrogate."
        case "json_invalid":
            return "the body is not valid JSON."
        case _:
            return message[:1].lower() + message[1:].rstrip(".") + "."


def _number(value: Any) -> str:
    text = str(value)
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 1] + "…"


def dotted(path: Iterable[str | int]) -> str:
    """A path as `agent.tools[0].name`; long member names are shortened."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            shown = step if len(step) <= MAX_SHOWN else step[: MAX_SHOWN - 1] + "…"
            text += f".{shown}" if text else shown
    return text
