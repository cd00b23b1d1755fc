"""The bounded walk that finds reasons must agree with the compiled validator on every verdict."""

from __future__ import annotations

import pytest
from hypothesis import event, given, reject, settings
from hypothesis import strategies as st
from tests.schema.generated import DRAFTS, Generator

from perdure.schema.bounds import checked, schema_text
from perdure.schema.refusals import SchemaRefused
from perdure.schema.rulebook import Rulebook
from perdure.schema.violations import Walk


@pytest.mark.parametrize("year", sorted(DRAFTS))
@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 2**64 - 1))
def test_the_walk_and_the_compiled_validator_agree(year: int, seed: int) -> None:
    draw = Generator(seed, year)
    schema = draw.schema()
    try:
        accepted = checked(schema_text(schema))
    except SchemaRefused as refused:
        event(f"refused: {refused.reason[:20]}")
        reject()
    assert accepted.validator is not None
    book = Rulebook(accepted)
    for value in [draw.object() for _ in range(12)]:
        verdict = accepted.validator.is_valid(value)
        event(f"valid: {verdict}")
        findings = Walk(book).findings(accepted.root, value)
        assert (findings == ()) is verdict, (schema, value, findings)
        assert bool(Walk(book).findings(accepted.root, value, most=1)) is not verdict, (schema, value)
        assert all(finding.rule for finding in findings)
