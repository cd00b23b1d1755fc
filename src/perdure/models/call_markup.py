"""Calls that a model wrote as plain text, in the markup of a chat template: its own, or another model's.

It happens behind a switch of models, and where a server does not parse what its model writes. Such a
text was meant to be a call; it must neither pass for an answer nor be run: nobody knows whether the
arguments in it are whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

# A text about such markup puts it between backticks, where it is not looked for.
_MARKERS = (
    r"<\|tool_calls?_section_begin\|>",  # Kimi
    r"<\|tool_call_begin\|>",
    r"<[|｜]tool[_▁]calls?[_▁]begin[|｜]>",  # DeepSeek
    r"<[|｜]DSML[|｜]",
    r"<tool_calls?>\s*[\[{<]",  # Qwen, Hermes, Jamba
    r"<tool_call>\s*[\w.-]+\s*<arg_key>",  # GLM
    r"<function=[\w.-]+>",  # Qwen Coder, Llama
    r"<\|?tool_call\|?>\s*[\[{]",  # Granite, Phi
    r"<function_calls>\s*<invoke\b",  # Claude
    r"<invoke name=",
    r"<(?:minimax|seed):tool_calls?>",  # MiniMax, Seed
    r"\[TOOL_CALLS\]",  # Mistral
    r"<\|python_tag\|>",  # Llama
    r"<\|START_ACTION\|>",  # Command
    r"<\|action_start\|>",  # InternLM
    r"<start_function_call>",  # Gemma
    r"<\|channel\|>\w+ to=",  # gpt-oss
    r"(?:commentary|analysis)\s+to=functions\.",
)
_MARKUP = re.compile("|".join(_MARKERS))
_QUOTED = re.compile(r"^[ \t]*(```|~~~).*?(?:^[ \t]*\1|\Z)|`[^`\n]+`", re.MULTILINE | re.DOTALL)
_NAMES = (
    re.compile(r"(?:functions\.)([A-Za-z_][\w-]*)(?::\d+)?"),
    re.compile(r"<function=([\w.-]+)>"),
    re.compile(r'<invoke name="([^"]{1,64})"'),
    re.compile(r'"name"\s*:\s*"([^"\\]{1,64})"'),
    re.compile(r"<tool_call>\s*([\w.-]+)\s*<arg_key>"),
    re.compile(r"tool[▁_]sep[｜|]>\s*([\w.-]+)"),
    re.compile(r"\[TOOL_CALLS\]\s*([A-Za-z_][\w.-]*)"),
)
_SCANNED = 65_536
"""Characters of a text that are looked at: markup stands at its beginning, or ends it soon after."""


def is_call_markup(text: str) -> bool:
    """Whether a text holds such a call: it was meant to be made, and must not pass for an answer."""
    return _find(text) is not None


def call_meant(text: str) -> tuple[str | None, Any]:
    """The function that such a text seems to call, and its arguments as far as they are a JSON object."""
    found = _find(text)
    if found is None:
        return None, {}
    rest = text[found : found + _SCANNED]
    names = [match for pattern in _NAMES if (match := pattern.search(rest))]
    name = min(names, key=lambda match: match.start())[1] if names else None
    for value in _objects(rest):
        inner = value.get("arguments", value.get("parameters"))
        if isinstance(inner, dict):
            return name, inner
        if "name" not in value:
            return name, value
    return name, {}


def _find(text: str) -> int | None:
    """Where the markup begins, outside of quoted code."""
    if "<" not in text and "[TOOL_CALLS]" not in text and "to=functions." not in text:
        return None
    quoted = [match.span() for match in _QUOTED.finditer(text)]
    for match in _MARKUP.finditer(text):
        if not any(start <= match.start() < end for start, end in quoted):
            return match.start()
    return None


def _objects(text: str) -> Iterator[dict[str, Any]]:
    """The JSON objects in a text, as far as they are whole."""
    decoder = json.JSONDecoder()
    place = text.find("{")
    for _ in range(8):
        if place < 0:
            return
        try:
            value, end = decoder.raw_decode(text, place)
        except (ValueError, RecursionError):
            end = place + 1
        else:
            if isinstance(value, dict):
                yield value
        place = text.find("{", end)
