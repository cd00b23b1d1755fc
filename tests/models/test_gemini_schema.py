"""JSON Schema in the subset of OpenAPI's schemas: acceptable, and silent about nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.providers.gemini_rules import check_schema, schema_parts

from perdure.models.gemini_schema import MAX_NODES, reduced_schema


def reduced(schema: Any) -> dict[str, Any]:
    made = reduced_schema(schema)
    check_schema(made, "schema")
    return made


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "string"}, {"type": "STRING"}),
        ({"type": ["integer", "null"], "minimum": 1}, {"type": "INTEGER", "minimum": 1, "nullable": True}),
        ({"type": "string", "enum": ["a", "b"]}, {"type": "STRING", "format": "enum", "enum": ["a", "b"]}),
        ({"const": "a"}, {"type": "STRING", "format": "enum", "enum": ["a"]}),
        (
            {"enum": ["a", None]},
            {"type": "STRING", "format": "enum", "enum": ["a"], "nullable": True},
        ),
        ({"type": "array", "items": {"type": "number"}}, {"type": "ARRAY", "items": {"type": "NUMBER"}}),
        ({"type": "object"}, {"type": "OBJECT"}),
        ({"type": "object", "properties": {}}, {"type": "OBJECT"}),
        (
            {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
            {"type": "OBJECT", "properties": {"a": {"type": "STRING"}}, "required": ["a"]},
        ),
        (
            {"anyOf": [{"type": "string"}, {"type": "null"}], "description": "A name."},
            {"type": "STRING", "nullable": True, "description": "A name."},
        ),
        (
            {"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}], "description": "Either."},
            {
                "anyOf": [
                    {"type": "STRING", "nullable": True, "description": "Either."},
                    {"type": "INTEGER", "nullable": True, "description": "Either."},
                ]
            },
        ),
        ({"type": ["string", "integer"]}, {"anyOf": [{"type": "STRING"}, {"type": "INTEGER"}]}),
        ({"type": "string", "format": "date-time"}, {"type": "STRING", "format": "date-time"}),
        (
            {"allOf": [{"type": "object", "properties": {"a": {"type": "string"}}}, {"required": ["a"]}]},
            {"type": "OBJECT", "properties": {"a": {"type": "STRING"}}, "required": ["a"]},
        ),
        (
            {
                "type": "object",
                "properties": {"to": {"$ref": "#/$defs/Place"}},
                "$defs": {"Place": {"type": "object", "properties": {"city": {"type": "string"}}}},
            },
            {
                "type": "OBJECT",
                "properties": {"to": {"type": "OBJECT", "properties": {"city": {"type": "STRING"}}}},
            },
        ),
    ],
)
def test_what_the_subset_can_say(schema: dict[str, Any], expected: dict[str, Any]) -> None:
    assert reduced(schema) == expected


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"type": "string", "format": "uuid"}, '"format":"uuid"'),
        ({"type": "integer", "multipleOf": 5}, '"multipleOf":5'),
        ({"type": "number", "exclusiveMinimum": 0}, '"exclusiveMinimum":0'),
        ({"type": "integer", "enum": [1, 2]}, '"enum":[1,2]'),
        ({"const": True}, '"enum":[true]'),
        ({"type": "string", "enum": ["", "a"]}, '"enum":["","a"]'),
        ({"type": "string", "default": "x"}, '"default":"x"'),
        ({"type": "array", "uniqueItems": True}, '"uniqueItems":true'),
        ({"type": "object", "additionalProperties": {"type": "string"}}, '"additionalProperties"'),
        ({"type": "object", "required": ["a"]}, '"required":["a"]'),
        ({"type": "object", "properties": {"a": {}}, "required": ["b"]}, '"required":["b"]'),
        ({"type": "object", "properties": {"a": {}}, "not": {"required": ["a"]}}, '"not"'),
        ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, "Exactly one"),
        ({"prefixItems": [{"type": "string"}, {"type": "integer"}]}, "in their order"),
        ({"allOf": [{"pattern": "a"}, {"pattern": "b"}]}, '"allOf":[{"pattern":"b"}]'),
        ({"type": "object", "properties": {"a": {}}, "anyOf": [{"required": ["a"]}]}, '"anyOf"'),
        ({"type": "string", "description": "A day.", "examples": ["1 May"]}, "A day.\nFurther rules"),
        ({"$ref": "#/$defs/missing"}, "of the kind missing"),
        ({"$ref": "https://example.com/schema"}, "as described elsewhere"),
        (False, "Only what fits false"),
    ],
)
def test_what_it_cannot_say_is_said_in_words(schema: Any, said: str) -> None:
    assert said in json.dumps(reduced(schema)).replace('\\"', '"').replace("\\n", "\n")


def test_a_tree_is_inlined_until_it_would_not_end() -> None:
    node = {
        "type": "object",
        "properties": {"value": {"type": "string"}, "children": {"type": "array", "items": {"$ref": "#"}}},
    }
    made = reduced(node)
    inner = made["properties"]["children"]["items"]
    assert inner["properties"]["value"] == {"type": "STRING"}
    assert "as described elsewhere" in json.dumps(inner)


def test_references_that_multiply_stay_within_bounds() -> None:
    levels = {
        f"l{n}": {
            "type": "object",
            "properties": {key: {"$ref": f"#/$defs/l{n + 1}"} for key in "abcd"},
        }
        for n in range(12)
    }
    made = reduced({"$ref": "#/$defs/l0", "$defs": {**levels, "l12": {"type": "string"}}})
    assert sum(1 for _ in schema_parts(made)) < 2 * MAX_NODES


def _schemas() -> st.SearchStrategy[Any]:
    names = st.sampled_from(["a", "b", "c"])
    types = st.sampled_from(["string", "number", "integer", "boolean", "array", "object", "null"])
    leaves = st.fixed_dictionaries(
        {},
        optional={
            "type": st.one_of(types, st.lists(types, min_size=1, max_size=3, unique=True)),
            "enum": st.lists(
                st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=3)), max_size=3
            ),
            "const": st.one_of(st.none(), st.integers(), st.text(max_size=3), st.just({"a": 1})),
            "description": st.text(max_size=10),
            "format": st.sampled_from(["uuid", "date-time", "int32", "float"]),
            "minimum": st.integers(),
            "minLength": st.integers(0, 3),
            "$ref": st.sampled_from(["#", "#/$defs/a", "#/properties/a", "#/nothing", "other"]),
            "required": st.lists(names, max_size=2),
            "nullable": st.booleans(),
        },
    )
    return st.recursive(
        st.one_of(leaves, st.booleans()),
        lambda inner: st.fixed_dictionaries(
            {},
            optional={
                "type": types,
                "description": st.text(max_size=10),
                "properties": st.dictionaries(names, inner, max_size=3),
                "required": st.lists(names, max_size=2),
                "items": st.one_of(inner, st.lists(inner, max_size=2)),
                "prefixItems": st.lists(inner, max_size=2),
                "anyOf": st.lists(inner, min_size=1, max_size=3),
                "oneOf": st.lists(inner, min_size=1, max_size=3),
                "allOf": st.lists(inner, min_size=1, max_size=3),
                "additionalProperties": inner,
                "not": inner,
                "$defs": st.dictionaries(names, inner, max_size=2),
            },
        ),
        max_leaves=8,
    )


@settings(max_examples=300, deadline=None)
@given(_schemas())
def test_whatever_the_schema_the_result_is_acceptable(schema: Any) -> None:
    made = reduced_schema(schema)
    check_schema(made, "schema")
    json.dumps(made)
