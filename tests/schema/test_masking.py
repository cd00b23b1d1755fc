"""No message of a library gives away a piece of the value."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.schema import Failure, Issue, Success, schema_of
from perdure.schema.masking import LEAVES, UNKNOWN, masked


def told(message: str, value: Any, path: tuple[str | int, ...] = ()) -> str:
    return masked(Issue(message, path), value).message


@pytest.mark.parametrize(
    ("message", "value", "expected"),
    [
        ("'hunter2' is not known", {"p": "hunter2"}, "'…' is not known"),
        ("Order HUNTER2 is not known", {"p": "hunter2"}, "Order … is not known"),
        ("begins with 'correct horse ba…'", {"p": "correct horse battery"}, "begins with '…'"),
        ("must be below 10, got 17", 17, "must be below 10, got …"),
        ("must be 1.5 apart", {"p": 1.5}, "must be … apart"),
        ("got 'a\\nb'", {"p": "a\nb"}, "got '…'"),
        ("must be yes or no", {"p": "yesterday"}, "must be yes or no"),
        ("must be one of a, b", {"p": "c"}, "must be one of a, b"),
        ("  two\n lines ", {}, "two lines"),
        ("", {}, UNKNOWN),
    ],
)
def test_pieces_of_the_value_are_masked(message: str, value: Any, expected: str) -> None:
    path = ("p",) if isinstance(value, dict) else ()
    assert told(message, value, path) == expected


def test_other_values_are_masked_too() -> None:
    assert told("may not be hunter2", {"p": 1, "secret": ["hunter2"]}, ("p",)) == "may not be …"


def test_a_message_about_too_much_is_not_shown() -> None:
    assert told("anything", ["x" * 10] * (LEAVES + 1)) == UNKNOWN


@given(st.text(min_size=4, max_size=40), st.text(max_size=20), st.text(max_size=20))
def test_a_quoted_value_is_never_found_in_the_message(secret: str, before: str, after: str) -> None:
    for shown in (secret, repr(secret)):
        message = told(f"{before} '{shown}' {after}", {"p": secret}, ("p",))
        if secret.strip() == secret and secret.isprintable() and secret not in f"{before}' '{after}":
            assert secret not in message


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (("a", 0, "b"), ("a", 0, "b")),
        (("a", "AnInt", 0, "b"), ("a", 0, "b")),
        (("a", 0, "missing"), ("a", 0, "missing")),
        (("a", 7), ("a",)),
        (("a", 0, "function-after[check(), int]"), ("a", 0)),
    ],
)
def test_a_path_has_only_steps_of_the_value(
    path: tuple[str | int, ...], expected: tuple[str | int, ...]
) -> None:
    assert masked(Issue("m", path), {"a": [{"b": 1}]}).path == expected


def test_the_words_of_an_author_reach_the_model_without_the_value() -> None:
    import pydantic

    class Login(pydantic.BaseModel):
        name: str
        code: str

        @pydantic.field_validator("code")
        @classmethod
        def known(cls, code: str) -> str:
            raise ValueError(f"the code {code!r} has expired, ask for a new one")

    outcome = schema_of(Login).validate({"name": "x", "code": "4711-hunter2"})
    assert not isinstance(outcome, Success)
    assert isinstance(outcome, Failure)
    assert [str(issue) for issue in outcome.issues] == ["code: the code '…' has expired, ask for a new one"]
