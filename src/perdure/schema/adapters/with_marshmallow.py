"""marshmallow schemas: validation by `load`, and the JSON Schema of their fields."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from perdure.schema.adapters.marshmallow_fields import FieldSchemas
from perdure.schema.refusals import FormRefused
from perdure.schema.results import Failure, Issue, Path, Success

_WHOLE = "_schema"


def is_marshmallow(form: object) -> bool:
    """Whether an object is a marshmallow schema or its class; marshmallow is not imported for the answer."""
    if (marshmallow := sys.modules.get("marshmallow")) is None:
        return False
    schema = marshmallow.Schema
    return isinstance(form, schema) or (isinstance(form, type) and issubclass(form, schema))


class MarshmallowSchema:
    """The contract of a marshmallow schema. `output` is the type of what `load` returns, if it is known.

    Raises FormRefused for asynchronous hooks and validators, and for fields whose JSON nobody knows.
    """

    vendor = "marshmallow"
    version = 1

    def __init__(self, form: Any, output: type | None = None) -> None:
        self._schema = form() if isinstance(form, type) else form
        # A TypedDict has no instances; any other type must be the one of the values.
        self._output = None if output is None or hasattr(output, "__required_keys__") else output
        name = type(self._schema).__name__
        for member in _validators(self._schema):
            if inspect.iscoroutinefunction(member):
                raise FormRefused(
                    f"{name}: {member.__name__} is a coroutine function; validation is synchronous."
                )
        try:
            self._input = FieldSchemas(load=True).document(self._schema)
        except NameError as error:
            raise FormRefused(f"{name} nests a schema that cannot be found: {error}") from error

    def validate(self, value: object, /) -> Success[Any] | Failure:
        from marshmallow import ValidationError

        try:
            loaded = self._schema.load(value)
        except ValidationError as error:
            issues = [Issue(message, path) for path, message in _messages(error.messages)]
            return Failure(issues or [Issue("is not valid")])
        if (
            self._output is not None
            and not inspect.isawaitable(loaded)
            and not isinstance(loaded, self._output)
        ):
            raise TypeError(
                f"{type(self._schema).__name__} loads {type(loaded).__name__}, not {self._output.__name__}; "
                "make it with a method marked post_load"
            )
        return Success(loaded)

    def json_schema_input(self) -> dict[str, Any]:
        return self._input

    def json_schema_output(self) -> dict[str, Any]:
        return FieldSchemas(load=False).document(self._schema)

    def dump(self, value: Any) -> Any:
        return self._schema.dump(value)


def _validators(schema: Any) -> Iterator[Any]:
    """The hooks of a schema and the validators of its fields."""
    for cls in type(schema).__mro__:
        for member in vars(cls).values():
            if hasattr(member, "_marshmallow_hook") or hasattr(member, "__marshmallow_hook__"):
                yield member
    for field in schema.fields.values():
        yield from field.validators


def _messages(messages: object, path: Path = ()) -> Iterator[tuple[Path, str]]:
    match messages:
        case str():
            yield path, messages
        case Mapping():
            for key, inner in messages.items():
                whole = key == _WHOLE or not isinstance(key, str | int)
                yield from _messages(inner, path if whole else (*path, key))
        case list() | tuple():
            for inner in messages:
                yield from _messages(inner, path)
