"""The two kinds of protocol models: what clients send and what the server answers."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

T = TypeVar("T")


class Request(BaseModel):
    """A body, or part of one, as a client sends it: no coercion, no unknown members."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, hide_input_in_errors=True, serialize_by_alias=True
    )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        shown = handler(schema)
        for member in handler.resolve_ref_schema(shown).get("properties", {}).values():
            # None stands for "not given" here, which is no value that may be sent.
            if member.get("default", ...) is None:
                del member["default"]
        return shown


class Resource(BaseModel):
    """A value as the server answers it: frozen, complete, dumped under the protocol's names."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_by_name=True, serialize_by_alias=True)


class PlainUnion:
    """Annotates a discriminated union whose members share a tag: its JSON Schema is a bare `oneOf`.

    The OpenAPI `discriminator` maps a tag to one schema, which such a union does not have.
    """

    def __get_pydantic_json_schema__(
        self, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        schema = handler(core_schema)
        schema.pop("discriminator", None)
        return schema


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


def _refuse_null(value: Any) -> Any:
    if value is None:
        raise refusal("Invalid type for '{param}': null is not allowed. Leave it out or give a value.")
    return value


class _NotNull:
    """Refuses a given null, in validation and in the JSON Schema, of a type that says `| None`."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(_refuse_null, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        shown = handler(schema)
        branches = [branch for branch in shown.get("anyOf", []) if branch != {"type": "null"}]
        return branches[0] if len(branches) == 1 else {**shown, "anyOf": branches} if branches else shown


Omissible = Annotated[T | None, _NotNull()]
"""A member that may be left out (then None) but must not be null."""
