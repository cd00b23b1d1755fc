"""What is wrong with a configuration, said so that it can be put right without reading code."""

from __future__ import annotations

import difflib
import types
import typing
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

import annotated_types
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault: `key` is the dotted path in the file, `message` says what is wrong and what is allowed."""

    key: str
    message: str

    def __str__(self) -> str:
        return f"{self.key}: {self.message}"


class ConfigError(Exception):
    """The configuration cannot be used; `problems` holds every fault that was found, never a secret."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        count = len(self.problems)
        head = (
            "The configuration has a problem:" if count == 1 else f"The configuration has {count} problems:"
        )
        super().__init__("\n".join([head, *(f"  {problem}" for problem in self.problems)]))


@dataclass(frozen=True, slots=True)
class Unit:
    """Annotation of a number: what it counts."""

    name: str


@dataclass(frozen=True, slots=True)
class Form:
    """Annotation of a text: what it looks like, in words."""

    text: str


def allowed_values(field: FieldInfo) -> str:
    """What a key accepts, in words: its type, unit and bounds."""
    return _describe(field.annotation, field.metadata)


def known_keys(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """The keys of a section as they are written in the file."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def unknown_key(name: str, known: Iterable[str]) -> str:
    """The message for a key that does not exist, with the nearest one that does."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    return f"unknown key; {hint}allowed: {', '.join(names)}"


def explain(model: type[BaseModel], errors: Sequence[ErrorDetails]) -> list[Problem]:
    """Validation errors of `model` as problems; values of secret keys are not repeated."""
    problems: dict[tuple[str, str], Problem] = {}
    for error in errors:
        location, parent, field = _locate(model, error["loc"])
        key = key_path(location)
        message = _message(error, location, parent, field)
        problems[key, message] = Problem(key or "configuration", message)
    return list(problems.values())


def key_path(location: Sequence[str | int]) -> str:
    """`("provider", 0, "name")` as `provider[0].name`."""
    path = ""
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else (f".{part}" if path else part)
    return path


def _message(
    error: ErrorDetails,
    location: Sequence[str | int],
    parent: type[BaseModel] | None,
    field: FieldInfo | None,
) -> str:
    if error["type"] == "extra_forbidden" and parent is not None:
        return unknown_key(str(location[-1]), known_keys(parent))
    allowed = f"allowed: {allowed_values(field)}" if field is not None else error["msg"]
    if error["type"] == "missing":
        return f"is required; {allowed}"
    if error["type"] == "value_error":
        return str(error["ctx"]["error"])
    if field is not None and not field.repr:
        return f"is not usable; {allowed}"
    return f"{_shown(error['input'])} is not allowed; {allowed}"


def _locate(
    model: type[BaseModel], loc: Sequence[str | int]
) -> tuple[list[str | int], type[BaseModel] | None, FieldInfo | None]:
    """The part of `loc` that names a key, the section that holds the key, and the key's field."""
    annotation: Any = model
    parent: type[BaseModel] | None = None
    field: FieldInfo | None = None
    location: list[str | int] = []
    for part in loc:
        target = _required(annotation)
        if _is_section(target):
            parent, field = target, known_keys(target).get(str(part))
            location.append(part)
            if field is None:
                break
            annotation = field.annotation
        elif _is_section(element := _element(target)):
            location.append(part)
            annotation, field = element, None
        else:
            break
    return location, parent, field


def _describe(annotation: Any, metadata: Sequence[Any]) -> str:
    target = _required(annotation)
    nullable = target is not annotation
    unit = next((f" of {mark.name}" for mark in metadata if isinstance(mark, Unit)), "")
    if get_origin(target) is Literal:
        text = "one of " + ", ".join(str(value) for value in get_args(target))
    elif target is bool:
        text = "true or false"
    elif target in (int, float):
        text = ("a whole number" if target is int else "a number") + unit + _bounds(metadata)
        text += ', also written as "8 MiB"' if unit == " of bytes" else ""
    elif _is_section(target):
        text = "a table"
    elif get_origin(target) is tuple:
        element = _element(target)
        text = "an array of tables" if _is_section(element) else f"a list; each {_describe(element, ())}"
    elif get_origin(target) is dict:
        text = "a table of tables" if _is_section(_element(target)) else "a table of texts"
    elif target is Path:
        text = "a path"
    else:
        form = next((mark.text for mark in metadata if isinstance(mark, Form)), None)
        text = form or "text" + _length(metadata)
    return f"{text}, or none" if nullable and SecretStr not in _members(annotation) else text


def _length(metadata: Sequence[Any]) -> str:
    least = next((mark.min_length for mark in metadata if isinstance(mark, annotated_types.MinLen)), 0)
    return f" of at least {least} characters" if least > 1 else " that is not empty" if least else ""


def _bounds(metadata: Sequence[Any]) -> str:
    parts = []
    for mark in metadata:
        match mark:
            case annotated_types.Gt():
                parts.append(f"above {mark.gt}")
            case annotated_types.Ge():
                parts.append(f"from {mark.ge}")
            case annotated_types.Le():
                parts.append(f"to {mark.le}")
            case _:
                pass
    return " " + " ".join(parts) if parts else ""


def _is_section(annotation: Any) -> typing.TypeGuard[type[BaseModel]]:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _members(annotation: Any) -> tuple[Any, ...]:
    if get_origin(annotation) in (Union, types.UnionType):
        return get_args(annotation)
    return (annotation,)


def _required(annotation: Any) -> Any:
    """`X` of `X | None`; anything else as it is."""
    members = [member for member in _members(annotation) if member is not type(None)]
    return members[0] if len(members) == 1 else annotation


def _element(annotation: Any) -> Any:
    """`X` of `tuple[X, ...]` and `dict[str, X]`."""
    arguments = get_args(annotation)
    if get_origin(annotation) is tuple:
        return arguments[0]
    return arguments[1] if get_origin(annotation) is dict else None


def _shown(value: object) -> str:
    text = str(value).lower() if isinstance(value, bool) else repr(value)
    return text if len(text) <= 80 else text[:77] + "…"
