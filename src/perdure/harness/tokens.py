"""How many tokens a request has: estimated from its bytes, corrected by what the provider reported."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import assert_never

from perdure.models.messages import (
    AssistantMessage,
    Entry,
    FunctionCall,
    FunctionResult,
    ImagePart,
    ModelRequest,
    Native,
    Part,
    Reasoning,
    ServerNote,
    TextPart,
    UserMessage,
)
from perdure.wire.jsontext import dumps

BYTES_PER_TOKEN = 4
FRAME = 20
"""Tokens of what stands around an entry: roles, ids, brackets."""
IMAGE = 1600
"""Tokens of an image, whatever its bytes: about the most that a provider takes for one."""
LEAST, MOST = 0.8, 4.0
"""Between these the estimate is corrected; a provider that reports less is not believed."""
SIGNIFICANT = 500
"""Requests with fewer tokens tell nothing: in them the frames outweigh the text."""


def text_tokens(text: str) -> int:
    size = len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
    return size // BYTES_PER_TOKEN + 1


def text_of_size(tokens: int) -> int:
    """Bytes of a text with about so many tokens."""
    return tokens * BYTES_PER_TOKEN


def entry_tokens(entry: Entry) -> int:
    match entry:
        case ServerNote(compacted=compacted) if compacted is not None:
            return FRAME + compacted.tokens
        case UserMessage() | ServerNote():
            return FRAME + _parts(entry.content)
        case AssistantMessage():
            return FRAME + text_tokens(entry.text) + _native(entry.native)
        case Reasoning():
            return FRAME + sum(map(text_tokens, entry.summary)) + _native(entry.native)
        case FunctionCall():
            # Arguments are JSON inside of JSON: every quote is escaped.
            return 2 * FRAME + text_tokens(entry.arguments) * 5 // 4 + _native(entry.native)
        case FunctionResult():
            content = entry.content
            return 2 * FRAME + (text_tokens(content) if isinstance(content, str) else _parts(content))
    assert_never(entry)


def entries_tokens(entries: Iterable[Entry]) -> int:
    return sum(map(entry_tokens, entries))


def fixed_tokens(request: ModelRequest) -> int:
    """What every request of an agent begins with: instructions, functions, output schema."""
    total = text_tokens(request.instructions) + FRAME
    for tool in request.tools:
        total += 2 * FRAME + text_tokens(tool.description) + len(dumps(tool.parameters)) // BYTES_PER_TOKEN
    if request.output_schema is not None:
        total += FRAME + len(dumps(request.output_schema)) // BYTES_PER_TOKEN
    return total


class Gauge:
    """The relation between estimates and what the provider of a conversation counts."""

    def __init__(self) -> None:
        self.factor = 1.0
        self.reported: int | None = None
        self._target: tuple[str, str] | None = None

    def tokens(self, estimate: int, target: tuple[str, str]) -> int:
        """The estimate for a provider and model, corrected if they have been asked before."""
        return int(estimate * self.factor_for(target))

    def factor_for(self, target: tuple[str, str]) -> float:
        return self.factor if self._target == target else 1.0

    def learn(self, estimate: int, reported: int | None, target: tuple[str, str]) -> None:
        """Take in what a provider reported for a request."""
        if reported is None or reported <= 0:
            return
        self.reported = reported
        if estimate < SIGNIFICANT:
            return
        factor = min(MOST, max(LEAST, reported / estimate))
        if self._target != target or factor > self.factor:
            self.factor = factor
        else:
            # Down it goes slowly: one request of plain prose does not make the next one short.
            self.factor += (factor - self.factor) / 4
        self._target = target


def _parts(parts: Sequence[Part]) -> int:
    total = 0
    for part in parts:
        match part:
            case TextPart():
                total += text_tokens(part.text) + FRAME // 2
            case ImagePart():
                total += IMAGE
    return total


def _native(native: Native | None) -> int:
    return 0 if native is None else len(dumps(dict(native.data))) // BYTES_PER_TOKEN
