"""What a model request looks like to the rules of a script."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from perdure.models.messages import (
    AssistantMessage,
    Entry,
    FunctionCall,
    FunctionResult,
    ImagePart,
    ModelRequest,
    Part,
    Reasoning,
    ServerNote,
    TextPart,
    UserMessage,
)

Newest = Literal["user", "result", "note", "assistant"]
ModelOutput = AssistantMessage | Reasoning | FunctionCall

_CHARACTERS_PER_TOKEN = 4
_TOKENS_PER_IMAGE = 512


@dataclass(frozen=True)
class Situation:
    """A request and the facts that rules ask about; `provider` is the configured name of the provider."""

    request: ModelRequest
    provider: str

    @cached_property
    def turn(self) -> int:
        """User messages so far; 1 in the first turn."""
        return sum(isinstance(entry, UserMessage) for entry in self.request.entries)

    @cached_property
    def step(self) -> int:
        """Answers of the model since the newest user message; 0 for the first call of a turn."""
        return count_answers(self._since_user, self.provider)

    @cached_property
    def next_answer(self) -> int:
        """Number of the answer that is about to be given, greater than that of any answer in the request."""
        entries = self.request.entries
        # Numbers, not only their count: after compaction fewer answers are left than were given.
        seen = (answer_number(entry, self.provider) or 0 for entry in entries)
        return max(count_answers(entries, self.provider), *seen, 0) + 1

    @cached_property
    def call_count(self) -> int:
        return sum(isinstance(entry, FunctionCall) for entry in self.request.entries)

    @cached_property
    def user(self) -> str:
        """Text of the newest user message, "" without one."""
        return next(
            (text_of(e.content) for e in reversed(self.request.entries) if isinstance(e, UserMessage)), ""
        )

    @cached_property
    def result(self) -> FunctionResult | None:
        """The latest result, however old."""
        return next((e for e in reversed(self.request.entries) if isinstance(e, FunctionResult)), None)

    @cached_property
    def new_result(self) -> FunctionResult | None:
        """The latest result if nothing but results and server notes came after the model's last answer."""
        for entry in reversed(self.request.entries):
            match entry:
                case FunctionResult():
                    return entry
                case ServerNote():
                    continue
                case _:
                    return None
        return None

    @cached_property
    def newest(self) -> Newest | None:
        """Kind of the last entry."""
        match self.request.entries[-1:]:
            case (UserMessage(),):
                return "user"
            case (FunctionResult(),):
                return "result"
            case (ServerNote(),):
                return "note"
            case (_,):
                return "assistant"
            case _:
                return None

    @cached_property
    def input_tokens(self) -> int:
        """A deterministic estimate: four characters to a token, 512 tokens to an image."""
        request = self.request
        size = len(request.instructions)
        size += sum(
            len(tool.name) + len(tool.description) + len(_json(tool.parameters)) for tool in request.tools
        )
        size += len(_json(request.output_schema)) if request.output_schema is not None else 0
        images = 0
        for entry in request.entries:
            size += len(entry_text(entry))
            content = getattr(entry, "content", ())
            images += (
                sum(isinstance(part, ImagePart) for part in content) if isinstance(content, tuple) else 0
            )
        return tokens(size) + images * _TOKENS_PER_IMAGE

    def function_of(self, result: FunctionResult) -> str | None:
        """Name of the function that a result belongs to."""
        for entry in self.request.entries:
            if isinstance(entry, FunctionCall) and entry.call_id == result.call_id:
                return entry.name
        return None

    @cached_property
    def _since_user(self) -> tuple[Entry, ...]:
        entries = self.request.entries
        last = max(
            (index for index, entry in enumerate(entries) if isinstance(entry, UserMessage)), default=-1
        )
        return entries[last + 1 :]


def count_answers(entries: Iterable[Entry], provider: str) -> int:
    """Number of model answers in `entries`.

    An answer is a run of model outputs; outputs that carry the same answer number of this provider
    belong together even where results stand between them.
    """
    count = 0
    current: object = None
    previous_is_output = False
    for entry in entries:
        is_output = isinstance(entry, ModelOutput)
        if is_output:
            number = answer_number(entry, provider)
            same = previous_is_output if number is None or current is None else number == current
            if not same:
                count += 1
                current = number
            elif current is None:
                current = number
        previous_is_output = is_output
    return count


def answer_number(entry: Entry, provider: str) -> int | None:
    """The number of the answer that an output was part of, where this provider wrote it down."""
    native = getattr(entry, "native", None)
    if native is None or native.provider != provider:
        return None
    number = native.data.get("answer")
    return number if isinstance(number, int) else None


def text_of(content: str | tuple[Part, ...]) -> str:
    """The text parts of a content, one a line."""
    if isinstance(content, str):
        return content
    return "\n".join(part.text for part in content if isinstance(part, TextPart))


def entry_text(entry: Entry) -> str:
    """Every text of an entry that a model would read."""
    match entry:
        case AssistantMessage():
            return entry.text
        case Reasoning():
            return "\n".join(entry.summary)
        case FunctionCall():
            return f"{entry.name} {entry.arguments}"
        case _:
            return text_of(entry.content)


def tokens(characters: int) -> int:
    return -(-characters // _CHARACTERS_PER_TOKEN)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=dict)
