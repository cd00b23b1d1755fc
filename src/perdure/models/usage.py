"""Token counts as providers tell them: unknown stays unknown, never zero."""

from __future__ import annotations

import math
from typing import Any

from perdure.wire.usage import TokenUsage

MOST = 1_000_000_000_000
"""No call has more tokens; a provider that tells more tells nothing."""


def token_usage(*, read: Any, written: Any, cached: Any = None, reasoning: Any = None) -> TokenUsage | None:
    """The usage of one model call, or None when the provider gave no counts or only zeros.

    Args:
        read: all input tokens, the `cached` ones included.
        written: all output tokens, the `reasoning` ones included.
    """
    input_tokens, output_tokens = _count(read), _count(written)
    if not (input_tokens or output_tokens) or max(input_tokens, output_tokens) > MOST:
        return None
    return TokenUsage.of(
        input_tokens,
        output_tokens,
        cached_tokens=min(_count(cached), input_tokens),
        reasoning_tokens=min(_count(reasoning), output_tokens),
    )


def _count(value: Any) -> int:
    """A count in a provider's JSON, where 12.0 and null occur too."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return max(0, int(value)) if math.isfinite(value) else 0
