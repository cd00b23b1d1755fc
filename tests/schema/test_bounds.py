"""Which schemas are accepted when they are given."""

from __future__ import annotations

from typing import Any

import pytest
from tests.schema.generated import DRAFTS

from perdure.schema.arguments import validator_for
from perdure.schema.bounds import (
    DEPTH,
    NODES,
    SCHEMA_BYTES,
    check_schema,
)
from perdure.schema.patterns import LARGE_PATTERNS, PATTERN_CHARACTERS, PATTERNS
from perdure.schema.refusals import SchemaRefused

Json = Any


def with_properties(**properties: Json) -> dict[str, Json]:
    return {"type": "object", "properties": properties}


def refusal(schema: Json, **options: Json) -> SchemaRefused:
    with pytest.raises(SchemaRefused) as caught:
        check_schema(schema, **options)
    assert len(str(caught.value)) < 1_000
    return caught.value


# ---- roots -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {"type": "object", "properties": {}, "additionalProperties": False},
        {},
        {"properties": {"a": {"type": "string"}}},
        {"$ref": "#/$defs/a", "$defs": {"a": {"type": "object"}}},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"properties": {}}}},
        {"type": "object", "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
        {"$id": "https://example.com/order.json", "type": "object"},
    ],
)
def test_a_root_that_describes_an_object_is_accepted(schema: Json) -> None:
    check_schema(schema)
    assert validator_for(schema).problems([]) or "type" not in schema


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ({"type": "array", "items": {}}, "$.type"),
        ({"type": "string"}, "$.type"),
        ({"type": ["object", "null"]}, "$.type"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}}}, "$.$defs.a.type"),
        ({"$ref": "#/$defs/a", "$defs": {"a": False}}, "$.$ref"),
        (
            {
                "$schema": DRAFTS[7],
                "type": "object",
                "$ref": "#/definitions/a",
                "definitions": {"a": {"type": "array"}},
            },
            "$.definitions.a.type",
        ),
    ],
)
def test_a_root_that_is_no_object_is_refused_with_its_path(schema: Json, path: str) -> None:
    assert refusal(schema).path == path


@pytest.mark.parametrize("keyword", ["oneOf", "anyOf", "allOf"])
def test_a_plain_root_has_no_combinators(keyword: str) -> None:
    schema = {"type": "object", keyword: [{"type": "object"}]}
    check_schema(schema)
    refused = refusal(schema, plain_root=True, what="text.format.schema")
    assert refused.path == f"$.{keyword}"
    assert "text.format.schema" in str(refused)
    check_schema(with_properties(a={keyword: [{}]}), plain_root=True)


@pytest.mark.parametrize("schema", [None, [], "{}", 3])
def test_what_is_no_object_is_no_schema(schema: Json) -> None:
    assert refusal(schema).path == "$"


# ---- validity ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "path", "reason"),
    [
        (with_properties(a={"type": "strng"}), "$.properties.a.type", "strng"),
        ({"type": "object", "properties": []}, "$.properties", "must be an object, got an array"),
        ({"type": "object", "required": "a"}, "$.required", "must be an array, got a string"),
        (
            with_properties(**{"a b": {"enum": 3}}),
            '$.properties["a b"].enum',
            "must be an array, got a number",
        ),
        ({"type": "object", "allOf": [{}, {"items": [{}]}]}, "$.allOf[1].items", "draft 2020-12"),
        ({"$schema": "https://example.com/mine", "type": "object"}, "$.$schema", "is not one of"),
        ({"$schema": None, "type": "object"}, "$.$schema", "is not one of"),
    ],
)
def test_a_schema_that_its_draft_forbids_is_refused_with_the_path(
    schema: Json, path: str, reason: str
) -> None:
    refused = refusal(schema)
    assert refused.path == path
    assert reason in refused.reason


