"""Functions as schemas: an annotated signature describes the object of arguments that a call needs."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Annotated, Any, TypeVar, Union

import typing_extensions

from perdure.schema.adapters.fields import hints_of, portable
from perdure.schema.adapters.with_msgspec import MsgspecType, mentions_struct
from perdure.schema.adapters.with_pydantic import PydanticType
from perdure.schema.refusals import FormRefused
from perdure.schema.results import Failure, Success
from perdure.schema.standard import SchemaContract

R = TypeVar("R")
_LOOSE: dict[Any, str] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}


@dataclass(frozen=True, slots=True)
class Arguments:
    """Validated arguments of a function. What was left out is not in them: the function has its defaults."""

    named: dict[str, Any] = field(default_factory=dict)
    positional: tuple[Any, ...] = ()

    def call(self, function: Callable[..., R], /, *first: Any, **more: Any) -> R:
        """Call the function with these arguments; `first` come before them, `more` are further keywords."""
        return function(*first, *self.positional, **more, **self.named)


class Signature:
    """The contract of a function's parameters, except those in `skip`. Raises FormRefused."""

    version = 1

    def __init__(self, function: Callable[..., Any], name: str, skip: Collection[str] = ()) -> None:
        try:
            parameters = inspect.signature(function).parameters
            # A partial or a callable object has its annotations elsewhere.
            hints = hints_of(_annotated(function))
        except (TypeError, ValueError, NameError) as error:
            raise FormRefused(f"The signature of {name} cannot be read: {error}") from error
        self._defaults: dict[str, Any] = {}
        self._positional: list[str] = []
        fields: dict[str, tuple[Any, Any]] = {}
        for parameter in parameters.values():
            if parameter.name in skip:
                continue
            if stars := _LOOSE.get(parameter.kind):
                raise FormRefused(f"{name}: {stars}{parameter.name} takes anything; name the parameters.")
            if parameter.name not in hints:
                raise FormRefused(f"{name}: the parameter {parameter.name} has no annotation.")
            annotation, default = self._unwrapped(hints[parameter.name], parameter)
            fields[parameter.name] = (annotation, default)
            if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
                self._positional.append(parameter.name)
        structs = any(mentions_struct(annotation) for annotation, _ in fields.values())
        self._inner: SchemaContract[Any, Any] = (
            _of_structs(name, fields) if structs else _of_keys(name, fields)
        )
        self.vendor = self._inner.vendor

    def _unwrapped(self, annotation: Any, parameter: inspect.Parameter) -> tuple[Any, Any]:
        default = parameter.default
        pydantic_fields = sys.modules.get("pydantic.fields")
        if pydantic_fields is not None and isinstance(default, pydantic_fields.FieldInfo):
            # `x: int = Field(3, ge=1)`: the rules belong to the annotation, the default is inside.
            annotation = Annotated[annotation, default]
            value = default.get_default(call_default_factory=True)
            required = default.is_required()
            default = inspect.Parameter.empty if required else value
            if not required:
                self._defaults[parameter.name] = value
        return annotation, default

    def validate(self, value: object, /) -> Success[Arguments] | Failure:
        outcome = self._inner.validate(value)
        if isinstance(outcome, Failure):
            return outcome
        named = self._defaults | outcome.value
        missing_from = next((i for i, name in enumerate(self._positional) if name not in named), None)
        given = self._positional[:missing_from]
        positional = tuple(named.pop(name) for name in given)
        return Success(Arguments(named, positional))

    def json_schema_input(self) -> dict[str, Any]:
        return self._inner.json_schema_input()

    def json_schema_output(self) -> dict[str, Any]:
        return self._inner.json_schema_output()


def _annotated(function: Callable[..., Any]) -> Any:
    inner = inspect.unwrap(function)
    while hasattr(inner, "func"):
        inner = inner.func
    return inner if inspect.isroutine(inner) else type(inner).__call__


def _json_default(default: Any) -> dict[str, Any] | None:
    plain = default is None or isinstance(default, bool | int | float | str)
    return {"default": default} if plain else None


def _of_keys(name: str, fields: dict[str, tuple[Any, Any]]) -> PydanticType:
    from pydantic import Field

    not_required: Any = typing_extensions.NotRequired
    keys: dict[str, Any] = {}
    for key, (annotation, default) in fields.items():
        annotation = portable(annotation)
        if default is inspect.Parameter.empty:
            keys[key] = annotation
        elif (noted := _json_default(default)) is not None:
            extra: Any = Field(json_schema_extra=noted)
            keys[key] = not_required[Annotated[annotation, extra]]
        else:
            keys[key] = not_required[annotation]
    # Made by a call, because the keys are known at run time only.
    make: Any = typing_extensions.TypedDict
    form = make(name, keys)
    form.__pydantic_config__ = {"extra": "forbid"}
    return PydanticType(form, name)


class _StructArguments(MsgspecType):
    """The arguments of a function with structs among its parameters, as a dict."""

    def validate(self, value: object, /) -> Success[Any] | Failure:
        import msgspec

        outcome = super().validate(value)
        if isinstance(outcome, Failure):
            return outcome
        given = ((name, getattr(outcome.value, name)) for name in outcome.value.__struct_fields__)
        return Success({name: inner for name, inner in given if inner is not msgspec.UNSET})


def _of_structs(name: str, fields: dict[str, tuple[Any, Any]]) -> _StructArguments:
    import msgspec

    members: list[Any] = []
    for key, (annotation, default) in fields.items():
        if default is inspect.Parameter.empty:
            members.append((key, annotation))
            continue
        if (noted := _json_default(default)) is not None:
            annotation = Annotated[annotation, msgspec.Meta(extra_json_schema=noted)]
        either: Any = Union[annotation, msgspec.UnsetType]  # noqa: UP007  # known at run time only
        members.append((key, either, msgspec.UNSET))
    form = msgspec.defstruct(name, members, kw_only=True, forbid_unknown_fields=True)
    return _StructArguments(form, name)
