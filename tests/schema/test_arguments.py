"""What is wrong with a value, in words that a model can act on and that never show the value."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field
from tests.schema.generated import DRAFTS, Generator

from perdure.schema.arguments import (
    DESCRIPTION_BYTES,
    Problem,
    describe_fault,
    describe_problems,
    validator_for,
)
from perdure.schema.bounds import check_schema
from perdure.schema.refusals import SchemaRefused
from perdure.schema.texts import ArgumentFault, parse_arguments
from perdure.schema.violations import FINDINGS

Json = Any

ORDER: dict[str, Json] = {
    "type": "object",
    "properties": {
        "order_id": {"type": "string", "pattern": r"^[A-Z]-\d{4}$"},
        "count": {"type": "integer", "minimum": 1, "maximum": 99},
        "state": {"enum": ["open", "paid", None]},
        "note": {"anyOf": [{"type": "string", "maxLength": 5}, {"type": "null"}]},
        "tags": {
            "type": "array",
            "items": {"type": "string"},
            "minItems": 1,
            "maxItems": 2,
            "uniqueItems": True,
        },
        "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}},
        "pay": {"oneOf": [{"$ref": "#/$defs/card"}, {"$ref": "#/$defs/cash"}]},
        "extra": {"type": "object", "additionalProperties": {"type": "number"}, "maxProperties": 1},
    },
    "required": ["order_id"],
    "additionalProperties": False,
    "$defs": {
        "line": {
            "type": "object",
            "properties": {"sku": {"type": "string"}, "price": {"type": "number", "exclusiveMinimum": 0}},
            "required": ["sku"],
            "additionalProperties": False,
        },
        "card": {
            "type": "object",
            "properties": {"kind": {"const": "card"}, "number": {"type": "string"}},
            "required": ["kind", "number"],
        },
        "cash": {"type": "object", "properties": {"kind": {"const": "cash"}}, "required": ["kind"]},
    },
}


def told(schema: Json, value: Json) -> list[str]:
    return [str(problem) for problem in validator_for(schema).problems(value)]


def about_order(**members: Json) -> list[str]:
    return told(ORDER, {"order_id": "A-1042", **members})


def test_a_valid_value_has_no_problems() -> None:
    assert validator_for(ORDER).problems({"order_id": "A-1042"}) == ()
    assert not about_order(
        count=1,
        state=None,
        note=None,
        tags=["a"],
        lines=[{"sku": "x", "price": 1}],
        pay={"kind": "card", "number": "4"},
        extra={"a": 1.5},
    )


@pytest.mark.parametrize(
    ("members", "problem"),
    [
        ({"order_id": "1042"}, r"order_id: does not match ^[A-Z]-\d{4}$"),
        ({"order_id": 1042}, "order_id: must be a string, got a number"),
        ({"count": 0}, "count: must be ≥ 1"),
        ({"count": 100}, "count: must be ≤ 99"),
        ({"count": 1.5}, "count: must be an integer, got a number with a fraction"),
        ({"count": "2"}, "count: must be an integer, got a string"),
        ({"count": True}, "count: must be an integer, got a boolean"),
        ({"state": "lost"}, 'state: must be one of "open", "paid", null'),
        ({"note": 3}, "note: must be a string or null, got a number"),
        ({"note": "longer"}, "note: must have at most 5 characters"),
        ({"tags": []}, "tags: must have at least 1 item"),
        ({"tags": ["a", "b", "c"]}, "tags: must have at most 2 items"),
        ({"tags": ["a", "a"]}, "tags: must not contain duplicates"),
        ({"tags": "a"}, "tags: must be an array, got a string"),
        ({"lines": [{"sku": "x"}, {}]}, "lines[1].sku: is required"),
        ({"lines": [{"sku": "x", "price": 0}]}, "lines[0].price: must be > 0"),
        ({"lines": [{"sku": "x", "size": 1}]}, "lines[0].size: unknown property (known: sku, price)"),
        ({"pay": {"kind": "card"}}, "pay.number: is required"),
        ({"pay": {"kind": "wire"}}, 'pay.kind: must be one of "card", "cash"'),
        ({"pay": "card"}, "pay: must be an object, got a string"),
        ({"extra": {"a b": "x"}}, 'extra["a b"]: must be a number, got a string'),
        ({"extra": {"a": 1, "b": 2}}, "extra: must have at most 1 property"),
    ],
)
def test_a_problem_names_path_and_rule(members: dict[str, Json], problem: str) -> None:
    assert about_order(**members) == [problem]


def test_the_root_has_a_name() -> None:
    assert told(ORDER, []) == ["(root): must be an object, got an array"]
    assert told(ORDER, None) == ["(root): must be an object, got null"]
    assert told(ORDER, {}) == ["order_id: is required"]


def test_every_problem_is_listed() -> None:
    assert told(ORDER, {"count": 0, "lines": [{}, 3], "orderId": "A-1042"}) == [
        "order_id: is required",
        "count: must be ≥ 1",
        "lines[0].sku: is required",
        "lines[1]: must be an object, got a number",
        "orderId: unknown property (known: order_id, count, state, note, tags, lines, pay, extra)",
    ]


@pytest.mark.parametrize(
    ("schema", "value", "problem"),
    [
        ({"const": "x"}, "y", 'must be "x"'),
        ({"multipleOf": 5}, 3, "must be a multiple of 5"),
        ({"exclusiveMaximum": 5}, 5, "must be < 5"),
        ({"minLength": 2}, "x", "must have at least 2 characters"),
        ({"minProperties": 1}, {}, "must have at least 1 property"),
        ({"not": {"type": "string"}}, "x", "matches a form that is not allowed"),
        (False, "x", "is not allowed"),
        (
            {"oneOf": [{"type": "string"}, {"minLength": 0}]},
            "x",
            "matches several of the 2 allowed forms, must match one",
        ),
        ({"anyOf": [{"minimum": 3}, {"multipleOf": 3}]}, 2, "matches none of the 2 allowed forms"),
        (
            {"contains": {"type": "string"}},
            [1],
            "must have at least 1 of the items that `contains` describes",
        ),
        ({"contains": {"type": "string"}, "maxContains": 1}, ["", ""], "must have at most 1 of the items"),
        ({"if": {"type": "string"}, "then": {"const": "x"}}, "y", 'must be "x"'),
        ({"if": {"type": "string"}, "else": {"const": 3}}, 4, "must be 3"),
        ({"allOf": [{"type": "string"}]}, 3, "must be a string, got a number"),
        (
            {"anyOf": [{"enum": ["a"]}, {"type": "null"}, {"const": "b"}]},
            "c",
            'must be one of "a", "b", or null',
        ),
        ({"type": "object", "unevaluatedProperties": False}, {"a": 1}, "does not match the schema"),
    ],
)
def test_the_words_of_every_rule(schema: Json, value: Json, problem: str) -> None:
    first = told({"type": "object", "properties": {"a": schema}}, {"a": value})[0]
    assert problem in first


def test_rules_about_names_and_companions() -> None:
    schema = {
        "type": "object",
        "propertyNames": {"maxLength": 5},
        "patternProperties": {"^n_": {"type": "number"}},
        "dependentRequired": {"card": ["name"]},
        "dependentSchemas": {"card": {"required": ["city"]}},
    }
    assert told(schema, {"toolong": 1, "n_a": "x", "card": 1}) == [
        'name: is required beside "card"',
        "city: is required",
        "toolong: the property's name must have at most 5 characters",
        "n_a: must be a number, got a string",
    ]


def test_the_alternative_that_was_meant_is_the_one_explained() -> None:
    class Cat(BaseModel):
        kind: Literal["cat"]
        lives: int

    class Dog(BaseModel):
        kind: Literal["dog"]
        tricks: list[str]

    class Adopt(BaseModel):
        pet: Cat | Dog = Field(discriminator="kind")
        price: Decimal | None = None

    schema = Adopt.model_json_schema()
    check_schema(schema)
    assert told(schema, {"pet": {"kind": "cat", "lives": 9}, "price": "12.50"}) == []
    assert told(schema, {"pet": {"kind": "dog", "tricks": [1]}}) == [
        "pet.tricks[0]: must be a string, got a number"
    ]
    assert told(schema, {"pet": {"kind": "cow"}}) == ['pet.kind: must be one of "cat", "dog"']
    assert told(schema, {"pet": {"kind": "cat", "lives": 9}, "price": []}) == [
        "price: must be a number, a string or null, got an array"
    ]


def test_recursive_values_are_explained_where_they_are_wrong() -> None:
    schema = {"type": "object", "properties": {"child": {"$ref": "#"}, "name": {"type": "string"}}}
    assert told(schema, {"child": {"child": {"name": 3}}}) == [
        "child.child.name: must be a string, got a number"
    ]


def test_formats_are_annotations() -> None:
    schema = {
        "$schema": DRAFTS[7],
        "type": "object",
        "properties": {"at": {"type": "string", "format": "date-time"}},
    }
    assert told(schema, {"at": "tomorrow"}) == []


def test_a_schema_that_is_not_acceptable_has_no_validator() -> None:
    with pytest.raises(SchemaRefused):
        validator_for({"type": "object", "properties": {"a": {"$ref": "http://example.com/x"}}})
    with pytest.raises(SchemaRefused):
        validator_for({"type": "object", "default": object()})


def test_equal_schemas_share_a_validator() -> None:
    assert validator_for(ORDER) is validator_for(json.loads(json.dumps(ORDER)))


@pytest.mark.parametrize(
    "value", [{"order_id": "\ud800"}, {"order_id": object()}, {3: 4}, {"lines": [{1, 2}]}]
)
def test_what_is_not_json_is_a_problem_and_no_exception(value: Json) -> None:
    assert validator_for(ORDER).problems(value)


# ---- bounds ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pattern", ["(a+)+$", "^(a|a)*$", r"^(?=a)(a+)+$(?!z)", r"^((a+)\2?)+$", r"(?=.*[A-Z])x"]
)
def test_a_pattern_bomb_comes_to_an_end(pattern: str) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}}
    check_schema(schema)
    assert len(told(schema, {"a": "a" * 40 + "b"})) == 1
    assert len(told(schema, {"a": "a" * 20_000 + "b"})) == 1


def nest(levels: int, leaf: Json) -> Json:
    for _ in range(levels):
        leaf = {"v": leaf}
    return leaf


@pytest.mark.parametrize("levels", [10, 60, 190, 5_000])
def test_a_deep_value_under_doubling_alternatives_comes_to_an_end(levels: int) -> None:
    schema = {"type": "object", "properties": {"v": {"anyOf": [{"$ref": "#"}, {"$ref": "#"}]}}}
    assert told(schema, nest(levels, {})) == []
    assert told(schema, nest(levels, 1))


def every_kind_in_every_kind(kinds: int) -> Json:
    references = [{"$ref": f"#/$defs/k{i}"} for i in range(kinds)]

    def kind(number: int) -> Json:
        return {
            "type": "object",
            "properties": {"v": {"anyOf": references}, "kind": {"const": number}},
            "required": ["kind"],
        }

    return {
        "type": "object",
        "properties": {"v": {"$ref": "#/$defs/k0"}},
        "$defs": {f"k{i}": kind(i) for i in range(kinds)},
    }


@pytest.mark.parametrize("kinds", [3, 30])
def test_many_kinds_that_contain_each_other_are_checked_in_bounded_time(kinds: int) -> None:
    schema = every_kind_in_every_kind(kinds)
    check_schema(schema)
    value: Json = {"kind": kinds - 1}
    for number in reversed(range(12)):
        value = {"v": value, "kind": number % kinds}
    assert told(schema, {"v": value}) == []
    value["v"]["v"]["kind"] = -1
    assert told(schema, {"v": value})
    assert told(schema, nest(24, 1))


def test_a_million_errors_are_not_collected() -> None:
    schema = {"type": "object", "properties": {"xs": {"type": "array", "items": {"type": "integer"}}}}
    problems = validator_for(schema).problems({"xs": ["x"] * 1_000_000})
    assert len(problems) == FINDINGS
    assert problems[0] == Problem("xs[0]", "must be an integer, got a string")
    assert describe_problems("f", problems).endswith("- and perhaps more")


def test_a_needle_in_a_large_value_is_still_a_problem() -> None:
    schema = {"type": "object", "properties": {"xs": {"type": "array", "items": {"type": "integer"}}}}
    assert validator_for(schema).problems({"xs": [1] * 1_000_000}) == ()
    assert validator_for(schema).problems({"xs": [1] * 1_000_000 + ["x"]})


def test_large_constants_are_cut() -> None:
    schema = {
        "type": "object",
        "properties": {
            "a": {"enum": [f"option-{i}" for i in range(5_000)]},
            "b": {"const": ["y" * 100_000]},
            "c": {"pattern": "^(?:" + "abc|" * 400 + "x)$"},
            **{f"p{i}": {} for i in range(3_000)},
        },
        "additionalProperties": False,
    }
    problems = validator_for(schema).problems({"a": 1, "b": 1, "c": "q", "d": 1})
    assert [problem.path for problem in problems] == ["a", "b", "c", "d"]
    assert all(len(problem.rule) < 400 for problem in problems)
    assert "more)" in problems[0].rule
    assert "more)" in problems[3].rule


# ---- descriptions ------------------------------------------------------------------------------


def test_a_description_names_the_tool_and_every_problem() -> None:
    problems = validator_for(ORDER).problems({"order_id": "1042", "count": 0})
    assert describe_problems("lookup_order", problems) == (
        "The arguments of lookup_order do not match its schema:\n"
        "- order_id: does not match ^[A-Z]-\\d{4}$\n"
        "- count: must be ≥ 1"
    )


def test_what_does_not_fit_is_counted() -> None:
    problems = [Problem(f"path_{i}", "é" * 50) for i in range(10)]
    text = describe_problems("f", problems, 512)
    assert len(text.encode()) <= 512
    shown = text.count("path_")
    assert 0 < shown < 10
    assert text.endswith(f"- and {10 - shown} more")


@given(
    tool=st.text(max_size=300),
    problems=st.lists(st.builds(Problem, st.text(max_size=250), st.text(max_size=400)), max_size=30),
    limit=st.integers(64, 4_096),
)
def test_a_description_keeps_its_limit(tool: str, problems: list[Problem], limit: int) -> None:
    text = describe_problems(tool, problems, limit)
    assert len(text.encode(errors="replace")) <= limit


@pytest.mark.parametrize("text", ["null", "[1", '{"a":1,"a":2}', "1e999", "[" * 500])
def test_a_fault_is_one_bounded_sentence(text: str) -> None:
    fault = parse_arguments(text)
    assert isinstance(fault, ArgumentFault)
    sentence = describe_fault("lookup_order" * 100, fault)
    assert sentence.startswith("The arguments of lookup_order")
    assert sentence.endswith(".")
    assert len(sentence.encode()) <= DESCRIPTION_BYTES


# ---- secrecy -----------------------------------------------------------------------------------


def planted(value: Json, canary: str) -> Json:
    """The value with the canary in every text, and in place of every other scalar."""
    match value:
        case dict():
            return {key: planted(inner, canary) for key, inner in value.items()}
        case list():
            return [planted(inner, canary) for inner in value]
        case _:
            return f"{value}{canary}"


@pytest.mark.parametrize("year", sorted(DRAFTS))
@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**64 - 1), canary=st.text("0123456789abcdef", min_size=24, max_size=24))
def test_no_description_repeats_the_value(year: int, seed: int, canary: str) -> None:
    draw = Generator(seed, year)
    try:
        validator = validator_for(draw.schema())
    except SchemaRefused:
        return
    for value in [planted(draw.object(), canary) for _ in range(6)]:
        text = describe_problems("f", validator.problems(value))
        assert canary not in text
        assert len(text.encode()) <= DESCRIPTION_BYTES


def test_a_huge_value_leaves_no_trace() -> None:
    secret = "sk-" + "Z" * 100_000
    for members in (
        {"order_id": secret},
        {"count": secret},
        {"pay": {"kind": secret}},
        {"tags": [secret] * 3},
    ):
        text = describe_problems("f", validator_for(ORDER).problems({"order_id": "A-1042", **members}))
        assert "ZZZ" not in text
