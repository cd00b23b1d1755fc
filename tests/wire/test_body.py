from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.wire.body import json_type, parse_json
from perdure.wire.errors import InvalidRequest, PayloadTooLarge


def parse(raw: bytes) -> dict[str, Any]:
    return parse_json(raw, max_bytes=1 << 20)


@pytest.mark.parametrize(
    ("raw", "said", "param"),
    [
        (b"", "empty", None),
        (b" \r\n\t", "empty", None),
        (b"\xef\xbb\xbf{}", "byte order mark", None),
        ("{}".encode("utf-16"), "byte order mark", None),
        ("{}".encode("utf-16-le"), "JSON", None),
        (b'{"a": "\xff"}', "UTF-8", None),
        (b'{"a": "\xed\xa0\x80"}', "UTF-8", None),
        (b"{", "JSON", None),
        (b"{} {}", "JSON", None),
        (b'{"a": 1,}', "JSON", None),
        (b"{'a': 1}", "JSON", None),
        (b'{"a": 01}', "JSON", None),
        (b'{"a": "\x00"}', "JSON", None),
        (b'{"a": "\\x"}', "JSON", None),
        (b'{"a": "\\u12"}', "invalid escape", None),
        (b'{"a": 1, "a": 2}', "Duplicate key 'a'", "a"),
        (b'{"b": {"a": 1, "\\u0061": 2}}', "Duplicate key 'a'", "b.a"),
        (b'{"x": [0, {"b": {"a": 1, "a": 2}}]}', "Duplicate key 'a'", "x[1].b.a"),
        (b'{"' + b"k" * 90 + b'":1,"' + b"k" * 90 + b'":2}', "Duplicate key", "k" * 63 + "…"),
        (b'{"a": "\\ud800"}', "lone surrogate", None),
        (b'{"a": "\\udc00"}', "lone surrogate", None),
        (b'{"a": "x\\ud83dx"}', "lone surrogate", None),
        (b'{"a": "\\ud83d\\ude00\\ud83d"}', "lone surrogate", None),
        (b'{"a": "\\udc00\\ud800"}', "lone surrogate", None),
        (b'{"\\uD800": 1}', "lone surrogate", None),
        (b'{"a": NaN}', "NaN", None),
        (b'{"a": Infinity}', "Infinity", None),
        (b'{"a": -Infinity}', "Infinity", None),
        (b'{"a": 1e999}', "out of range", None),
        (b'{"a": [{"b": -1E+400}]}', "out of range", None),
        (b'{"a": ' + b"1" * 400 + b".5}", "out of range", None),
        (b'{"a": ' + b"1" * 5000 + b"}", "number out of range", None),
        (b"[" * 100_000, "nested too deeply", None),
        (b'{"a":' * 5_000 + b"1" + b"}" * 5_000, "nested too deeply", None),
        (b'{"a": [' + b"1," * 250_000 + b"1]}", "250,000 JSON values", None),
        (b"[]", "must be a JSON object, but it is an array", None),
        (b"null", "but it is null", None),
        (b'"x"', "but it is a string", None),
        (b"1.5", "but it is a decimal number", None),
    ],
)
def test_a_body_that_is_no_strict_json_object_is_refused_in_words(
    raw: bytes, said: str, param: str | None
) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        parse(raw)
    assert said in refusal.value.message
    assert refusal.value.param == param
    assert refusal.value.code == "invalid_request_error"


def test_an_oversized_body_is_refused_with_the_limit() -> None:
    with pytest.raises(PayloadTooLarge) as refusal:
        parse_json(b'{"a": "' + b"x" * (1 << 20) + b'"}', max_bytes=1 << 20)
    assert refusal.value.status == 400
    assert "1 MiB" in refusal.value.message
    with pytest.raises(PayloadTooLarge, match="1,000 bytes"):
        parse_json(b" " * 1_001, max_bytes=1_000)


def test_what_json_permits_is_kept() -> None:
    raw = b'{"nul": "a\\u0000b", "pair": "\\ud83d\\ude00", "big": 123456789012345678901234567890, '
    raw += b'"t": "\\\\ud800"}'
    assert parse(raw) == {
        "nul": "a\x00b",
        "pair": "😀",
        "big": 123456789012345678901234567890,
        "t": "\\ud800",
    }
    assert parse(b'{"a":' * 100 + b"{}" + b"}" * 100)


texts = st.text(st.characters(exclude_categories=["Cs"]))
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=8,
)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(texts, values, max_size=4), st.booleans())
def test_every_json_object_is_read_as_the_standard_library_reads_it(
    value: dict[str, Any], ascii_only: bool
) -> None:
    raw = json.dumps(value, ensure_ascii=ascii_only).encode()
    assert parse(raw) == json.loads(raw)


@given(st.binary(max_size=60))
def test_any_bytes_are_an_object_or_a_refusal(raw: bytes) -> None:
    try:
        value: Any = parse(raw)
    except InvalidRequest:
        value = {}
    assert isinstance(value, dict)


def test_json_types_have_articles() -> None:
    named = [json_type(value) for value in (None, True, 1, 1.5, "", [], {})]
    assert named == [
        "null",
        "a boolean",
        "an integer",
        "a decimal number",
        "a string",
        "an array",
        "an object",
    ]
