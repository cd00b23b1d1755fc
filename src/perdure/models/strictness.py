"""Whether an output schema fits the strict mode of OpenAI's protocols."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Keywords that strict mode knows. A schema with any other is refused as a whole, so it is sent as a
# wish (`strict: false`) and the answer is checked afterwards.
KEYWORDS = frozenset(
    {
        *("$defs", "$ref", "additionalProperties", "anyOf", "const", "definitions", "description", "enum"),
        *("exclusiveMaximum", "exclusiveMinimum", "format", "items", "maxItems", "maximum", "minItems"),
        *("minimum", "multipleOf", "pattern", "properties", "required", "title", "type"),
    }
)
FORMATS = frozenset(
    {"date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uuid"},
)
MAX_DEPTH = 10


def can_be_asked_for(schema: Mapping[str, Any]) -> bool:
    """False where the root makes a choice: such a schema is refused, strict or not."""
    return not schema.keys() & {"anyOf", "oneOf", "allOf", "enum", "not"}


def fits_strict_mode(schema: Mapping[str, Any]) -> bool:
    """True when every object is closed, every property required, and no keyword is unknown there."""
    return schema.get("type") == "object" and "anyOf" not in schema and _fits(schema, 1)


def _fits(schema: Any, depth: int) -> bool:
    if not isinstance(schema, Mapping) or depth > MAX_DEPTH or not schema.keys() <= KEYWORDS:
        return False
    if "$ref" in schema:
        return len(schema) == 1
    if not schema.keys() & {"type", "anyOf"}:
        return False
    if schema.get("format", "uuid") not in FORMATS:
        return False
    if _is_object(schema) and not _is_closed(schema):
        return False
    if _allows(schema, "array") and "items" not in schema:
        return False
    parts = [
        *_values(schema.get("properties")),
        *_values(schema.get("$defs")),
        *_values(schema.get("definitions")),
        *schema.get("anyOf", ()),
        *([schema["items"]] if "items" in schema else ()),
    ]
    return all(_fits(part, depth + 1) for part in parts)


def _values(schemas: Any) -> list[Any]:
    return list(schemas.values()) if isinstance(schemas, Mapping) else []


def _allows(schema: Mapping[str, Any], kind: str) -> bool:
    types = schema.get("type")
    return types == kind or (isinstance(types, list) and kind in types)


def _is_object(schema: Mapping[str, Any]) -> bool:
    return _allows(schema, "object") or "properties" in schema


def _is_closed(schema: Mapping[str, Any]) -> bool:
    required = schema.get("required", [])
    return (
        schema.get("additionalProperties") is False
        and isinstance(required, list)
        and set(required) == set(schema.get("properties") or {})
    )