@pytest.mark.parametrize("year", sorted(DRAFTS))
def test_every_draft_since_4_is_known(year: int) -> None:
    uri = DRAFTS[year]
    for spelling in (uri, uri.rstrip("#"), uri.replace("http://", "https://")):
        check_schema({"$schema": spelling, "type": "object"})
    assert refusal({"$schema": uri, "type": "object", "properties": {"a": 3}}).path == "$.properties.a"


def test_a_draft_7_schema_keeps_draft_7_meanings() -> None:
    tuples = {"items": [{"type": "string"}], "additionalItems": False}
    schema = {"$schema": DRAFTS[7], "type": "object", "properties": {"a": tuples}}
    check_schema(schema)
    assert validator_for(schema).problems({"a": ["x"]}) == ()
    assert [str(problem) for problem in validator_for(schema).problems({"a": ["x", 1]})] == [
        "a[1]: is not allowed"
    ]


@pytest.mark.parametrize(
    ("part", "path"),
    [
        ({"minimum": float("nan")}, "$.properties.a.minimum"),
        ({"maximum": float("inf")}, "$.properties.a.maximum"),
        ({"const": 1 << 64}, "$.properties.a.const"),
        ({"title": "\ud800"}, "$.properties.a.title"),
        ({"default": {1, 2}}, "$.properties.a.default"),
        ({"default": (1, 2)}, "$.properties.a.default"),
        ({3: 4}, "$.properties.a"),
    ],
)
def test_what_json_cannot_say_is_refused(part: Json, path: str) -> None:
    assert refusal(with_properties(a=part)).path == path


# ---- references --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "reference",
    [
        "http://127.0.0.1:9/x.json",
        "https://json-schema.org/draft/2020-12/schema",
        "other.json",
        "file:///etc/passwd",
        "",
    ],
)
def test_a_reference_never_leaves_the_schema(reference: str) -> None:
    refused = refusal(with_properties(a={"$ref": reference}))
    assert refused.path == "$.properties.a.$ref"


@pytest.mark.parametrize(
    "reference", ["#/$defs/missing", "#missing", "#/properties/a/enum/7", "#/properties/a/enum"]
)
def test_a_reference_to_nothing_is_refused(reference: str) -> None:
    schema = with_properties(a={"enum": [1]}, b={"$ref": reference})
    assert refusal(schema).path == "$.properties.b.$ref"


def test_data_that_looks_like_a_reference_or_pattern_is_left_alone() -> None:
    check_schema(
        {
            "type": "object",
            "properties": {
                "$ref": {"type": "string"},
                "pattern": {"type": "string"},
                "$id": {"type": "string"},
            },
            "default": {"$ref": "http://example.com", "pattern": "["},
            "examples": [{"$ref": "nowhere"}],
            "x-extension": {"$ref": "http://example.com", "pattern": "["},
            "required": ["$ref"],
        }
    )


@pytest.mark.parametrize(
    "reference", ["#/$defs/a~1b%20c", "#anchor", "#/$defs/list/allOf/0", "#/x-parts/part", "#/$defs/always"]
)
def test_every_kind_of_local_reference_is_followed(reference: str) -> None:
    schema = with_properties(a={"$ref": reference}) | {
        "$defs": {
            "a/b c": {"type": "string"},
            "named": {"$anchor": "anchor", "type": "string"},
            "list": {"allOf": [{"type": "string"}]},
            "always": True,
        },
        "x-parts": {"part": {"type": "string"}},
    }
    check_schema(schema)
    assert validator_for(schema).problems({"a": "x"}) == ()
    assert bool(validator_for(schema).problems({"a": 1})) is (reference != "#/$defs/always")


def test_recursion_through_the_value_is_fine() -> None:
    check_schema({"type": "object", "properties": {"child": {"$ref": "#"}}})
    check_schema(
        with_properties(tree={"$ref": "#/$defs/node"})
        | {
            "$defs": {
                "node": {
                    "type": "object",
                    "properties": {
                        "left": {"$ref": "#/$defs/node"},
                        "all": {"items": {"$ref": "#/$defs/node"}},
                    },
                }
            }
        }
    )


