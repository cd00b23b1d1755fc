"""Plays a rule's answer: actions in, model events and waits out, without a clock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, assert_never

from perdure.models import script
from perdure.models.messages import (
    CallDone,
    Finished,
    MessageDone,
    ModelEvent,
    Native,
    ReasoningDelta,
    ReasoningDone,
    TextDelta,
)
from perdure.models.schema_sample import find_hints, sample
from perdure.models.script_situation import Situation, text_of, tokens
from perdure.models.script_template import Template, parse_json, render_tree, write_json
from perdure.wire.usage import TokenUsage


@dataclass(frozen=True, slots=True)
class FileWait:
    """Go on when the file exists; after `timeout` seconds the model call fails."""

    path: str
    timeout: float


Beat = ModelEvent | script.Pause | FileWait | script.Fault
"""What happens next: an event to yield, a wait, or the end by a fault."""


@dataclass
class Performance:
    """One answer being played. `captures` are the named groups of the rule's `user_matches`."""

    situation: Situation
    captures: Mapping[str, str]
    output: int = 0
    written: int = 0
    thought: int = 0
    values: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        situation = self.situation
        self.values = {
            **self.captures,
            "user": situation.user,
            "result": text_of(situation.result.content) if situation.result else "",
            "model": situation.request.model,
            "turn": situation.turn,
            "step": situation.step,
        }

    def play(self, reply: script.Reply) -> Iterator[Beat]:
        """The beats of the whole answer; the last one is `Finished` unless a fault ends it."""
        for action in reply.answer:
            match action:
                case script.Say():
                    yield from self._say(action)
                case script.SayJson():
                    yield from self._say_json(action)
                case script.Think():
                    yield from self._think(action)
                case script.Call():
                    yield self._call(action)
                case script.WaitForFile():
                    yield self._file_wait(action)
                case script.Pause() | script.Fault():
                    yield action
                case _:
                    assert_never(action)
        yield Finished(usage=self._usage(reply.usage), response_id=f"scripted-{self.situation.next_answer}")

    def _say(self, action: script.Say) -> Iterator[Beat]:
        if action.text is not None:
            text = action.text.render(self.values)
            yield from self._deltas(text, action.delta_size, action.pause)
        else:
            text = ""
            for chunk in action.chunks or ():
                match chunk:
                    case Template():
                        if text and action.pause:
                            yield script.Pause(pause=action.pause)
                        piece = chunk.render(self.values)
                        yield from self._deltas(piece, None, 0)
                        text += piece
                    case script.WaitForFile():
                        yield self._file_wait(chunk)
                    case _:
                        yield chunk
        yield self._message(text, action.phase, refusal=action.refusal)

    def _say_json(self, action: script.SayJson) -> Iterator[Beat]:
        value: Any = render_tree(action.values, self.values)
        schema = self.situation.request.output_schema
        if schema is not None:
            value = sample(schema, (value, self.captures, find_hints(parse_json(self.values["result"]))))
        text = write_json(value)
        yield from self._deltas(text, action.delta_size, action.pause)
        yield self._message(text, action.phase)

    def _deltas(self, text: str, size: int | None, pause: float) -> Iterator[Beat]:
        for index, piece in enumerate(_pieces(text, size)):
            if pause and index:
                yield script.Pause(pause=pause)
            yield TextDelta(self.output, piece)

    def _message(self, text: str, phase: Any, *, refusal: bool = False) -> MessageDone:
        self.written += len(text)
        native = self._native()
        return MessageDone(self._next_output(), text, phase=phase, refusal=refusal, native=native)

    def _think(self, action: script.Think) -> Iterator[Beat]:
        summary = tuple(part.render(self.values) for part in action.reasoning)
        for number, part in enumerate(summary):
            for index, piece in enumerate(_pieces(part, action.delta_size)):
                if action.pause and index:
                    yield script.Pause(pause=action.pause)
                yield ReasoningDelta(self.output, number, piece)
            self.thought += len(part)
        native = self._native(action.native)
        yield ReasoningDone(self._next_output(), summary, native=native)

    def _call(self, action: script.Call) -> CallDone:
        arguments = action.arguments_text
        if arguments is None:
            arguments = write_json(render_tree(action.arguments or {}, self.values))
        self.written += len(action.call) + len(arguments)
        native = self._native()
        return CallDone(self._next_output(), action.call, arguments, native=native)

    def _file_wait(self, action: script.WaitForFile) -> FileWait:
        return FileWait(action.wait_for_file.render(self.values), action.timeout)

    def _native(self, data: Mapping[str, Any] | None = None) -> Native:
        own: dict[str, Any] = {"answer": self.situation.next_answer, "output": self.output}
        if data is not None:
            own["data"] = dict(data)
        return Native(self.situation.provider, self.situation.request.model, own)

    def _next_output(self) -> int:
        self.output += 1
        return self.output - 1

    def _usage(self, usage: script.Usage | bool | None) -> TokenUsage | None:
        if usage is False:
            return None
        if isinstance(usage, script.Usage):
            return TokenUsage.of(
                usage.input_tokens,
                usage.output_tokens,
                cached_tokens=usage.cached_tokens,
                reasoning_tokens=usage.reasoning_tokens,
            )
        thought = tokens(self.thought)
        return TokenUsage.of(
            self.situation.input_tokens, tokens(self.written) + thought, reasoning_tokens=thought
        )


def _pieces(text: str, size: int | None) -> list[str]:
    """The text in pieces of `size` characters, or whole; nothing for an empty text."""
    if size is None:
        return [text] if text else []
    return [text[start : start + size] for start in range(0, len(text), size)]
