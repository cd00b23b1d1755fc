"""The one function that takes a schema of any form."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol, TypeVar, get_origin, is_typeddict, overload

import typing_extensions

from perdure.schema.adapters.entry_points import adapted
from perdure.schema.adapters.fields import is_attrs
from perdure.schema.adapters.with_marshmallow import MarshmallowSchema, is_marshmallow
from perdure.schema.adapters.with_msgspec import MsgspecType, is_struct
from perdure.schema.adapters.with_pydantic import PydanticType
from perdure.schema.refusals import FormRefused
from perdure.schema.signatures import Arguments, Signature
from perdure.schema.standard import ATTRIBUTE, SchemaContract, StandardSchema, contract_of
from perdure.schema.typed import Schema
from perdure.schema.wording import printable

T = TypeVar("T")

FORMS = (
    "Give a pydantic model or dataclass, a dataclass, a TypedDict, a msgspec Struct, an attrs class, a "
    "marshmallow schema, an annotated function, a StandardSchema, or JSON Schema as a dict."
)
# By these names an object shows that it can validate, but not what.
_VALIDATING = ("validate", "load", "validate_python", "is_valid", "check", "parse")


class Loading(Protocol):
    """What a marshmallow schema looks like to a type checker that does not know marshmallow."""

    @property
    def declared_fields(self) -> dict[str, Any]: ...
    def load(self, data: Any, /) -> Any: ...


@overload
def schema_of(form: Schema[T], *, strict: bool = True) -> Schema[T]: ...
@overload
def schema_of(form: StandardSchema[Any, T], *, strict: bool = True) -> Schema[T]: ...
@overload
def schema_of(form: type[Loading], *, strict: bool = True) -> Schema[Any]: ...
@overload
def schema_of(form: type[T], *, strict: bool = True) -> Schema[T]: ...  # type: ignore[overload-overlap]
@overload
def schema_of(form: Mapping[str, Any], *, strict: bool = True, validate: bool = False) -> Schema[Any]: ...
@overload
def schema_of(form: Loading, *, strict: bool = True) -> Schema[Any]: ...
@overload
def schema_of(
    form: Callable[..., object], *, strict: bool = True, skip: Collection[str] = ()
) -> Schema[Arguments]: ...
def schema_of(form: Any, *, strict: bool = True, validate: bool = False, skip: Collection[str] = ()) -> Any:
    """The schema of any form, checked completely: what is wrong with it is said here, not at the first use.

    Args:
        form: a Python type, an annotated function, a StandardSchema, or JSON Schema.
        strict: bring the JSON Schema for the model into strict form. A StandardSchema is always strict.
        validate: for JSON Schema, also validate values; otherwise their JSON is only parsed.
        skip: for a function, parameters that the model does not give, such as a context.

    Raises:
        FormRefused: the object is no schema, lacks a part of one, or has no such option.
        SchemaRefused: its JSON Schema is not accepted; the error has the path in it and the reason.
    """
    if validate and not isinstance(form, Mapping):
        raise FormRefused("validate=True is for JSON Schema; every other form always validates.")
    if isinstance(form, Schema):
        return form if form.strict == strict else _again(form, strict)
    if isinstance(form, Mapping):
        return Schema("the JSON Schema", "json", form, None, strict=strict, validates=validate)
    name = _name(form)
    standard = _standard(form)
    if standard is not None:
        if not strict:
            raise FormRefused(f"{name} is a StandardSchema, which is always strict; leave out strict=False.")
        return _typed(name, "standard", standard, strict=True)
    if skip or (callable(form) and not isinstance(form, type) and _is_function(form)):
        return _typed(name, "type", Signature(form, name, skip), strict=strict)
    return _typed(name, "type", _type_contract(form, name), strict=strict)


def from_marshmallow(schema: Any, output: type[T]) -> StandardSchema[Any, T]:
    """A marshmallow schema with the type of what its `load` returns, for the type checker.

    `output` is a TypedDict for a schema that loads dicts, or the class that a `post_load` method makes.
    Raises FormRefused if it is no marshmallow schema, or one with asynchronous validators.
    """
    if not is_marshmallow(schema):
        raise FormRefused(f"{_name(schema)} is no marshmallow schema.")
    return _Standard(MarshmallowSchema(schema, output))


@dataclasses.dataclass(frozen=True)
class _Standard:
    __standard_schema__: Any


def _standard(form: Any) -> SchemaContract[Any, Any] | None:
    if hasattr(form, ATTRIBUTE):
        return contract_of(form)
    if is_marshmallow(form):
        return MarshmallowSchema(form)
    return None if _is_known(form) else adapted(form)


def _is_known(form: Any) -> bool:
    """Whether a form is of one of the libraries that are read here, which adapters do not replace."""
    cls = get_origin(form) or form
    return (
        is_struct(form)
        or is_attrs(cls)
        or (isinstance(cls, type) and (dataclasses.is_dataclass(cls) or _is_typed_dict(cls)))
        or hasattr(cls, "__pydantic_core_schema__")
        or inspect.isroutine(form)
    )


def _is_typed_dict(cls: type) -> bool:
    return is_typeddict(cls) or typing_extensions.is_typeddict(cls)


def _is_function(form: Any) -> bool:
    return inspect.isroutine(form) or hasattr(form, "func") or inspect.isroutine(inspect.unwrap(form))


def _type_contract(form: Any, name: str) -> SchemaContract[Any, Any]:
    if is_struct(form):
        return MsgspecType(form, name)
    if not isinstance(form, type) and get_origin(form) is None:
        raise FormRefused(_missing(form, name))
    try:
        return PydanticType(form, name)
    except FormRefused as refused:
        if type(refused.__cause__).__name__ == "PydanticSchemaGenerationError" and "msgspec" in sys.modules:
            # A dataclass or TypedDict with structs in it.
            try:
                return MsgspecType(form, name)
            except FormRefused:
                pass
        if _is_known(form):
            raise
        raise FormRefused(f"{refused} {FORMS}") from None


def _missing(form: Any, name: str) -> str:
    validating = next((member for member in _VALIDATING if callable(getattr(form, member, None))), None)
    if validating is None and not callable(form):
        return f"A value of type {name} is not a schema. {FORMS}"
    how = f"{validating}()" if validating else "a call"
    return (
        f"{name} can validate, by {how}, but a model needs its JSON Schema: implement StandardSchema, with "
        f"{ATTRIBUTE}.json_schema_input() and json_schema_output()."
    )


def _typed(name: str, form: Any, contract: SchemaContract[Any, T], *, strict: bool) -> Schema[T]:
    author_schema = contract.json_schema_input()
    if not isinstance(author_schema, Mapping):
        raise FormRefused(
            f"{name}: json_schema_input() returned {type(author_schema).__name__}, not a JSON Schema object."
        )
    return Schema(name, form, author_schema, contract, strict=strict, validates=True)


def _again(schema: Schema[T], strict: bool) -> Schema[T]:
    if schema.form == "standard":
        raise FormRefused(
            f"{schema.name} is a StandardSchema, which is always strict; leave out strict=False."
        )
    return schema.with_strict(strict)


def _name(form: Any) -> str:
    named = getattr(form, "__name__", None) or type(form).__name__
    return printable(str(named), 64)
