"""Counts of tokens as providers tell them."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.models.usage import token_usage


@pytest.mark.parametrize("count", [10**30, 2**63 - 1, 1e308, float("inf"), float("nan"), True, -1, "7", None])
def test_a_count_that_cannot_be_is_not_known(count: Any) -> None:
    assert token_usage(read=count, written=count) is None
    known = token_usage(read=5, written=3, cached=count, reasoning=count)
    assert known is not None
    assert 0 <= known.input_tokens_details.cached_tokens <= 5
    assert 0 <= known.output_tokens_details.reasoning_tokens <= 3
    assert known.total_tokens == 8


def test_an_absurd_count_makes_the_whole_usage_unknown() -> None:
    assert token_usage(read=5, written=10**13) is None
