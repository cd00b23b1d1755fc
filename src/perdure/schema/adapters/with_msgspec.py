"""Types that msgspec reads: its structs, and what they contain."""

from __future__ import annotations

import inspect
import re
import sys
from typing import Any, get_args, get_origin

from perdure.schema.refusals import FormRefused
from perdure.schema.results import Failure, Issue, Success
from perdure.schema.wording import printable

_AT = re.compile(r"(?P<rule>.*?)(?: - at `(?:key in )?\$(?P<path>.*)`)?\Z", re.DOTALL)
_STEP = re.compile(r"\[(?P<index>\d+)\]|\.(?P<name>[^.\[\]]+)")
_QUOTING = re.compile(r"Invalid (?P<what>enum )?value ")


def is_struct(form: object) -> bool:
    """Whether a type is a msgspec struct, perhaps a generic one; msgspec is not imported for the answer."""
    if (msgspec := sys.modules.get("msgspec")) is None:
        return False
    cls = get_origin(form) or form
    return isinstance(cls, type) and issubclass(cls, msgspec.Struct)


def mentions_struct(annotation: object) -> bool:
    """Whether there is a struct anywhere in an annotation."""
    stack = [annotation]
    while stack:
        each = stack.pop()
        if is_struct(each):
            return True
        stack += [*each] if isinstance(each, list) else get_args(each)
    return False


class MsgspecType:
    """The contract of a type that msgspec reads. Raises FormRefused."""

    vendor = "msgspec"
    version = 1

    def __init__(self, form: Any, name: str) -> None:
        import msgspec

        if inspect.iscoroutinefunction(getattr(get_origin(form) or form, "__post_init__", None)):
            raise FormRefused(f"{name}: __post_init__ is a coroutine function; validation is synchronous.")
        try:
            self._decoder = msgspec.json.Decoder(form)
            self._input = msgspec.json.schema(form)
        except (TypeError, NameError) as error:
            reason = printable(str(error).partition("\n")[0].rstrip("."))
            raise FormRefused(f"{name} cannot be read as a schema: {reason}.") from error

    def validate(self, value: object, /) -> Success[Any] | Failure:
        first = self._decoded(value)
        # In JSON Schema 1.0 is an integer, in msgspec it is none.
        if isinstance(first, Failure) and (whole := _with_integers(value)) is not value:
            second = self._decoded(whole)
            return second if isinstance(second, Success) else first
        return first

    def _decoded(self, value: object) -> Success[Any] | Failure:
        import msgspec
        from pydantic_core import to_json

        try:
            return Success(self._decoder.decode(to_json(value)))
        except msgspec.ValidationError as error:
            return Failure([_issue(str(error))])
        except msgspec.DecodeError:
            return Failure([Issue("is not a JSON value")])

    def json_schema_input(self) -> dict[str, Any]:
        return self._input

    def json_schema_output(self) -> dict[str, Any]:
        return self._input

    def dump(self, value: Any) -> Any:
        import msgspec

        return msgspec.to_builtins(value)


def _with_integers(value: object) -> object:
    """The value with integers for its integral numbers; the same object if there are none."""
    match value:
        case float() if value.is_integer():
            return int(value)
        case dict():
            members = {key: _with_integers(inner) for key, inner in value.items()}
            return members if any(members[key] is not value[key] for key in value) else value
        case list():
            items = [_with_integers(inner) for inner in value]
            return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
        case _:
            return value


def _issue(message: str) -> Issue:
    found = _AT.match(message)
    rule, path = (found["rule"], found["path"] or "") if found else (message, "")
    if quoting := _QUOTING.match(rule):
        rule = "is none of the allowed values" if quoting["what"] else "is not an allowed value"
    steps = [int(step["index"]) if step["index"] else step["name"] for step in _STEP.finditer(path)]
    return Issue(rule or "is not valid", tuple(steps))
