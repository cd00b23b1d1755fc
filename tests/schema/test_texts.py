"""Reading what a model wrote as arguments."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.schema.texts import ARGUMENT_BYTES, ArgumentFault, parse_arguments

Json = Any


def fault(text: str) -> ArgumentFault:
    result = parse_arguments(text)
    assert isinstance(result, ArgumentFault)
    return result


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("{}", {}),
        (' {"a": [1, 2.5, true, null, "x"]}\n', {"a": [1, 2.5, True, None, "x"]}),
        ("", {}),
        (" \n\t", {}),
        ('{"a": 123456789012345678901234567890}', {"a": 123456789012345678901234567890}),
        ('{"a": 1e308}', {"a": 1e308}),
        (r'{"a": "\ud83d\ude00"}', {"a": "😀"}),
    ],
)
def test_an_object_is_read(text: str, arguments: Json) -> None:
    assert parse_arguments(text) == arguments


def test_an_object_inside_one_string_is_taken_out() -> None:
    inner = json.dumps({"order_id": "A-1042", "note": 'say "hi"'})
    assert parse_arguments(json.dumps(inner)) == json.loads(inner)
    assert fault(json.dumps(json.dumps(inner))).kind == "not_an_object"
    assert fault(json.dumps('{"a":')).kind == "not_an_object"
    assert fault(json.dumps('{"a": 1, "a": 2}')).kind == "not_an_object"


@pytest.mark.parametrize(
    ("text", "got"),
    [("null", "null"), ("[]", "an array"), ('"x"', "a string"), ("3", "a number"), ("true", "a boolean")],
)
def test_what_is_no_object_is_a_fault(text: str, got: str) -> None:
    assert fault(text) == ArgumentFault("not_an_object", f"is {got}, must be a JSON object")


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ('{"a": 1,}', "line 1 column 9"),
        ('{"a": "tru', "line 1 column 10"),
        ('{"a":\n  tru}', "line 2 column 6"),
        ("{'a': 1}", "line 1 column 2"),
        ('{"a": 1} {"b": 2}', "line 1 column 10"),
        ('{"a": NaN}', "line 1 column 7"),
        ('{"a": Infinity}', "line 1 column 7"),
        ('{"a": -Infinity}', "line 1 column"),
        ('```json\n{"a": 1}\n```', "line 1 column 1"),
        ("[" * 100_000, "line 1 column"),
        ('{"tagIds":{"tagIds":', "line 1 column 20"),
    ],
)
def test_broken_json_is_a_fault_with_its_position(text: str, position: str) -> None:
    found = fault(text)
    assert found.kind == "invalid_json"
    assert position in found.reason


def test_a_text_that_was_cut_off_says_so() -> None:
    assert "ends too early" in fault('{"order_id": "A-10').reason


@pytest.mark.parametrize("text", ['{"a": 1, "a": 2}', '{"x": [{"a": 1, "b": 2, "a": 1}]}'])
def test_a_key_given_twice_is_a_fault(text: str) -> None:
    found = fault(text)
    assert found.kind == "duplicate_key"
    assert 'the key "a" at line 1 column' in found.reason


def test_a_long_key_given_twice_is_cut() -> None:
    key = "k" * 50_000
    assert len(fault(f'{{"{key}": 1, "{key}": 2}}').reason) < 200


@pytest.mark.parametrize("number", ["1e999", "-1e400", "1" * 400 + ".0", "1E+0999", "1" * 5_000])
def test_a_number_outside_the_double_range_is_a_fault(number: str) -> None:
    assert fault(f'{{"a": [{number}]}}').kind == "out_of_range"


def test_the_size_is_bounded_in_bytes() -> None:
    frame = len('{"a": ""}')
    assert isinstance(parse_arguments('{"a": "' + "x" * (ARGUMENT_BYTES - frame) + '"}'), dict)
    assert fault('{"a": "' + "x" * (ARGUMENT_BYTES - frame + 1) + '"}').kind == "too_large"
    assert fault('{"a": "' + "é" * (ARGUMENT_BYTES // 2) + '"}').kind == "too_large"


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        (r'{"a": "\ud800"}', {"a": "\ufffd"}),
        (r'{"a": "x\udc00y"}', {"a": "x\ufffdy"}),
        (r'{"a": "\ud800\ud800\udc00"}', {"a": "\ufffd\U00010000"}),
        (r'{"\ud800": 1}', {"\ufffd": 1}),
        (r'{"a": "\\ud800 \ud800"}', {"a": "\\ud800 \ufffd"}),
        ('{"a": "\ud800"}', {"a": "\ufffd"}),
        ('{"a": "\ud83d\ude00"}', {"a": "😀"}),
    ],
)
def test_lone_surrogates_are_replaced(text: str, arguments: Json) -> None:
    assert parse_arguments(text) == arguments


@pytest.mark.parametrize(
    "text", ['{"a": "SECRET', '{"a": SECRET}', "SECRET", '{"a": 1} SECRET', '"SECRET"', '["SECRET"]']
)
def test_a_fault_never_repeats_the_text(text: str) -> None:
    assert "SECRET" not in fault(text).reason


@given(st.text())
def test_any_text_gives_an_object_or_a_bounded_fault(text: str) -> None:
    result = parse_arguments(text)
    if isinstance(result, ArgumentFault):
        assert len(result.reason) < 300


@given(st.binary(max_size=60).map(lambda data: data.decode("latin-1")), st.integers(0, 59))
def test_a_torn_object_never_raises(noise: str, at: int) -> None:
    text = json.dumps({"order_id": "A-1042", "lines": [{"sku": "x", "n": 1.5}]})
    parse_arguments(text[:at] + noise + text[at:])
    parse_arguments(text[:at])


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(max_size=5), json_values, max_size=4), st.booleans())
def test_reading_is_the_inverse_of_writing(value: dict[str, Json], ascii_only: bool) -> None:
    result = parse_arguments(json.dumps(value, ensure_ascii=ascii_only))
    assert result == value


def test_every_number_read_is_finite() -> None:
    result = parse_arguments('{"a": ' + "9" * 308 + "}")
    assert isinstance(result, dict)
    assert math.isfinite(float(result["a"]))  # type: ignore[arg-type]
