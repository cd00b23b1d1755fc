from __future__ import annotations

from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.models.pattern_sample import sample_text
from perdure.models.schema_sample import find_hints, sample

NODE = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
    },
    "required": ["name", "next"],
}
TREE = {"$ref": "#/$defs/node", "$defs": {"node": NODE}}
KIND = {"type": "object", "properties": {"kind": {"const": "a"}}, "required": ["kind"]}
SIBLING = {"a/b": {"type": "string"}, "c": {"$ref": "#/properties/a~1b"}}


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"const": 7},
        {"enum": ["b", "a"]},
        {"type": ["null", "string"], "minLength": 30},
        {"type": "string", "minLength": 3, "maxLength": 4},
        {"type": "string", "pattern": r"^[A-Z]-\d{4}$"},
        {"type": "string", "format": "date-time"},
        {"type": "integer", "minimum": 3, "multipleOf": 5},
        {"type": "integer", "exclusiveMinimum": -3, "exclusiveMaximum": -1},
        {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 0.5},
        {"type": "number", "maximum": -2.5},
        {"type": "array", "items": {"type": "integer"}, "minItems": 3, "uniqueItems": True},
        {"type": "array", "items": {"enum": ["a", "b", "c"]}, "minItems": 3, "uniqueItems": True},
        {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "minItems": 2},
        {"type": "object", "required": ["x"], "additionalProperties": {"type": "integer"}},
        {"type": "object", "properties": {"a": {"type": "string"}}, "minProperties": 2},
        {"properties": {"a": {"minimum": 4}}, "required": ["a"]},
        {"anyOf": [KIND, {"type": "null"}]},
        {"oneOf": [{"type": "integer"}, {"type": "string"}], "minimum": 5},
        {"oneOf": [{"type": "integer"}, {"type": "number"}, {"type": "string"}]},
        {"allOf": [{"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
                   {"properties": {"a": {"minLength": 9}, "b": {"type": "boolean"}}, "required": ["b"]}]},
        {"type": "integer", "default": 9, "minimum": 1},
        {"type": "integer", "default": 0, "minimum": 1},
        TREE,
        {"type": "object", "properties": SIBLING, "required": ["c"]},
    ],
)  # fmt: skip
def test_the_sample_satisfies_the_schema(schema: dict[str, Any]) -> None:
    value = sample(schema)
    assert jsonschema_rs.is_valid(schema, value), value
    assert sample(schema) == value


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/none"},
        {"$ref": "https://example.com/schema.json"},
        {"$ref": "#"},
        {"allOf": [{"$ref": "#"}]},
        {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]},
        {"allOf": [{"$ref": "#"}, {"$ref": "#"}]},
        {
            "type": "array",
            "minItems": 500,
            "items": {"type": "array", "minItems": 500, "items": {"const": 1}},
        },
        {"type": "objekt"},
        {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
        {"type": "object", "properties": {"a": False}, "required": ["a"]},
    ],
)
def test_an_endless_or_impossible_schema_has_no_sample(schema: dict[str, Any]) -> None:
    assert sample(schema) is None


def test_a_recursive_structure_ends_where_it_may() -> None:
    value = sample(TREE)
    depth = 0
    while value is not None:
        value, depth = value["next"], depth + 1
    assert depth < 50


def test_properties_take_fitting_hints_by_name() -> None:
    schema = {
        "type": "object",
        "properties": {
            "order_id": {"type": "string", "pattern": r"^[A-Z]-\d{4}$"},
            "status": {"enum": ["open", "shipped"]},
            "note": {"type": "string"},
            "extra": {"type": "string"},
        },
        "required": ["order_id", "status"],
    }
    hints = ({"note": "hello"}, find_hints({"order": {"order_id": "A-1042"}, "status": 3, "extra": "x"}))
    assert sample(schema, hints) == {"order_id": "A-1042", "status": "open", "note": "hello"}


def test_hints_come_from_all_depths_and_the_outermost_wins() -> None:
    assert find_hints({"a": {"b": 1, "c": 2}, "b": 3, "d": [{"c": 4, "e": 5}]}) == {
        "a": {"b": 1, "c": 2}, "b": 3, "d": [{"c": 4, "e": 5}], "c": 2, "e": 5,
    }  # fmt: skip


@pytest.mark.parametrize(
    "pattern",
    [
        r"^[A-Z]-\d{4}$",
        r"\d+",
        r"^(foo|bar)?x*y+$",
        r"^[^a-z]{2,}$",
        r"^\w+@\w+\.com$",
        r"^(?:ab){2}\.\/$",
        r"^(?P<year>\d{4})-\d\d$",
        r"[\]\-]",
        "^$",
    ],
)
def test_a_text_is_found_for_simple_patterns(pattern: str) -> None:
    text = sample_text(pattern)
    assert text is not None
    assert jsonschema_rs.is_valid({"pattern": pattern.replace("?P<", "?<")}, text)


def test_open_quantifiers_reach_the_wanted_length() -> None:
    assert sample_text("^[a-c]+$", 5) == "aaaaa"
    assert sample_text("^a{2,3}$", 4) is None
    assert sample_text("^abc$", 0, 2) is None


@pytest.mark.parametrize(
    "pattern", ["(?=a)b", r"(a)\1", "[", "(", "*", "a{99999999}", r"\p{L}", "(" * 5000, "(?!x)", r"\k<a>"]
)
def test_difficult_patterns_have_no_text(pattern: str) -> None:
    assert sample_text(pattern) is None


numbers = st.integers(-20, 20) | st.floats(-20, 20, allow_nan=False).map(lambda x: round(x, 2))


@given(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["integer", "number"])},
        optional={
            "minimum": numbers,
            "exclusiveMinimum": numbers,
            "maximum": numbers.map(lambda x: x + 50),
            "exclusiveMaximum": numbers.map(lambda x: x + 50),
            "multipleOf": st.integers(1, 7),
        },
    )
)
def test_numbers_keep_their_bounds(schema: dict[str, Any]) -> None:
    value = sample(schema)
    assert jsonschema_rs.is_valid(schema, value), value


@given(st.text(max_size=30), st.integers(0, 5))
def test_any_text_as_a_pattern_is_survived(pattern: str, least: int) -> None:
    sample_text(pattern, least)
