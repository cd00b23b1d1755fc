"""Record types that pydantic does not read by itself: attrs classes, and `typing.TypedDict` before 3.12.

Each becomes a marker that builds pydantic's schema from the fields, wherever in an annotation it stands.
"""

from __future__ import annotations

import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

import typing_extensions

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler
    from pydantic_core import CoreSchema

_in_progress: ContextVar[frozenset[str]] = ContextVar("_in_progress", default=frozenset())
_QUALIFIERS: tuple[object, ...] = (
    typing_extensions.ReadOnly,
    typing_extensions.Required,
    typing.Required,
    typing_extensions.NotRequired,
    typing.NotRequired,
)


@dataclass(frozen=True)
class RecordField:
    """One field of a record: the key in JSON, its annotation, and whether it must be there."""

    key: str
    annotation: Any
    required: bool
    json_default: tuple[()] | tuple[object] = ()


@dataclass(frozen=True)
class Record:
    """A record type as pydantic metadata. `build` makes the value from the keys that were given."""

    cls: type
    fields: Callable[[], Iterator[RecordField]]
    build: Callable[[dict[str, Any]], Any] | None = None
    members: Callable[[Any], dict[str, Any]] | None = None
    extra: Literal["allow", "forbid", "ignore"] = "forbid"

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        from pydantic_core import core_schema

        ref = f"{self.cls.__module__}.{self.cls.__qualname__}:{id(self.cls)}"
        if ref in _in_progress.get():
            return core_schema.definition_reference_schema(ref)
        with _building(ref):
            fields = {
                each.key: core_schema.typed_dict_field(
                    handler.generate_schema(_noted(portable(each.annotation), each)), required=each.required
                )
                for each in self.fields()
            }
        keys = core_schema.typed_dict_schema(fields, cls=self.cls, extra_behavior=self.extra)
        if self.build is None or self.members is None:
            return keys | {"ref": ref}
        return core_schema.no_info_after_validator_function(
            self.build,
            keys,
            ref=ref,
            serialization=core_schema.plain_serializer_function_ser_schema(self.members, return_schema=keys),
        )


@contextmanager
def _building(ref: str) -> Iterator[None]:
    token = _in_progress.set(_in_progress.get() | {ref})
    try:
        yield
    finally:
        _in_progress.reset(token)


def _noted(annotation: Any, each: RecordField) -> Any:
    if not each.json_default:
        return annotation
    from pydantic import Field

    return Annotated[annotation, Field(json_schema_extra={"default": typing.cast(Any, each.json_default[0])})]


def portable(annotation: Any) -> Any:
    """An annotation with a marker at each record type in it that pydantic would not read."""
    if isinstance(annotation, type) and get_origin(annotation) is None:
        return _record(annotation)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if not arguments or origin in (Literal, typing_extensions.Literal):
        return annotation
    if origin is Annotated:
        return Annotated[(portable(arguments[0]), *annotation.__metadata__)]
    if is_attrs(origin):
        return _attrs_record(annotation)
    mapped = tuple(
        [portable(inner) for inner in each] if isinstance(each, list) else portable(each)
        for each in arguments
    )
    if mapped == arguments:
        return annotation
    if origin in (Union, types.UnionType):
        return Union[mapped]  # noqa: UP007  # the members are known at run time only
    if isinstance(annotation, types.GenericAlias):
        return types.GenericAlias(origin, mapped)
    return annotation.copy_with(mapped) if hasattr(annotation, "copy_with") else annotation


def _record(cls: type) -> Any:
    if is_attrs(cls):
        return _attrs_record(cls)
    if sys.version_info < (3, 12) and is_old_typed_dict(cls):
        extra: Any = getattr(cls, "__pydantic_config__", {}).get("extra") or "ignore"
        return Annotated[cls, Record(cls, lambda: _typed_dict_fields(cls), extra=extra)]
    return cls


def is_attrs(cls: object) -> bool:
    """Whether a class was made by attrs; attrs is not imported for the answer."""
    return isinstance(cls, type) and "attr" in sys.modules and hasattr(cls, "__attrs_attrs__")


def is_old_typed_dict(cls: type) -> bool:
    """Whether a class is a TypedDict of the standard library, not of typing_extensions."""
    return type(cls) is type(_OldTypedDict)


class _OldTypedDict(typing.TypedDict):
    pass


def _typed_dict_fields(cls: type) -> Iterator[RecordField]:
    needed: frozenset[str] = getattr(cls, "__required_keys__", frozenset())
    for name, annotation in typing_extensions.get_type_hints(cls, include_extras=True).items():
        required = name in needed
        while (origin := get_origin(annotation)) in _QUALIFIERS:
            if origin in _QUALIFIERS[1:]:
                required = origin in _QUALIFIERS[1:3]
            annotation = get_args(annotation)[0]
        yield RecordField(name, annotation, required)


def _attrs_record(annotation: Any) -> Any:
    from perdure.schema.adapters.with_attrs import attrs_fields, attrs_members, attrs_object

    cls = get_origin(annotation) or annotation
    build = partial(attrs_object, cls)
    return Annotated[cls, Record(cls, lambda: attrs_fields(annotation), build, attrs_members)]


def hints_of(function: Any, namespace: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The annotations of a class or function, evaluated, with their metadata."""
    return typing_extensions.get_type_hints(
        function, localns=dict(namespace) if namespace else None, include_extras=True
    )