@pytest.mark.parametrize(
    ("defs", "path"),
    [
        ({"a": {"$ref": "#/$defs/a"}}, "$.$defs.a"),
        ({"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, None),
        ({"a": {"anyOf": [{"type": "null"}, {"not": {"$ref": "#/$defs/a"}}]}}, None),
        ({"a": {"if": {"$ref": "#/$defs/a"}}}, None),
        ({"a": {"dependentSchemas": {"x": {"$ref": "#/$defs/a"}}}}, None),
    ],
)
def test_a_circle_of_references_that_never_ends_is_refused(defs: Json, path: str | None) -> None:
    for start in ({"$ref": "#/$defs/a"}, {}):
        refused = refusal(with_properties(p=start) | {"$defs": defs})
        assert "without end" in refused.reason
        assert path is None or refused.path == path
    assert "without end" in refusal({"$ref": "#"}).reason


def test_an_identifier_below_the_root_is_refused() -> None:
    refused = refusal(with_properties(a={"$id": "urn:other", "type": "string"}))
    assert refused.path == "$.properties.a.$id"
    check_schema(
        {
            "$schema": DRAFTS[7],
            "type": "object",
            "definitions": {"a": {"$id": "#a"}},
            "allOf": [{"$ref": "#a"}],
        }
    )


def test_an_anchor_has_one_place() -> None:
    refused = refusal({"type": "object", "$defs": {"a": {"$anchor": "x"}, "b": {"$anchor": "x"}}})
    assert refused.path == "$.$defs.b.$anchor"


# ---- sizes -------------------------------------------------------------------------------------


def nested(levels: int) -> Json:
    schema: Json = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def test_depth_is_bounded() -> None:
    check_schema(nested(DEPTH // 2 - 1))
    for levels in (DEPTH // 2, 10_000):
        assert "deeper" in refusal(nested(levels)).reason
        with pytest.raises(SchemaRefused):
            validator_for(nested(levels))


def test_the_number_of_values_is_bounded() -> None:
    check_schema(with_properties(a={"enum": list(range(NODES - 10))}))
    for many in (NODES, 30 * NODES):
        assert "more than" in refusal(with_properties(a={"enum": list(range(many))})).reason


def test_the_size_is_bounded() -> None:
    check_schema({"type": "object", "description": "x" * (SCHEMA_BYTES - 100)})
    for size in (SCHEMA_BYTES, 40 * SCHEMA_BYTES):
        assert "KiB" in refusal({"type": "object", "description": "x" * size}).reason


def test_a_property_with_a_long_name_is_named_shortly() -> None:
    assert len(refusal(with_properties(**{"x" * 10_000: {"type": "strng"}})).path) <= 200


def test_options_that_can_only_be_compared_one_by_one_are_few() -> None:
    check_schema(with_properties(a={"enum": [f"v{i}" for i in range(5_000)]}))
    check_schema(with_properties(a={"enum": [{"a": i} for i in range(50)]}))
    refused = refusal(with_properties(a={"enum": [{"a": i} for i in range(51)]}))
    assert refused.path == "$.properties.a.enum"


# ---- patterns ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+$",
        r"^[A-Z]-\d{4}$",
        r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$",  # pydantic has written this for Decimal
        r"^(?=.*[A-Z])(?=.*\d).{8,}$",
        r"(a)\1",
        r"^[\p{L}\p{N} ._-]{1,64}$",
        r"^[\w\s]{1,500}$",
    ],
)
def test_patterns_in_use_are_accepted(pattern: str) -> None:
    check_schema(with_properties(a={"pattern": pattern}))


@pytest.mark.parametrize("pattern", ["[", "a(?", "(?:a{1000}){1000}", r"\p{L}{1,1000}", "*"])
def test_a_pattern_that_cannot_be_compiled_is_refused_with_its_path(pattern: str) -> None:
    assert refusal(with_properties(order_id={"pattern": pattern})).path == "$.properties.order_id.pattern"
    by_name = {"type": "object", "patternProperties": {pattern: {}}}
    assert refusal(by_name).parts == ("patternProperties", pattern)
    assert (
        refusal({"type": "object", "$defs": {"unused": {"pattern": pattern}}}).path
        == "$.$defs.unused.pattern"
    )


def test_patterns_are_bounded_in_length_and_number() -> None:
    check_schema(with_properties(a={"pattern": "a" * PATTERN_CHARACTERS}))
    assert (
        refusal(with_properties(a={"pattern": "a" * (PATTERN_CHARACTERS + 1)})).path
        == "$.properties.a.pattern"
    )
    many = {f"p{i}": {"pattern": f"^{i}$"} for i in range(PATTERNS)}
    check_schema(with_properties(**many))
    assert "patterns" in refusal(with_properties(**many, more={"pattern": "x"})).reason
    large = {f"p{i}": {"pattern": rf"\p{{L}}{{1,{20 + i}}}"} for i in range(LARGE_PATTERNS)}
    check_schema(with_properties(**large))
    assert (
        refusal(with_properties(**large, more={"pattern": r"\p{L}{1,30}"})).path
        == "$.properties.more.pattern"
    )


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        (r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$", "-1.50", "."),
        (r"^(?=.*[A-Z])(?=.*\d).{8,}$", "Abcdefg1", "abcdefg1"),
        (r"^(a|b)\1$", "aa", "ab"),
    ],
)
def test_lookaround_and_back_references_decide(pattern: str, matching: str, other: str) -> None:
    validator = validator_for(with_properties(a={"pattern": pattern}, plain={"pattern": "^x+$"}))
    assert validator.problems({"a": matching, "plain": "xx"}) == ()
    assert [problem.path for problem in validator.problems({"a": other, "plain": "y"})] == ["a", "plain"]


def test_the_same_pattern_counts_once() -> None:
    check_schema(with_properties(**{f"p{i}": {"pattern": "^[a-z]+$"} for i in range(10 * PATTERNS)}))


# ---- fan-out -----------------------------------------------------------------------------------


def fan_out(levels: int, **more: Json) -> Json:
    """Each level applies the next one twice to the same value."""
    steps = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2, **more} for i in range(levels)}
    return with_properties(a={"$ref": "#/$defs/d0"}) | {"$defs": steps | {f"d{levels}": {"type": "integer"}}}


