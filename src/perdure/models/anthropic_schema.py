"""Whether Anthropic's API can hold an answer to an output schema."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

# A schema with anything beyond these is refused as a whole, so it is asked for in words instead.
KEYWORDS = frozenset(
    {
        *("$defs", "$ref", "additionalProperties", "anyOf", "const", "default", "definitions"),
        *("description", "enum", "format", "items", "minItems", "properties", "required", "title", "type"),
    }
)
FORMATS = frozenset(
    {"date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uri", "uuid"}
)
MAX_DEPTH = 10
PROPERTY = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
MAX_OPTIONAL = 24
MAX_UNIONS = 16


def fits_output_format(schema: Mapping[str, Any]) -> bool:
    """True when every object is closed, nothing refers to itself, and the API knows every keyword."""
    return schema.get("type") == "object" and _Fit(schema).fits()


class _Fit:
    """One look at one schema, with what it has used up of the API's limits."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._optional = 0
        self._unions = 0

    def fits(self) -> bool:
        whole = self._fits(self._root, 1, ())
        return whole and self._optional <= MAX_OPTIONAL and self._unions <= MAX_UNIONS

    def _fits(self, schema: Any, depth: int, within: tuple[str, ...]) -> bool:
        if not isinstance(schema, Mapping) or depth > MAX_DEPTH or not schema.keys() <= KEYWORDS:
            return False
        if "$ref" in schema:
            return self._leads_somewhere(schema["$ref"], depth, within)
        if not schema.keys() & {"type", "anyOf", "enum", "const"}:
            return False
        if schema.get("format", "uuid") not in FORMATS or schema.get("minItems", 0) not in (0, 1):
            return False
        values = [*_list(schema.get("enum")), schema.get("const")]
        if not all(value is None or isinstance(value, str | int | float) for value in values):
            return False
        types = schema.get("type")
        self._unions += ("anyOf" in schema) + isinstance(types, list)
        if ("object" in _list(types) or "properties" in schema) and not self._is_closed(schema):
            return False
        if "array" in _list(types) and "items" not in schema:
            return False
        parts = [
            *_values(schema.get("properties")),
            *_list(schema.get("anyOf")),
            *([schema["items"]] if "items" in schema else ()),
        ]
        return all(self._fits(part, depth + 1, within) for part in parts)

    def _leads_somewhere(self, reference: Any, depth: int, within: tuple[str, ...]) -> bool:
        if not isinstance(reference, str) or reference in within:
            return False
        root, _, path = reference.partition("/")
        place, _, name = path.partition("/")
        if root != "#" or place not in ("$defs", "definitions"):
            return False
        definitions = self._root.get(place)
        target = definitions.get(name) if isinstance(definitions, Mapping) else None
        return self._fits(target, depth + 1, (*within, reference))

    def _is_closed(self, schema: Mapping[str, Any]) -> bool:
        properties = schema.get("properties")
        names = set(properties) if isinstance(properties, Mapping) else set()
        if not all(map(PROPERTY.fullmatch, names)):
            return False
        self._optional += len(names - set(_list(schema.get("required"))))
        return schema.get("additionalProperties") is False


def _values(schemas: Any) -> list[Any]:
    return list(schemas.values()) if isinstance(schemas, Mapping) else []


def _list(value: Any) -> list[Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]
