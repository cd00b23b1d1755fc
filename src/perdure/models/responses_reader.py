"""Reading the stream of a Responses answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from perdure.config.settings import ProviderSettings
from perdure.models import faults
from perdure.models.errors import ModelError
from perdure.models.messages import (
    CallDone,
    Finished,
    MessageDone,
    ModelEvent,
    Native,
    Phase,
    ReasoningDelta,
    ReasoningDone,
    TextDelta,
    UsageTold,
)
from perdure.models.usage import token_usage
from perdure.wire.usage import TokenUsage

Kind = Literal["message", "reasoning", "function_call"]
Event = Mapping[str, Any]
Events = Iterable[ModelEvent]
NOTHING: Sequence[ModelEvent] = ()
PHASES: Mapping[Any, Phase] = {"commentary": "commentary", "final_answer": "final_answer"}


@dataclass(slots=True, eq=False)
class Output:
    """One output of the answer while it streams; `item` is the latest form the provider gave of it."""

    ordinal: int
    kind: Kind
    item: Event
    texts: list[str] = field(default_factory=list)
    summary: dict[int, list[str]] = field(default_factory=dict)
    raw: dict[int, list[str]] = field(default_factory=dict)
    refused: bool = False
    arguments: str | None = None
    done: bool = False


class ResponseReader:
    """Turns the events of one answer into ours; unknown events and outputs are passed over.

    Feed `read` until `is_finished`, then take what `close` holds back.
    """

    def __init__(self, provider: ProviderSettings, model: str) -> None:
        self.is_finished = False
        self._provider = provider
        self._model = model
        self._outputs: dict[Any, Output] = {}
        self._ignored: set[Any] = set()
        self._calls: list[CallDone] = []
        self._run: list[str] = []
        self._after_reasoning = False
        self._usage: TokenUsage | None = None
        self._response_id: str | None = None
        self._read: Mapping[Any, Callable[[Event], Events]] = {
            "response.output_text.delta": self._text_delta,
            "response.refusal.delta": self._refusal_delta,
            "response.reasoning_summary_text.delta": self._summary_delta,
            "response.reasoning_text.delta": self._raw_delta,
            "response.output_item.added": self._added,
            "response.output_item.done": self._item_done,
            "response.function_call_arguments.done": self._arguments_done,
            "response.completed": self._ended,
            "response.incomplete": self._ended,
            "response.failed": self._ended,
            "response.cancelled": self._ended,
            "error": self._error,
            None: self._untyped,
        }

    def read(self, event: Any) -> Events:
        """What one event of the provider says.

        Raises:
            ModelError: the provider reports a failure or an answer that is cut short.
        """
        if self.is_finished or not isinstance(event, dict):
            return NOTHING
        handler = self._read.get(event.get("type"))
        return NOTHING if handler is None else handler(event)

    def close(self) -> Iterator[ModelEvent]:
        """The calls of the complete answer in their order, then `Finished`.

        Raises:
            ModelError: the stream ended before the answer did.
        """
        if not self.is_finished:
            raise faults.cut(self._provider)
        yield from sorted(self._calls, key=lambda call: call.output)
        yield Finished(self._usage, self._response_id)

    # ---- outputs while they stream -------------------------------------------------------------

    def _output(self, event: Event, kind: Kind) -> Output | None:
        """The output that an event belongs to, also when nobody announced it."""
        key = event.get("output_index", event.get("item_id"))
        output = self._outputs.get(key)
        if output is None and key not in self._ignored:
            output = self._outputs[key] = Output(len(self._outputs), kind, {"id": event.get("item_id")})
        return output if output is not None and output.kind == kind and not output.done else None

    def _text_delta(self, event: Event) -> Events:
        output, text = self._output(event, "message"), event.get("delta")
        if output is None or not text or not isinstance(text, str):
            return NOTHING
        output.texts.append(text)
        return (TextDelta(output.ordinal, text),)

    def _refusal_delta(self, event: Event) -> Events:
        if output := self._output(event, "message"):
            output.refused = True
        return self._text_delta(event)

    def _summary_delta(self, event: Event) -> Events:
        output, text = self._output(event, "reasoning"), event.get("delta")
        if output is None or not text or not isinstance(text, str):
            return NOTHING
        part = _index(event.get("summary_index"))
        output.summary.setdefault(part, []).append(text)
        return (ReasoningDelta(output.ordinal, part, text),)

    def _raw_delta(self, event: Event) -> Events:
        """Reasoning in full, from open models; it stands in for a summary where there is none."""
        output, text = self._output(event, "reasoning"), event.get("delta")
        if output is None or output.summary or not text or not isinstance(text, str):
            return NOTHING
        part = _index(event.get("content_index"))
        output.raw.setdefault(part, []).append(text)
        return (ReasoningDelta(output.ordinal, part, text),)

    def _arguments_done(self, event: Event) -> Events:
        arguments = event.get("arguments")
        if isinstance(arguments, str) and (output := self._output(event, "function_call")):
            output.arguments = arguments
            if isinstance(name := event.get("name"), str) and not output.item.get("name"):
                output.item = {**output.item, "name": name}
        return NOTHING

    # ---- whole items ---------------------------------------------------------------------------

    def _added(self, event: Event) -> Events:
        item = event.get("item")
        if isinstance(item, dict):
            self._place(event.get("output_index", item.get("id")), item)
        return NOTHING

    def _item_done(self, event: Event) -> Events:
        item = event.get("item")
        if not isinstance(item, dict):
            return NOTHING
        output = self._place(event.get("output_index", item.get("id")), item)
        if output is None:
            # An output we cannot replay stands between the reasoning before it and what follows.
            self._after_reasoning = False
            return NOTHING
        return NOTHING if output.done else self._finish(output)

    def _place(self, key: Any, item: Event) -> Output | None:
        output = self._outputs.get(key)
        if output is not None:
            output.item = {**output.item, **item}
            return output
        kind = item.get("type")
        if kind not in ("message", "reasoning", "function_call"):
            self._ignored.add(key)
            return None
        output = self._outputs[key] = Output(len(self._outputs), kind, item)
        return output

    def _finish(self, output: Output) -> Events:
        output.done = True
        match output.kind:
            case "message":
                return self._message(output)
            case "reasoning":
                return (self._reasoning(output),)
            case "function_call":
                self._call(output)
        return NOTHING

    def _message(self, output: Output) -> Iterator[ModelEvent]:
        parts = [part for part in output.item.get("content") or () if isinstance(part, dict)]
        refusals = [part["refusal"] for part in parts if isinstance(part.get("refusal"), str)]
        said = [part["text"] for part in parts if isinstance(part.get("text"), str)] + refusals
        text = "".join(said) if said else "".join(output.texts)
        if text and not output.texts:
            yield TextDelta(output.ordinal, text)
        phase = PHASES.get(output.item.get("phase"))
        native = self._native(output, {"phase": phase} if phase else {})
        yield MessageDone(output.ordinal, text, phase, output.refused or bool(refusals), native)

    def _reasoning(self, output: Output) -> ReasoningDone:
        item = output.item
        content = _texts(item.get("content")) or _joined(output.raw)
        summary = _texts(item.get("summary")) or _joined(output.summary) or content
        opaque: dict[str, Any] = {}
        if isinstance(item.get("encrypted_content"), str):
            opaque["encrypted_content"] = item["encrypted_content"]
        if content:
            opaque["content"] = [{"type": "reasoning_text", "text": text} for text in content]
        item_id = _text(item.get("id"))
        if not self._after_reasoning:
            self._run = []
        self._run.append(item_id)
        self._after_reasoning = True
        # Without its content the provider could not read it back.
        native = Native(self._provider.name, self._model, {"id": item_id, **opaque}) if opaque else None
        return ReasoningDone(output.ordinal, tuple(summary), native)

    def _call(self, output: Output) -> None:
        item = output.item
        arguments = item.get("arguments") or output.arguments or ""
        extra = {"call_id": item["call_id"]} if item.get("call_id") else {}
        native = self._native(output, extra)
        self._calls.append(CallDone(output.ordinal, _text(item.get("name")), _text(arguments), native))

    def _native(self, output: Output, extra: Event) -> Native:
        """What replaying an output needs: its id, and which reasoning must come with it."""
        data = {
            "id": _text(output.item.get("id")),
            "reasoning": list(self._run),
            "first": self._after_reasoning,
            **extra,
        }
        self._after_reasoning = False
        return Native(self._provider.name, self._model, data)

    # ---- the end -------------------------------------------------------------------------------

    def _untyped(self, event: Event) -> Events:
        """A whole response that was not streamed, or an error without a type."""
        if event.get("error"):
            raise faults.reported(self._provider, event)
        return self._ended({"response": event}) if event.get("object") == "response" else NOTHING

    def _error(self, event: Event) -> Events:
        # The type of the event itself is "error" too, which says nothing.
        raise faults.reported(self._provider, {**event, "type": None})

    def _ended(self, event: Event) -> Events:
        response = event.get("response")
        if not isinstance(response, dict):
            response = {}
        status = response.get("status") or str(event.get("type")).removeprefix("response.")
        match status:
            case "completed":
                return self._complete(response)
            case "incomplete":
                return self._fail(response, self._incomplete(response))
            case "failed" if response.get("error"):
                return self._fail(response, faults.reported(self._provider, response["error"]))
        raise faults.garbled(self._provider, f"ended its answer as {str(status)[:40]!r} without a reason")

    def _fail(self, response: Event, failure: ModelError) -> Iterator[ModelEvent]:
        """Say what a failed or truncated answer used, and raise."""
        if (usage := usage_of(response.get("usage"))) is not None:
            yield UsageTold(usage)
        raise failure

    def _incomplete(self, response: Event) -> ModelError:
        details = response.get("incomplete_details")
        reason = details.get("reason") if isinstance(details, dict) else None
        match reason:
            case "max_output_tokens" | "max_tokens":
                return faults.truncated(self._provider)
            case "content_filter":
                return faults.filtered(self._provider)
        return faults.garbled(self._provider, f"left its answer incomplete ({str(reason)[:40]})")

    def _complete(self, response: Event) -> Iterator[ModelEvent]:
        items = response.get("output")
        for index, item in enumerate(items if isinstance(items, list) else ()):
            yield from self._catch_up(index, item)
        for output in self._outputs.values():
            if not output.done:
                if output.kind == "function_call" and output.arguments is None:
                    raise faults.garbled(self._provider, "ended its answer in the middle of a call")
                yield from self._finish(output)
        self._usage = usage_of(response.get("usage"))
        self._response_id = _text(response.get("id")) or None
        self.is_finished = True

    def _catch_up(self, index: int, item: Any) -> Events:
        """Take an item whose own closing event never came from the closing event of the answer."""
        if not isinstance(item, dict):
            return NOTHING
        item_id = item.get("id")
        by_id = next(
            (key for key, one in self._outputs.items() if item_id and one.item.get("id") == item_id), None
        )
        key = index if by_id is None else by_id
        known = self._outputs.get(key)
        if key in self._ignored or (known is not None and known.done):
            return NOTHING
        return self._item_done({"output_index": key, "item": item})


def usage_of(usage: Any) -> TokenUsage | None:
    """The counts of a response, as far as it tells any."""
    if not isinstance(usage, dict):
        return None
    read = usage.get("input_tokens_details") or {}
    written = usage.get("output_tokens_details") or {}
    return token_usage(
        read=usage.get("input_tokens"),
        written=usage.get("output_tokens"),
        cached=read.get("cached_tokens"),
        reasoning=written.get("reasoning_tokens"),
    )


def _texts(parts: Any) -> list[str]:
    found = [part.get("text") for part in parts or () if isinstance(part, dict)]
    return [text for text in found if isinstance(text, str) and text]


def _joined(parts: Mapping[int, list[str]]) -> list[str]:
    return ["".join(parts[index]) for index in sorted(parts)]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _index(value: Any) -> int:
    return value if isinstance(value, int) and value >= 0 else 0