def test_references_that_fan_out_are_still_checked() -> None:
    check_schema(fan_out(40))
    assert validator_for(fan_out(40)).problems({"a": 1}) == ()
    assert [str(problem) for problem in validator_for(fan_out(20)).problems({"a": "x"})] == [
        "a: must be an integer, got a string"
    ]


def test_fan_out_with_unevaluated_properties_is_refused() -> None:
    check_schema(fan_out(3, unevaluatedProperties=False))
    for levels in (12, 40):
        assert "unevaluated" in refusal(fan_out(levels, unevaluatedProperties=False)).reason


def test_a_long_chain_of_references_is_accepted() -> None:
    steps: Json = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(3_000)}
    schema = with_properties(a={"$ref": "#/$defs/d0"}) | {"$defs": steps | {"d3000": {"type": "integer"}}}
    check_schema(schema)
    assert validator_for(schema).problems({"a": 1}) == ()
    assert validator_for(schema).problems({"a": "x"})


def test_the_schema_given_is_not_changed_and_later_changes_do_not_matter() -> None:
    schema = {
        "$schema": DRAFTS[2020],
        "$id": "urn:x",
        "type": "object",
        "properties": {"a": {"type": "string"}},
    }
    before = repr(schema)
    validator = validator_for(schema)
    check_schema(schema)
    assert repr(schema) == before
    schema["properties"]["a"]["type"] = "integer"  # type: ignore[index]
    assert validator.problems({"a": "x"}) == ()
    assert validator_for(schema).problems({"a": "x"})
