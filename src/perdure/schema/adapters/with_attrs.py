"""Fields of attrs classes: the names that `__init__` takes, with the rules that their validators state."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Annotated, Any, get_args, get_origin

from perdure.schema.adapters.fields import RecordField, hints_of
from perdure.schema.refusals import FormRefused

# What attrs' own validators say: the rule, then the value, which a converter may have changed.
_STATED = re.compile(r"(?P<rule>(?:Length of )?'\w+' must .*?)(?:: [^:]*| \(got .*| \('.*)\Z", re.DOTALL)


def attrs_fields(annotation: Any) -> Iterator[RecordField]:
    """The fields of an attrs class, or of a generic one with its arguments."""
    import attrs

    cls = get_origin(annotation) or annotation
    known = dict(zip(getattr(cls, "__parameters__", ()), get_args(annotation), strict=False))
    hints = hints_of(cls)
    for field in attrs.fields(cls):
        if not field.init:
            continue
        kind = _taken_by(field.converter) if field.converter is not None else None
        if kind is None:
            kind = hints.get(field.name, Any)
        kind = known.get(kind, kind)
        for asynchronous in (field.validator, field.converter):
            if inspect.iscoroutinefunction(asynchronous):
                raise FormRefused(f"{cls.__name__}.{field.name}: validation is synchronous, but this is not.")
        if field.converter is None and (rules := list(_rules(field.validator))):
            kind = Annotated[(kind, *rules)]
        default = field.default
        plain = default is None or isinstance(default, bool | int | float | str)
        yield RecordField(
            field.alias or field.name, kind, default is attrs.NOTHING, (default,) if plain else ()
        )


def attrs_object(cls: type, keys: dict[str, Any]) -> Any:
    """An object of an attrs class. What its validators and converters refuse is a ValueError."""
    try:
        return cls(**keys)
    except (TypeError, ValueError) as error:
        message = error.args[0] if error.args and isinstance(error.args[0], str) else str(error)
        stated = _STATED.match(message)
        raise ValueError(stated["rule"] if stated else message) from error


def attrs_members(value: Any) -> dict[str, Any]:
    """The fields of an attrs object by the names that `__init__` takes."""
    import attrs

    return {
        field.alias or field.name: getattr(value, field.name)
        for field in attrs.fields(type(value))
        if field.init
    }


def _taken_by(converter: Any) -> Any:
    """What a converter says that it takes; None if it does not say."""
    function = getattr(converter, "converter", converter)
    try:
        first = next(iter(inspect.signature(function).parameters))
        return hints_of(function).get(first)
    except (TypeError, ValueError, NameError, StopIteration):
        return None


def _rules(validator: Any) -> Iterator[Any]:
    """The rules of attrs' own validators that JSON Schema has too; attrs checks all of them itself."""
    import annotated_types
    from pydantic import Field

    match type(validator).__name__:
        case "_AndValidator":
            for each in validator._validators:
                yield from _rules(each)
        case "_NumberValidator":
            bounds = {
                ">=": annotated_types.Ge,
                ">": annotated_types.Gt,
                "<=": annotated_types.Le,
                "<": annotated_types.Lt,
            }
            yield bounds[validator.compare_op](validator.bound)
        case "_MinLengthValidator":
            yield annotated_types.MinLen(validator.min_length)
        case "_MaxLengthValidator":
            yield annotated_types.MaxLen(validator.max_length)
        case "_InValidator" if all(isinstance(option, str | int) for option in validator.options):
            yield Field(json_schema_extra={"enum": list(validator.options)})
        case "_MatchesReValidator" if validator.pattern.flags in (0, 32):
            # fullmatch is the default of matches_re.
            if getattr(validator.match_func, "__name__", "") == "fullmatch":
                yield Field(json_schema_extra={"pattern": f"^(?:{validator.pattern.pattern})$"})
