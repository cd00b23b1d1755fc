"""Types that pydantic reads: models, dataclasses, TypedDicts; with the markers of `fields`, attrs classes."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from perdure.schema.adapters.fields import is_attrs, portable
from perdure.schema.refusals import FormRefused
from perdure.schema.results import Failure, Issue, Success
from perdure.schema.wording import printable

if TYPE_CHECKING:
    from pydantic import ValidationError

_PREFIXES = ("Value error, ", "Assertion failed, ")
# Their messages quote the value.
_WORDS = {
    "uuid_parsing": "must be a UUID",
    "union_tag_invalid": "names none of the allowed forms",
    "missing": "is required",
    "extra_forbidden": "unknown property",
}


class PydanticType:
    """The contract of a type. `vendor` is the library that the type is from. Raises FormRefused."""

    version = 1

    def __init__(self, form: Any, name: str) -> None:
        from pydantic import TypeAdapter
        from pydantic.errors import (
            PydanticInvalidForJsonSchema,
            PydanticSchemaGenerationError,
            PydanticUserError,
        )

        self.vendor = "attrs" if is_attrs(form) else "pydantic"
        try:
            self._adapter: TypeAdapter[Any] = TypeAdapter(portable(form))
            self._adapter.rebuild()
            self._input = self._adapter.json_schema(mode="validation")
        except PydanticInvalidForJsonSchema as error:
            raise FormRefused(f"{name} has no JSON Schema: {_first_line(error.message)}") from error
        except (PydanticSchemaGenerationError, PydanticUserError, NameError) as error:
            raise FormRefused(f"{name} cannot be read as a schema: {_first_line(str(error))}") from error
        for function in _functions(self._adapter.core_schema):
            if inspect.iscoroutinefunction(function):
                raise FormRefused(
                    f"{name}: the validator {printable(function.__name__, 64)} is a coroutine function; "
                    "validation is synchronous."
                )

    def validate(self, value: object, /) -> Success[Any] | Failure:
        from pydantic import ValidationError
        from pydantic_core import to_json

        try:
            # As JSON, because types that are strict about Python values take dates as text from JSON.
            return Success(self._adapter.validate_json(to_json(value)))
        except ValidationError as error:
            return Failure(list(_issues(error)))

    def json_schema_input(self) -> dict[str, Any]:
        return self._input

    def json_schema_output(self) -> dict[str, Any]:
        return self._adapter.json_schema(mode="serialization")

    def dump(self, value: Any) -> Any:
        return self._adapter.dump_python(value, mode="json", by_alias=True)


def _issues(error: ValidationError) -> Iterator[Issue]:
    for found in error.errors(include_url=False, include_input=False, include_context=False):
        message = found["msg"]
        for prefix in _PREFIXES:
            message = message.removeprefix(prefix)
        yield Issue(_WORDS.get(found["type"], message) or "is not valid", found["loc"])


def _functions(schema: object) -> Iterator[Any]:
    """Every function that a core schema calls with a value."""
    stack = [schema]
    seen: set[int] = set()
    while stack:
        match stack.pop():
            case dict() as part if id(part) not in seen:
                seen.add(id(part))
                if callable(function := part.get("function")):
                    yield function
                stack.extend(value for key, value in part.items() if key != "metadata")
            case list() | tuple() as parts:
                stack.extend(parts)


def _first_line(message: str) -> str:
    return printable(message.strip().partition("\n")[0].rstrip(".")) + "."
