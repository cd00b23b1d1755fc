"""Schemas of functions in the form that every provider takes.

Providers hold them against the newest draft of JSON Schema and a few rules of their own; one schema that
breaks any of them makes the whole request fail, and every later one of the session too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, unquote

Rename = Callable[[str], str]

_BY_PROPERTY = ("properties", "dependentSchemas")
_BY_NAME = ("$defs", "definitions", "patternProperties")
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")
_SINGLE = (
    *("items", "additionalItems", "additionalProperties", "contains", "contentSchema", "else", "if", "not"),
    *("propertyNames", "then", "unevaluatedItems", "unevaluatedProperties"),
)
_VALUES = ("const", "default", "enum", "examples")
_PROPERTY_STEP = re.compile(r"(?<=/properties/)[^/]+|(?<=/dependentSchemas/)[^/]+")


def sendable(schema: Mapping[str, Any], rename: Rename) -> dict[str, Any]:
    """A schema with its properties renamed, in the newest draft, with an object at its root.

    What older drafts say in another way is said in the new one, a reference at the root is followed, and
    arrays say what is in them. The meaning stays the same.
    """
    whole = {key: value for key, value in _sent(schema, rename).items() if key != "$schema"}
    return {"type": "object", "properties": {}, **_without_root_reference(whole)}


def property_names(schema: Any) -> Iterator[str]:
    """The names of all properties that a schema speaks of, at any depth."""
    if not isinstance(schema, Mapping):
        return
    for key in (*_BY_PROPERTY, *_BY_NAME, "dependencies"):
        for name, part in _pairs(schema.get(key)):
            if key not in _BY_NAME:
                yield name
            yield from property_names(part)
    yield from (name for name in schema.get("required") or () if isinstance(name, str))
    for key in _LISTS:
        for part in _list(schema.get(key)):
            yield from property_names(part)
    for key in _SINGLE:
        for part in _list(schema.get(key)):
            yield from property_names(part)


def renamed(value: Any, rename: Rename) -> Any:
    """A JSON value with the keys of its objects renamed, at every depth."""
    match value:
        case dict():
            return {rename(key): renamed(part, rename) for key, part in value.items()}
        case list():
            return [renamed(part, rename) for part in value]
    return value


def _sent(schema: Any, rename: Rename) -> Any:
    if not isinstance(schema, Mapping):
        return schema
    made: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _BY_PROPERTY and isinstance(value, Mapping):
            made[key] = {rename(name): _sent(part, rename) for name, part in value.items()}
        elif key in _BY_NAME and isinstance(value, Mapping):
            made[key] = {name: _sent(part, rename) for name, part in value.items()}
        elif key in _LISTS and isinstance(value, list):
            made[key] = [_sent(part, rename) for part in value]
        elif key in _SINGLE:
            made[key] = (
                [_sent(part, rename) for part in value] if isinstance(value, list) else _sent(value, rename)
            )
        elif key == "required" and isinstance(value, list):
            made[key] = [rename(name) if isinstance(name, str) else name for name in value]
        elif key == "dependentRequired" and isinstance(value, Mapping):
            made[key] = {rename(name): [rename(other) for other in others] for name, others in value.items()}
        elif key == "$ref" and isinstance(value, str) and value.startswith("#"):
            made[key] = _PROPERTY_STEP.sub(lambda step: _step(step[0], rename), value)
        elif key in _VALUES:
            made[key] = renamed(value, rename)
        else:
            made[key] = value
    return _newest(made, rename)


def _newest(made: dict[str, Any], rename: Rename) -> dict[str, Any]:
    """Older drafts' forms, which the newest one refuses, in its own words."""
    if isinstance(made.get("items"), list):
        made["prefixItems"] = made.pop("items")
        if "additionalItems" in made:
            made["items"] = made.pop("additionalItems")
    for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if isinstance(made.get(exclusive), bool) and made.pop(exclusive) and bound in made:
            made[exclusive] = made.pop(bound)
    for name, needs in _pairs(made.pop("dependencies", None)):
        if isinstance(needs, list):
            made.setdefault("dependentRequired", {})[rename(name)] = [rename(other) for other in needs]
        else:
            made.setdefault("dependentSchemas", {})[rename(name)] = _sent(needs, rename)
    if "array" in _list(made.get("type")) and made.get("items", True) is True:
        made["items"] = {}
    return made


def _without_root_reference(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with what its root refers to in place of the reference, where nothing contradicts it."""
    seen: set[str] = set()
    while isinstance(reference := schema.get("$ref"), str) and reference not in seen:
        seen.add(reference)
        target = _found(schema, reference)
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        if not isinstance(target, Mapping) or any(
            target[key] != beside[key] for key in target if key in beside
        ):
            break
        schema = {**target, **beside}
    return schema


def _found(root: Any, reference: str) -> Any:
    steps = reference.split("/")
    for step in steps[1:] if steps[0] == "#" else ():
        if not isinstance(root, Mapping):
            return None
        root = root.get(_unstepped(step))
    return root if steps[0] == "#" and len(steps) > 1 else None


def _step(step: str, rename: Rename) -> str:
    name = _unstepped(step)
    sent = rename(name)
    return step if sent == name else quote(sent.replace("~", "~0").replace("/", "~1"), safe="~")


def _unstepped(step: str) -> str:
    return unquote(step).replace("~1", "/").replace("~0", "~")


def _pairs(value: Any) -> Iterator[tuple[str, Any]]:
    return iter(value.items()) if isinstance(value, Mapping) else iter(())


def _list(value: Any) -> list[Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]
