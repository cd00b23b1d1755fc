"""The rule for JSON Schemas in requests: the root describes an object."""

from __future__ import annotations

from typing import Any

from perdure.wire.shapes import refusal

_COMBINATORS = ("oneOf", "anyOf", "allOf", "enum", "not")
_MAX_REFERENCES = 32


def check_object_schema(schema: dict[str, Any], *path: str | int, combinators: bool) -> None:
    """Refuse a schema whose root, directly or through a local `$ref`, is not `type: "object"`.

    Args:
        path: where below the validated value the schema is.
        combinators: whether the root may also have oneOf, anyOf, allOf, enum or not.
    """
    root = _resolve(schema, path)
    if root.get("type") != "object":
        raise refusal(
            "Invalid '{param}': the root of the JSON Schema must have type \"object\". Wrap other values in "
            "a property of an object.",
            *path,
        )
    found = [] if combinators else [word for word in _COMBINATORS if word in schema or word in root]
    if found:
        raise refusal(
            f"Invalid '{{param}}': '{found[0]}' is not permitted at the root of the JSON Schema. Move it "
            "into a property.",
            *path,
        )


def _resolve(schema: dict[str, Any], path: tuple[str | int, ...]) -> dict[str, Any]:
    found = schema
    for _ in range(_MAX_REFERENCES):
        reference = found.get("$ref")
        if reference is None:
            return found
        target = _local(schema, reference)
        if target is None:
            raise refusal(
                "Invalid '{param}': the root's $ref must point to a definition below '#/$defs'.", *path
            )
        found = target
    raise refusal("Invalid '{param}': the root's $ref points back to itself.", *path)


def _local(schema: dict[str, Any], reference: Any) -> dict[str, Any] | None:
    if not isinstance(reference, str):
        return None
    for keyword in ("$defs", "definitions"):
        prefix = f"#/{keyword}/"
        definitions = schema.get(keyword)
        if reference.startswith(prefix) and isinstance(definitions, dict):
            name = reference[len(prefix) :].replace("~1", "/").replace("~0", "~")
            target = definitions.get(name)
            return target if isinstance(target, dict) else None
    return None
