from __future__ import annotations

import pytest

from perdure.models.jsontext import decode, encode


@pytest.mark.parametrize(
    ("payload", "value"),
    [
        (b'{"a": 1}', {"a": 1}),
        (b'"\\ud83d\\ude00"', "\U0001f600"),
        (b'"a\\ud800b"', "a\ufffdb"),
        (b'{"\\udc00": ["\\ud83d"]}', {"\ufffd": ["\ufffd"]}),
        (b'"a\xffb"', "a\ufffdb"),
        (b'"a\\u0000b"', "a\0b"),
    ],
)
def test_what_is_no_text_becomes_a_replacement_character(payload: bytes, value: object) -> None:
    assert decode(payload) == value


@pytest.mark.parametrize("payload", [b"", b"{", b"[DONE]", b"[" * 100_000])
def test_what_is_no_json_is_an_error(payload: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode(payload)


@pytest.mark.parametrize(
    ("value", "payload"),
    [
        ({"a": "é\0"}, '{"a":"é\\u0000"}'.encode()),
        ({"a": "x\ud800", "b": ("\udfff",)}, '{"a":"x\ufffd","b":["\ufffd"]}'.encode()),
        ({"multipleOf": 2**70}, b'{"multipleOf":1180591620717411303424}'),
    ],
)
def test_everything_can_be_written(value: object, payload: bytes) -> None:
    assert encode(value) == payload
