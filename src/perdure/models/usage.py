"""Token counts as providers tell them: unknown stays unknown, never zero."""

from __future__ import annotations

from typing import Any

from perdure.wire.usage import TokenUsage


def token_usage(*, read: Any, written: Any, cached: Any = None, reasoning: Any = None) -> TokenUsage | None:
    """The usage of one model call, or None when the provider gave no counts or only zeros.

    Args:
        read: all input tokens, the `cached` ones included.
        written: all output tokens, the `reasoning` ones included.
    """
    input_tokens, output_tokens = _count(read), _count(written)
    if not input_tokens and not output_tokens:
        return None
    return TokenUsage.of(
        input_tokens, output_tokens, cached_tokens=_count(cached), reasoning_tokens=_count(reasoning)
    )


def _count(value: Any) -> int:
    """A count in a provider's JSON, where 12.0 and null occur too."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return max(0, int(value))
