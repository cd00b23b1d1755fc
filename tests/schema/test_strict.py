"""Strict form, construct by construct: what becomes of it, or where and why it is refused."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.schema import FormRefused, Schema, SchemaRefused, Success, schema_of
from perdure.schema.restoring import Restorer
from perdure.schema.strict import strict_form


def with_property(part: Any, *, required: bool = True, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"p": part}, "required": ["p"] if required else [], **more}


def strict_property(part: Any, *, required: bool = True, **more: Any) -> Any:
    return strict_form(with_property(part, required=required, **more)).schema["properties"]["p"]  # type: ignore[index]


ONE = {
    "type": "object",
    "properties": {"kind": {"const": "one"}, "n": {"type": "integer"}},
    "required": ["kind"],
}
TWO = {"type": "object", "properties": {"kind": {"const": "two"}}, "required": ["kind"]}
ONE_OR_NULL, TWO_OR_NULL = (each | {"type": ["object", "null"]} for each in (ONE, TWO))


def test_objects_are_closed_every_key_is_required_and_optional_is_nullable() -> None:
    schema = {
        "type": "object",
        "properties": {
            "order_id": {"type": "string", "pattern": "^[A-Z]-\\d{4}$"},
            "include_history": {"type": "boolean", "default": False},
        },
        "required": ["order_id"],
    }
    assert strict_form(schema).schema == {
        "type": "object",
        "properties": {
            "order_id": {"type": "string", "pattern": "^[A-Z]-\\d{4}$"},
            "include_history": {"type": ["boolean", "null"], "default": False},
        },
        "required": ["order_id", "include_history"],
        "additionalProperties": False,
    }


@pytest.mark.parametrize(
    "part",
    [
        {"type": "integer", "minimum": 1, "maximum": 9, "multipleOf": 2},
        {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1.5},
        {"type": "string", "minLength": 1, "maxLength": 3, "pattern": "^a", "format": "date"},
        {"type": "integer", "enum": [1, 2, 3]},
        {"type": "string", "const": "x", "title": "T", "description": "D"},
        {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 2, "uniqueItems": True},
        {"anyOf": [{"type": "string"}, {"type": "null"}]},
        {"type": ["string", "null"]},
    ],
)
def test_rules_survive(part: dict[str, Any]) -> None:
    assert strict_property(part) == part


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"enum": ["a", "b"]}, {"type": "string", "enum": ["a", "b"]}),
        ({"enum": ["a", None]}, {"type": ["string", "null"], "enum": ["a", None]}),
        ({"const": 1.0}, {"type": "integer", "const": 1.0}),
        ({"allOf": [{"type": "string"}], "description": "d"}, {"type": "string", "description": "d"}),
        ({"type": "string", "default": None}, {"type": "string"}),
        (
            {"type": "array", "prefixItems": [{"type": "string"}]},
            {"type": "array", "prefixItems": [{"type": "string"}], "items": False},
        ),
    ],
)
def test_what_is_only_said_otherwise(part: Any, expected: Any) -> None:
    assert strict_property(part) == expected


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        ({"type": "string"}, {"type": ["string", "null"]}),
        ({"enum": ["a"]}, {"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "null"}]}),
        (
            {"anyOf": [{"type": "string"}, {"type": "integer"}]},
            {"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}]},
        ),
        ({"type": ["string", "null"]}, {"type": ["string", "null"]}),
        ({"const": "k", "default": "k"}, {"type": "string", "const": "k", "default": "k"}),
    ],
)
def test_what_may_be_left_out_becomes_nullable_once(part: Any, expected: Any) -> None:
    assert strict_property(part, required=False) == expected


def test_alternatives_told_apart_by_a_constant_survive() -> None:
    part = strict_property({"oneOf": [ONE, TWO], "discriminator": {"propertyName": "kind"}})
    kinds = [member["properties"]["kind"] for member in part["anyOf"]]
    assert kinds == [{"type": "string", "const": "one"}, {"type": "string", "const": "two"}]
    assert part["anyOf"][0]["required"] == ["kind", "n"]


def test_references_survive_also_recursive_ones_and_those_into_properties() -> None:
    schema = {
        "$ref": "#/$defs/Node",
        "$defs": {
            "Node": {
                "type": "object",
                "properties": {
                    "name": {"type": "string", "minLength": 1},
                    "same": {"$ref": "#/$defs/Node/properties/name", "description": "also a name"},
                    "next": {"$ref": "#/$defs/Node"},
                    "whole": {"$ref": "#"},
                },
                "required": ["name", "same"],
            },
            "Unused": {"not": {}},
        },
    }
    strict = strict_form(schema).schema
    assert strict["type"] == "object"
    properties: Any = strict["properties"]
    definitions: Any = strict["$defs"]
    same = properties["same"]["anyOf"][0]["$ref"].removeprefix("#/$defs/")
    assert definitions[same] == {"type": "string", "minLength": 1}
    assert properties["next"] == {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]}
    assert definitions["Node"]["properties"] == properties
    assert "Unused" not in definitions


@pytest.mark.parametrize(
    ("part", "path", "reason"),
    [
        ({}, "$.properties.p", "any type"),
        (True, "$.properties.p", "true has no strict form"),
        ({"type": "object"}, "$.properties.p", "any properties"),
        ({"type": "object", "additionalProperties": True}, "$.properties.p.additionalProperties", "name the"),
        (
            {"type": "object", "additionalProperties": {"type": "string"}},
            "$.properties.p.additionalProperties",
            "name the",
        ),
        (
            {"type": "object", "properties": {}, "patternProperties": {"^x": {}}},
            "$.properties.p.patternProperties",
            "name the",
        ),
        (
            {"type": "object", "properties": {}, "minProperties": 1},
            "$.properties.p.minProperties",
            "no strict form",
        ),
        (
            {"type": "object", "properties": {"a": {"type": "null"}}, "required": ["b"]},
            "$.properties.p.required",
            "requires b",
        ),
        ({"type": "array"}, "$.properties.p", "any type"),
        ({"type": "array", "items": {"not": {}}}, "$.properties.p.items.not", "say what is allowed"),
        (
            {"type": "array", "items": {"type": "string"}, "contains": {}},
            "$.properties.p.contains",
            "no strict form",
        ),
        ({"allOf": [{"type": "string"}, {"minLength": 1}]}, "$.properties.p.allOf", "as one schema"),
        ({"oneOf": [{"type": "string"}, {"minLength": 1}]}, "$.properties.p.oneOf", "may overlap"),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "$.properties.p.oneOf", "may overlap"),
        ({"oneOf": [ONE, ONE]}, "$.properties.p.oneOf", "may overlap"),
        ({"oneOf": [ONE_OR_NULL, TWO_OR_NULL]}, "$.properties.p.oneOf", "may overlap"),
        ({"type": "string", "anyOf": [{"minLength": 1}]}, "$.properties.p.type", "beside anyOf"),
        ({"$ref": "#/$defs/d", "maxLength": 1}, "$.properties.p.maxLength", "beside $ref"),
        ({"enum": [{"a": 1}]}, "$.properties.p.enum", "objects or arrays"),
        ({"type": "string", "nullable": True}, "$.properties.p.nullable", 'add "null"'),
        ({"type": "string", "minimun": 3}, "$.properties.p.minimun", "no strict form"),
        ({"type": "string", "properties": {}}, "$.properties.p.properties", "no effect"),
        ({"type": "string", "if": {}, "then": False}, "$.properties.p.if", "use anyOf"),
        ({"$dynamicRef": "#/$defs/d"}, "$.properties.p.$dynamicRef", "use $ref"),
        ({"$ref": "#/$defs/t"}, "$.properties.p.$ref", "without a strict form"),
    ],
)
def test_a_construct_without_strict_form_is_refused_with_its_path(part: Any, path: str, reason: str) -> None:
    schema = with_property(part, **{"$defs": {"d": {"type": "string"}, "t": True}})
    with pytest.raises(SchemaRefused, match=r"^Invalid parameters: ") as refused:
        strict_form(schema, what="parameters")
    assert refused.value.path == path
    assert reason in refused.value.reason
    assert schema_of(schema, strict=False).json_schema == schema


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string"},
        {"type": "array", "items": {"type": "string"}},
        {"type": ["object", "null"], "properties": {}},
        {"anyOf": [ONE, TWO]},
        {"$ref": "#/$defs/d", "$defs": {"d": {"type": "string"}}},
        {"enum": ["a"]},
        {},
    ],
)
@pytest.mark.parametrize("strict", [True, False])
def test_the_root_is_an_object(schema: dict[str, Any], strict: bool) -> None:
    with pytest.raises(SchemaRefused, match=r"root.*wrap other values in a property"):
        schema_of(schema, strict=strict)


@pytest.mark.parametrize("strict", [True, False])
def test_schema_bombs_are_refused(strict: bool) -> None:
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(10_000):
        deep = with_property(deep)
    wide = {"type": "object", "properties": {f"p{index}": {"type": "string"} for index in range(30_000)}}
    pattern = with_property({"type": "string", "pattern": "(" * 2_000 + "a" + ")" * 2_000})
    endless = with_property({"$ref": "#/$defs/a"}, **{"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}]}}})
    for bomb in (deep, wide, pattern, endless):
        with pytest.raises(SchemaRefused):
            schema_of(bomb, strict=strict)


def test_a_slow_pattern_does_not_hang_validation() -> None:
    schema = schema_of(with_property({"type": "string", "pattern": "^(a+)+$"}), validate=True)
    assert not isinstance(schema.validate({"p": "a" * 40 + "b"}), Success)


def test_a_schema_grown_out_of_bounds_by_its_strict_form_is_refused() -> None:
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(30):
        deep = with_property(deep, required=False)
    assert schema_of(deep, strict=False)
    with pytest.raises(SchemaRefused, match="strict form of the schema"):
        schema_of(deep)


def back(schema: dict[str, Any], value: Any) -> Any:
    return Restorer(strict_form(schema)).restore(value)


OPTIONAL = with_property({"type": "integer", "default": 3}, required=False)


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        (OPTIONAL, {"p": None}, {}),
        (OPTIONAL, {"p": 0}, {"p": 0}),
        (OPTIONAL, {}, {}),
        (OPTIONAL, {"other": None}, {"other": None}),
        (with_property({"type": ["integer", "null"]}, required=False), {"p": None}, {"p": None}),
        (
            with_property({"anyOf": [{"type": "string"}, {"type": "null"}]}, required=False),
            {"p": None},
            {"p": None},
        ),
        (with_property({"type": "integer"}), {"p": None}, {"p": None}),
        (with_property(OPTIONAL), {"p": {"p": None}}, {"p": {}}),
        (
            with_property({"type": "array", "items": OPTIONAL}),
            {"p": [{"p": None}, {"p": 1}]},
            {"p": [{}, {"p": 1}]},
        ),
        (
            with_property({"type": "array", "prefixItems": [{"type": "null"}, OPTIONAL]}),
            {"p": [None, {"p": None}]},
            {"p": [None, {}]},
        ),
        (with_property({"anyOf": [{"type": "string"}, OPTIONAL]}), {"p": {"p": None}}, {"p": {}}),
        (with_property({"oneOf": [ONE, TWO]}), {"p": {"kind": "one", "n": None}}, {"p": {"kind": "one"}}),
        # What leaves out, adds or breaks something is still known by its constant.
        (
            with_property({"oneOf": [ONE, TWO]}),
            {"p": {"kind": "one", "n": None, "x": 1}},
            {"p": {"kind": "one", "x": 1}},
        ),
        (with_property({"$ref": "#/$defs/d"}, **{"$defs": {"d": OPTIONAL}}), {"p": {"p": None}}, {"p": {}}),
        (with_property({"$ref": "#"}, required=False), {"p": {"p": {"p": None}}}, {"p": {"p": {}}}),
        (OPTIONAL, [None], [None]),
        (OPTIONAL, None, None),
    ],
)
def test_only_a_null_that_strict_form_added_is_taken_out(schema: Any, value: Any, expected: Any) -> None:
    assert back(schema, value) == expected


def test_each_alternative_has_its_own_optional_keys() -> None:
    schema = with_property(
        {
            "anyOf": [
                with_property({"type": "integer"}, required=False),
                {
                    "type": "object",
                    "properties": {"p": {"type": "null"}, "q": {"type": "string"}},
                    "required": ["p"],
                },
            ]
        }
    )
    assert back(schema, {"p": {"p": None}}) == {"p": {}}
    assert back(schema, {"p": {"p": None, "q": None}}) == {"p": {"p": None}}


def test_a_very_deep_value_is_restored_at_every_level() -> None:
    value: dict[str, Any] = {"p": None}
    for _ in range(5_000):
        value = {"p": value}
    restored = back(with_property({"$ref": "#"}, required=False), value)
    for _ in range(5_000):
        restored = restored["p"]
    assert restored == {}


def test_strict_form_can_be_chosen_again() -> None:
    loose: Schema[Any] = schema_of(OPTIONAL, strict=False)
    strict = schema_of(loose)
    assert loose.json_schema == OPTIONAL
    assert strict.json_schema["required"] == ["p"]
    assert schema_of(strict) is strict
    with pytest.raises(FormRefused, match="validate=True is for JSON Schema"):
        schema_of(strict, validate=True)  # type: ignore[call-overload]
