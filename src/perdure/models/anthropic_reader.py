"""Reading the stream of an Anthropic answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from perdure.config.settings import ProviderSettings
from perdure.models import faults
from perdure.models.anthropic_messages import thought_id
from perdure.models.errors import ModelError
from perdure.models.jsontext import encode
from perdure.models.messages import (
    CallDone,
    Finished,
    MessageDone,
    ModelEvent,
    Native,
    ReasoningDelta,
    ReasoningDone,
    TextDelta,
    UsageTold,
)
from perdure.models.usage import token_usage
from perdure.wire.usage import TokenUsage

Event = Mapping[str, Any]
Events = Iterable[ModelEvent]
NOTHING: Sequence[ModelEvent] = ()
KINDS = ("text", "thinking", "redacted_thinking", "tool_use")
KIND_OF_DELTA = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "thinking",
    "input_json_delta": "tool_use",
}


@dataclass(slots=True, eq=False)
class Block:
    """One content block while it streams; `ordinal` is its place among our outputs, once it has one."""

    kind: str
    start: Event
    ordinal: int | None = None
    pieces: list[str] = field(default_factory=list)
    signature: list[str] = field(default_factory=list)
    done: bool = False


class AnthropicReader:
    """Turns the events of one answer into ours; unknown events and blocks are passed over.

    Feed `read` until `is_finished`, then take what `close` holds back.
    """

    def __init__(self, provider: ProviderSettings, model: str) -> None:
        self.is_finished = False
        self._provider = provider
        self._model = model
        self._blocks: dict[Any, Block] = {}
        self._next = 0
        self._run: list[str] = []
        self._texts: list[str] = []
        self._calls: list[CallDone] = []
        self._reason: str | None = None
        self._counts: dict[str, Any] = {}
        self._counted = False
        self._response_id: str | None = None
        self._read: Mapping[Any, Callable[[Event], Events]] = {
            "content_block_delta": self._delta,
            "content_block_start": self._start,
            "content_block_stop": self._stop,
            "message_start": self._message_start,
            "message_delta": self._message_delta,
            "message_stop": self._message_stop,
            "message": self._whole,
            "error": self._error,
            None: self._untyped,
        }

    def read(self, event: Any) -> Events:
        """What one event of the provider says.

        Raises:
            ModelError: the provider reports a failure or an answer that is cut short or withheld.
        """
        if self.is_finished or not isinstance(event, dict):
            return NOTHING
        handler = self._read.get(event.get("type"))
        return NOTHING if handler is None else handler(event)

    def close(self) -> Iterator[ModelEvent]:
        """The calls of the complete answer in their order, then `Finished`.

        Raises:
            ModelError: the stream ended before the answer did, or the answer breaks the protocol.
        """
        if not self.is_finished:
            raise faults.cut(self._provider)
        if not self._calls and self._reason == "tool_use":
            raise faults.garbled(self._provider, "announced a call and sent none")
        yield from self._calls
        yield Finished(self._usage(), self._response_id, self._cache_write)

    # ---- blocks while they stream --------------------------------------------------------------

    def _start(self, event: Event) -> Events:
        block = event.get("content_block")
        if not isinstance(block, dict):
            return NOTHING
        opened = self._blocks[event.get("index")] = Block(str(block.get("type")), block)
        if opened.kind == "tool_use":
            self._place(opened)
        # Usually empty; a provider that does not stream a block sends all of it here.
        return self._grow(opened, block.get("text" if opened.kind == "text" else "thinking"))

    def _delta(self, event: Event) -> Events:
        delta = event.get("delta")
        if not isinstance(delta, dict):
            return NOTHING
        kind = KIND_OF_DELTA.get(delta.get("type", ""))
        block = self._blocks.get(event.get("index"))
        if block is None and kind is not None:
            block = self._blocks[event.get("index")] = Block(kind, {})
        if block is None or block.done or block.kind != kind:
            return NOTHING
        match delta.get("type"):
            case "text_delta":
                return self._grow(block, delta.get("text"))
            case "thinking_delta":
                return self._grow(block, delta.get("thinking"))
            case "signature_delta" if isinstance(piece := delta.get("signature"), str):
                block.signature.append(piece)
            case "input_json_delta" if isinstance(piece := delta.get("partial_json"), str):
                block.pieces.append(piece)
        return NOTHING

    def _grow(self, block: Block, text: Any) -> Events:
        if not text or not isinstance(text, str) or block.kind not in ("text", "thinking"):
            return NOTHING
        block.pieces.append(text)
        ordinal = self._place(block)
        return (TextDelta(ordinal, text) if block.kind == "text" else ReasoningDelta(ordinal, 0, text),)

    def _place(self, block: Block) -> int:
        if block.ordinal is None:
            block.ordinal = self._next
            self._next += 1
        return block.ordinal

    def _stop(self, event: Event) -> Events:
        block = self._blocks.get(event.get("index"))
        return NOTHING if block is None or block.done else tuple(self._finish(block))

    # ---- whole blocks --------------------------------------------------------------------------

    def _finish(self, block: Block) -> Iterator[ModelEvent]:
        block.done = True
        text = "".join(block.pieces)
        match block.kind:
            case "text" if text:
                self._texts.append(text)
                yield MessageDone(self._place(block), text, native=self._native({}) if self._run else None)
            case "text":
                pass  # an empty text is none: what follows it follows the thinking before it
            case "thinking":
                yield from self._thought(block, text)
            case "redacted_thinking" if isinstance(data := block.start.get("data"), str) and data:
                yield ReasoningDone(self._place(block), (), self._kept({"data": data}, block.kind))
            case "tool_use":
                self._calls.append(self._call(block, text))
            case _:
                # A block we cannot replay stands between the thinking before it and what follows.
                self._run = []

    def _thought(self, block: Block, text: str) -> Iterator[ModelEvent]:
        signature = "".join(block.signature) or block.start.get("signature")
        native = None
        if isinstance(signature, str) and signature:
            native = self._kept({"thinking": text, "signature": signature}, block.kind)
        if text or native is not None:
            yield ReasoningDone(self._place(block), (text,) if text else (), native)

    def _kept(self, data: dict[str, str], kind: str) -> Native:
        self._run.append(thought_id(data))
        return Native(self._provider.name, self._model, {"type": kind, **data})

    def _call(self, block: Block, text: str) -> CallDone:
        given = block.start.get("input")
        if not text.strip():
            text = encode(given).decode() if given else "{}"
        name, call_id = block.start.get("name"), block.start.get("id")
        native = self._native({"id": call_id} if isinstance(call_id, str) and call_id else {})
        return CallDone(self._place(block), name if isinstance(name, str) else "", text, native)

    def _native(self, data: dict[str, Any]) -> Native:
        """What replaying an output needs: its id, and which thinking must come before it."""
        if self._run:
            data["thinking"] = self._run
        self._run = []
        return Native(self._provider.name, self._model, data)

    # ---- the message ---------------------------------------------------------------------------

    def _message_start(self, event: Event) -> Events:
        message = event.get("message")
        if isinstance(message, dict):
            self._response_id = message.get("id") or None
            self._count(message.get("usage"))
        # The only usage of an answer that breaks off: all of its input, and the output so far.
        told = self._told_usage()
        return NOTHING if told is None else (UsageTold(told, self._cache_write),)

    def _message_delta(self, event: Event) -> Events:
        usage, delta = event.get("usage"), event.get("delta")
        self._count(usage)
        # The first event tells only the output so far.
        self._counted = self._counted or (isinstance(usage, dict) and usage.get("output_tokens") is not None)
        if isinstance(delta, dict) and (reason := delta.get("stop_reason")):
            self._reason = str(reason)
            if failure := self._failure(self._reason, delta.get("stop_details")):
                return self._fail(failure)
        return NOTHING

    def _fail(self, failure: ModelError) -> Iterator[ModelEvent]:
        """Say what a refused or truncated answer used, and raise."""
        if (usage := self._usage()) is not None:
            yield UsageTold(usage, self._cache_write)
        raise failure

    def _failure(self, reason: str, details: Any) -> ModelError | None:
        match reason:
            case "end_turn" | "tool_use" | "stop_sequence":
                return None
            case "max_tokens":
                return faults.truncated(self._provider)
            case "model_context_window_exceeded":
                return faults.reported(self._provider, {"code": reason})
            case "refusal":
                return self._refusal(details if isinstance(details, dict) else {})
            case "pause_turn":
                return faults.garbled(self._provider, "paused its answer and left it open")
        return faults.garbled(self._provider, f"ended its answer for an unknown reason ({reason[:40]})")

    def _refusal(self, details: Event) -> ModelError:
        category, explanation = _text(details.get("category")), _text(details.get("explanation"))
        if category == "cyber":
            return faults.reported(self._provider, {"code": "cyber_policy", "message": explanation})
        return faults.filtered(self._provider, ": ".join(part for part in (category, explanation) if part))

    def _message_stop(self, event: Event) -> Events:
        if self._reason is None:
            raise faults.cut(self._provider)
        rest = [said for block in self._blocks.values() if not block.done for said in self._finish(block)]
        self.is_finished = True
        return rest

    def _whole(self, message: Event) -> Iterator[ModelEvent]:
        """A message that was not streamed."""
        content = message.get("content")
        for index, block in enumerate(content if isinstance(content, list) else ()):
            yield from self._start({"index": index, "content_block": block})
            yield from self._stop({"index": index})
        self._message_start({"message": message})
        self._message_delta({"delta": message, "usage": message.get("usage")})
        yield from self._message_stop({})

    def _error(self, event: Event) -> Events:
        # The type of the event itself is "error" too, which says nothing.
        raise faults.reported(self._provider, event.get("error") or {**event, "type": None})

    def _untyped(self, event: Event) -> Events:
        if event.get("error"):
            raise faults.reported(self._provider, event)
        return NOTHING

    # ---- usage ---------------------------------------------------------------------------------

    def _count(self, usage: Any) -> None:
        if isinstance(usage, dict):
            self._counts.update((key, value) for key, value in usage.items() if value is not None)

    def _usage(self) -> TokenUsage | None:
        return self._told_usage() if self._counted else None

    @property
    def _cache_write(self) -> int | None:
        count = self._counts.get("cache_creation_input_tokens")
        return None if count is None else _number(count)

    def _told_usage(self) -> TokenUsage | None:
        counts = self._counts
        cached = _number(counts.get("cache_read_input_tokens"))
        written = _number(counts.get("cache_creation_input_tokens"))
        details = counts.get("output_tokens_details")
        return token_usage(
            read=_number(counts.get("input_tokens")) + cached + written,
            written=counts.get("output_tokens"),
            cached=cached,
            reasoning=details.get("thinking_tokens") if isinstance(details, dict) else None,
        )


def _number(value: Any) -> int:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
