"""Final answers against the schema of `text.format`."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.schema.outputs import OUTPUT_BYTES, output_problems
from perdure.schema.refusals import SchemaRefused

REPORT: dict[str, Any] = {
    "type": "object",
    "properties": {"title": {"type": "string"}, "score": {"type": "integer"}},
    "required": ["title"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("text", ['{"title": "x"}', ' \n{"title": "x", "score": 3}\n '])
def test_one_matching_document_is_right(text: str) -> None:
    assert output_problems(REPORT, text) is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty"),
        ("  ", "is empty"),
        ('```json\n{"title": "x"}\n```', "code fence"),
        ('Here you are: {"title": "x"}', "does not begin with JSON"),
        ('{"title": "x"} I hope this helps', "something follows the JSON document at line 1 column 16"),
        ('{"title": "x"}{"title": "y"}', "something follows the JSON document"),
        ('{"title": "x', "ends too early"),
        ('{"title": "x", "title": "y"}', 'repeats the key "title"'),
        ('{"title": "x", "score": 1e999}', "double range"),
        ("null", "- (root): must be an object, got null"),
        ('"{}"', "- (root): must be an object, got a string"),
        ('{"score": "high"}', "- title: is required\n- score: must be an integer, got a string"),
    ],
)
def test_anything_else_is_described(text: str, says: str) -> None:
    description = output_problems(REPORT, text)
    assert description is not None
    assert says in description
    assert description.startswith("The answer ")


def test_a_description_is_bounded_and_repeats_nothing() -> None:
    secret = "SECRET" * 1_000
    for text in (
        f'{{"title": ["{secret}"]}}',
        f'{{"title": "{secret}',
        f"{secret}",
        f'{{"title": "x"}} {secret}',
    ):
        description = output_problems(REPORT, text)
        assert description is not None
        assert "SECRET" not in description
        assert len(description.encode()) <= 2_048
    many = "{" + ",".join(f'"{"k" * 100}{i}": 1' for i in range(1_000)) + "}"
    assert len((output_problems(REPORT, many) or "").encode()) <= 2_048


def test_the_size_is_bounded() -> None:
    assert "larger" in (output_problems(REPORT, '{"title": "' + "x" * OUTPUT_BYTES + '"}') or "")


def test_a_schema_that_is_not_acceptable_is_an_error_of_the_caller() -> None:
    with pytest.raises(SchemaRefused):
        output_problems({"type": "array"}, "[]")
