"""What a fake provider can be told to answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class Text:
    """A message; `chunks` is the size of its deltas in characters, or the deltas themselves."""

    text: str
    chunks: int | tuple[str, ...] = 8
    phase: Literal["commentary", "final_answer"] | None = None
    refusal: bool = False

    @property
    def deltas(self) -> tuple[str, ...]:
        return pieces(self.text, self.chunks)


@dataclass(frozen=True)
class Thought:
    """Reasoning: the parts of its summary, or all of it as `raw` text."""

    summary: tuple[str, ...] = ()
    raw: str = ""
    encrypted: bool = True
    chunks: int = 8


@dataclass(frozen=True)
class Call:
    """A function call. `id` is the provider's call id, as hostile as you like; None mints one."""

    name: str
    arguments: str | Mapping[str, Any] = field(default_factory=dict)
    id: str | None = None
    chunks: int = 12

    @property
    def text(self) -> str:
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments)


Output = Text | Thought | Call


@dataclass(frozen=True)
class Usage:
    input: int = 100
    output: int = 20
    cached: int = 0
    reasoning: int = 0


@dataclass(frozen=True)
class Pacing:
    """How the frames leave.

    Args:
        cut_after: frames sent before the stream ends without its closing frames.
        reset: a cut resets the connection instead of ending the body properly.
        hang_after: frames sent before the server waits for `release` (for ever without one).
        delay: seconds before each frame.
        write_size: bytes per write, whatever the frames are; None writes whole frames.
        newline: line ending of the frames.
        preamble: bytes before the first frame.
    """

    cut_after: int | None = None
    reset: bool = False
    hang_after: int | None = None
    release: asyncio.Event | None = None
    delay: float = 0.0
    write_size: int | None = None
    newline: bytes = b"\n"
    preamble: bytes = b""


Quirk = Literal[
    "no_done",  # chat: the body ends without [DONE]; responses: output items never get their done event
    "empty_final_output",  # responses: response.completed carries no output
    "no_added",  # responses: items are not announced
    "whole_calls",  # chat: a call comes in one chunk
    "object_arguments",  # chat: arguments are an object (implies whole_calls)
    "no_index",  # chat: pieces of calls have no index
    "same_index",  # chat: every call has index 0
    "repeated_names",  # chat: every piece of a call repeats its id and name
    "finish_with_delta",  # chat: finish_reason comes with the last delta
    "usage_with_finish",  # chat: usage comes with finish_reason, not in a chunk of its own
    "both_spellings",  # chat: reasoning under both of its names
    "stop_with_calls",  # chat: finish_reason is "stop" though there are calls
    "split_calls",  # gemini: every call in a chunk of its own
    "signed_text",  # gemini: the last piece of a text carries its signature, not an empty part behind it
    "late_usage",  # gemini: usage comes in a chunk of its own, behind the end
]


@dataclass(frozen=True)
class Answer:
    """A streamed answer.

    Args:
        outputs: in the order they are produced.
        usage: None leaves it out.
        end: how the answer ends; anything but "completed" cuts it at the end of the outputs.
        failure: reported in the stream after the outputs, in place of the normal end.
    """

    outputs: tuple[Output, ...]
    usage: Usage | None = Usage()
    end: Literal["completed", "max_output_tokens", "content_filter"] = "completed"
    failure: Failure | None = None
    pacing: Pacing = Pacing()
    quirks: frozenset[Quirk] = frozenset()


def answer(
    *outputs: Output,
    usage: Usage | None = Usage(),
    end: Literal["completed", "max_output_tokens", "content_filter"] = "completed",
    failure: Failure | None = None,
    quirks: tuple[Quirk, ...] = (),
    **pacing: Any,
) -> Answer:
    """Short form of `Answer`; further keywords are those of `Pacing`."""
    return Answer(outputs, usage, end, failure, Pacing(**pacing), frozenset(quirks))


@dataclass(frozen=True)
class Failure:
    """An error inside a stream; `form` chooses between the shapes that occur."""

    code: str | int | None
    message: str = "Something went wrong."
    type: str | None = None
    form: Literal["event", "nested", "failed"] = "failed"


@dataclass(frozen=True)
class Refusal:
    """An HTTP error; `body` replaces the provider's usual JSON."""

    status: int
    code: str | None = None
    message: str = "The request was refused."
    type: str | None = None
    param: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    content_type: str = "application/json"


@dataclass(frozen=True)
class Raw:
    """A body of hand-written frames: JSON values become data frames, bytes are sent as they are."""

    frames: tuple[Any, ...]
    content_type: str = "text/event-stream"
    pacing: Pacing = Pacing()


@dataclass(frozen=True)
class Silence:
    """No answer at all, not even a status, until `release`; then the connection ends."""

    release: asyncio.Event | None = None


Plan = Answer | Refusal | Raw | Silence


def pieces(text: str, chunks: int | tuple[str, ...]) -> tuple[str, ...]:
    if isinstance(chunks, tuple):
        assert "".join(chunks) == text
        return chunks
    return tuple(text[start : start + chunks] for start in range(0, len(text), chunks))
