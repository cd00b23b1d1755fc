"""Calls that a model wrote as plain text, in the markup of another model's chat template."""

from __future__ import annotations

import re

_MARKUP = re.compile(
    r"<\|tool_calls?_section_begin\|>|<\|tool_call_begin\|>|<｜tool▁calls?▁begin｜>|<tool_call>\s*\{"
)


def is_call_markup(text: str) -> bool:
    """Whether a text holds such a call: it was meant to be made, and must not pass for an answer."""
    return _MARKUP.search(text) is not None
