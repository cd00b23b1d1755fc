"""Python values as JSON, by the library that their type is from."""

from __future__ import annotations

from typing import Any

from perdure.schema.adapters.fields import is_attrs
from perdure.schema.adapters.with_msgspec import is_struct


def jsonable(value: Any) -> Any:
    """A value as dicts, lists, strings, numbers, booleans and None.

    Takes JSON, and in it pydantic models, dataclasses, msgspec structs, attrs objects, dates, UUIDs and the
    like. Raises TypeError for anything else.
    """
    from pydantic_core import PydanticSerializationError, to_jsonable_python

    try:
        return to_jsonable_python(value, by_alias=True, fallback=_of_other_libraries)
    except PydanticSerializationError as error:
        raise TypeError(str(error)) from error


def _of_other_libraries(value: Any) -> Any:
    if is_struct(type(value)):
        import msgspec

        return msgspec.to_builtins(value)
    if is_attrs(type(value)):
        import attrs

        return attrs.asdict(value, recurse=False)
    raise TypeError(f"{type(value).__name__} has no JSON form")
