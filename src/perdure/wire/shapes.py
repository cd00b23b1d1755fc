"""The two kinds of protocol models: what clients send and what the server answers."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import PydanticCustomError

T = TypeVar("T")


class Request(BaseModel):
    """A body, or part of one, as a client sends it: no coercion, no unknown members."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, hide_input_in_errors=True, serialize_by_alias=True
    )


class Resource(BaseModel):
    """A value as the server answers it: frozen, complete, dumped under the protocol's names."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_by_name=True, serialize_by_alias=True)


def absent(value: object) -> bool:
    """For `exclude_if`: the member is left out of JSON while it has no value."""
    return value is None


def refusal(message: str, *path: str | int, code: str = "invalid_request_error") -> PydanticCustomError:
    """The error a validator raises to refuse a value.

    Args:
        message: one sentence for people; `{param}` and `{got}` are replaced by the dotted path of the
            refused value and by the JSON type it had.
        path: where below the validated value the fault is; empty for the value itself.
        code: the error code of the answer.
    """
    return PydanticCustomError("refused", "{text}", {"text": message, "path": path, "code": code})


def _not_null(value: Any) -> Any:
    if value is None:
        raise refusal("Invalid type for '{param}': null is not allowed. Leave the field out or give a value.")
    return value


Omissible = Annotated[T | SkipJsonSchema[None], BeforeValidator(_not_null)]
"""A member that may be left out (then None) but must not be null."""
