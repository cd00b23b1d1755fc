"""Reading the stream of a Chat Completions answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from perdure.config.settings import ProviderSettings
from perdure.models import faults
from perdure.models.chat_calls import CallAssembler
from perdure.models.errors import ModelError
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

NOTHING: Sequence[ModelEvent] = ()
REASONING_FIELDS = ("reasoning_content", "reasoning")


class ChatReader:
    """Turns the chunks of one answer into events of ours.

    Feed `read` until the stream ends, then take what `close` holds back: the whole outputs.
    """

    def __init__(self, provider: ProviderSettings, model: str) -> None:
        self._provider = provider
        self._model = model
        self._next = 0
        self._text: list[str] = []
        self._text_ordinal: int | None = None
        self._refused = False
        self._reasoning: list[str] = []
        self._reasoning_ordinal: int | None = None
        self._reasoning_field: str | None = None
        self._details: list[dict[str, Any]] = []
        self._calls = CallAssembler()
        self._reason: str | None = None
        self._failure: ModelError | None = None
        self._usage: TokenUsage | None = None
        self._response_id: str | None = None

    @property
    def is_finished(self) -> bool:
        """Whether the answer is complete; a last chunk with the usage may still follow."""
        return self._reason is not None

    def read(self, chunk: Any) -> Iterable[ModelEvent]:
        """What one chunk says.

        Raises:
            ModelError: the provider reports a failure.
        """
        if not isinstance(chunk, dict):
            return NOTHING
        if chunk.get("error"):
            raise faults.reported(self._provider, chunk["error"])
        if self._response_id is None:
            self._response_id = chunk.get("id") or None
        choices = chunk.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(choice, dict):
            self._count(chunk.get("usage"), chunk.get("x_groq"))
            return NOTHING
        if chunk.get("usage") or choice.get("usage"):
            self._count(chunk.get("usage") or choice.get("usage"), None)
        delta = choice.get("delta") or choice.get("message")
        said = self._read_delta(delta) if isinstance(delta, dict) else NOTHING
        if reason := choice.get("finish_reason"):
            self._finish(str(reason), choice)
        return said

    def close(self) -> Iterator[ModelEvent]:
        """The whole outputs of the answer, then `Finished`.

        Raises:
            ModelError: the answer was cut short or withheld, or breaks the protocol.
        """
        if self._failure is not None:
            if self._usage is not None:
                yield UsageTold(self._usage)
            raise self._failure
        if self._reason is None:
            raise faults.cut(self._provider)
        calls = self._calls.calls
        text = "".join(self._text)
        if not calls and self._reason in ("tool_calls", "function_call"):
            raise faults.garbled(self._provider, "announced a call and sent none")
        if self._reasoning_ordinal is not None:
            yield self._whole_reasoning(self._reasoning_ordinal)
        if self._text_ordinal is not None:
            yield MessageDone(self._text_ordinal, text, None, self._refused)
        for call in calls:
            native = Native(self._provider.name, self._model, {"id": call.id}) if call.id else None
            yield CallDone(call.ordinal, call.name, call.arguments, native)
        yield Finished(self._usage, self._response_id)

    # ---- the parts of a chunk ------------------------------------------------------------------

    def _read_delta(self, delta: Mapping[str, Any]) -> Iterable[ModelEvent]:
        content = delta.get("content")
        if content.__class__ is str and content and len(delta) <= 2 and delta.keys() <= {"content", "role"}:
            return (self._say(content),)
        return tuple(self._read_mixed(delta, content))

    def _read_mixed(self, delta: Mapping[str, Any], content: Any) -> Iterator[ModelEvent]:
        yield from self._read_reasoning(delta)
        if isinstance(content, str) and content:
            yield self._say(content)
        elif isinstance(content, list):
            yield from self._read_parts(content)
        if isinstance(refusal := delta.get("refusal"), str) and refusal:
            self._refused = True
            yield self._say(refusal)
        pieces = delta.get("tool_calls")
        if isinstance(legacy := delta.get("function_call"), dict):
            pieces = [{"index": 0, "function": legacy}]
        if pieces:
            self._next = self._calls.add(pieces, self._next)

    def _read_parts(self, parts: list[Any]) -> Iterator[ModelEvent]:
        """Content as parts, among them reasoning: how one provider streams its thinking models."""
        for part in parts:
            match part:
                case {"type": "text", "text": str(text)} if text:
                    yield self._say(text)
                case {"type": "thinking", "thinking": list(inner)}:
                    for thought in (piece.get("text") for piece in inner if isinstance(piece, dict)):
                        if isinstance(thought, str) and thought:
                            yield self._think(thought)

    def _read_reasoning(self, delta: Mapping[str, Any]) -> Iterator[ModelEvent]:
        told = False
        for name in REASONING_FIELDS:
            text = delta.get(name)
            if isinstance(text, str) and text:
                self._reasoning_field = self._reasoning_field or name
                # Routers send the same text under both names.
                if not told:
                    yield self._think(text)
                told = True
        details = delta.get("reasoning_details")
        for detail in details if isinstance(details, list) else ():
            if isinstance(detail, dict):
                self._keep(detail)
                shown = detail.get("text") or detail.get("summary")
                if not told and isinstance(shown, str) and shown:
                    yield self._think(shown)

    def _say(self, text: str) -> TextDelta:
        if self._text_ordinal is None:
            self._text_ordinal = self._take_ordinal()
        self._text.append(text)
        return TextDelta(self._text_ordinal, text)

    def _think(self, text: str) -> ReasoningDelta:
        if self._reasoning_ordinal is None:
            self._reasoning_ordinal = self._take_ordinal()
        self._reasoning.append(text)
        return ReasoningDelta(self._reasoning_ordinal, 0, text)

    def _take_ordinal(self) -> int:
        self._next += 1
        return self._next - 1

    def _keep(self, detail: dict[str, Any]) -> None:
        """Collect opaque reasoning details, joining the pieces of one text."""
        if self._reasoning_ordinal is None:
            self._reasoning_ordinal = self._take_ordinal()
        last = self._details[-1] if self._details else {}
        key = next((key for key in ("text", "summary") if isinstance(detail.get(key), str)), None)
        same = all(last.get(name) == detail.get(name) for name in ("type", "index"))
        if key is not None and same and isinstance(last.get(key), str):
            last |= {name: value for name, value in detail.items() if value is not None and name != key}
            last[key] += detail[key]
        else:
            self._details.append(dict(detail))

    def _whole_reasoning(self, ordinal: int) -> ReasoningDone:
        text = "".join(self._reasoning)
        data: dict[str, Any] = {}
        if self._reasoning_field:
            data |= {"field": self._reasoning_field, "text": text}
        if self._details:
            data["details"] = self._details
        native = Native(self._provider.name, self._model, data) if data else None
        return ReasoningDone(ordinal, (text,) if text else (), native)

    # ---- the end -------------------------------------------------------------------------------

    def _finish(self, reason: str, choice: Mapping[str, Any]) -> None:
        self._reason = reason
        match reason:
            case "length" | "max_tokens":
                self._failure = faults.truncated(self._provider)
            case "content_filter" | "sensitive" | "safety":
                self._failure = faults.filtered(self._provider)
            case "error" | "network_error" | "abort" | "insufficient_system_resource":
                self._failure = faults.reported(self._provider, choice.get("error") or {"code": reason})
            case "model_context_window_exceeded":
                self._failure = faults.reported(self._provider, {"code": reason})

    def _count(self, usage: Any, wrapper: Any) -> None:
        if usage is None and isinstance(wrapper, dict):
            usage = wrapper.get("usage")
        if not isinstance(usage, dict):
            return
        details = usage.get("prompt_tokens_details") or {}
        written = usage.get("completion_tokens_details") or {}
        known = token_usage(
            read=usage.get("prompt_tokens"),
            written=usage.get("completion_tokens"),
            cached=details.get("cached_tokens")
            or usage.get("cached_tokens")
            or usage.get("prompt_cache_hit_tokens"),
            reasoning=written.get("reasoning_tokens"),
        )
        self._usage = known or self._usage
