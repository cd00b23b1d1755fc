"""Reading the stream of a Gemini answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from perdure.config.settings import ProviderSettings
from perdure.models import faults
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

NOTHING: Sequence[ModelEvent] = ()

TRUNCATED = {"MAX_TOKENS", "CONTINUATION"}
WITHHELD = {
    *("SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "MODEL_ARMOR"),
    *("IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION", "ESCALATION", "PUP_LIMITED_DISABLED"),
}
SPOILT: Mapping[str, str] = {
    "MALFORMED_FUNCTION_CALL": "broke off a call that it could not write down",
    "MALFORMED_RESPONSE": "broke off an answer that it could not write down",
    "UNEXPECTED_TOOL_CALL": "called a function that it was not offered",
    "TOO_MANY_TOOL_CALLS": "made more calls than it allows itself",
}


@dataclass(slots=True, eq=False)
class Text:
    """A message while it streams; `parts` are its lengths between signatures, each with its signature."""

    ordinal: int
    pieces: list[str] = field(default_factory=list)
    parts: list[tuple[int, str | None]] = field(default_factory=list)

    def add(self, text: str, signature: str | None) -> None:
        if text:
            self.pieces.append(text)
        last = self.parts[-1] if self.parts else (0, "")
        # A part that is signed stays apart: it must come back as it was.
        if signature is None and last[1] is None:
            self.parts[-1] = (last[0] + len(text), None)
        else:
            self.parts.append((len(text), signature))


class GeminiReader:
    """Turns the chunks of one answer into events of ours.

    Feed `read` until the stream ends, then take what `close` holds back: the whole outputs.
    """

    def __init__(self, provider: ProviderSettings, model: str) -> None:
        self._provider = provider
        self._model = model
        self._next = 0
        self._texts: list[Text] = []
        self._text: Text | None = None
        self._calls: list[CallDone] = []
        self._thoughts: list[list[str]] = []
        self._thoughts_ordinal: int | None = None
        self._thinking = False
        self._thought_signature: str | None = None
        self._reason: str | None = None
        self._failure: ModelError | None = None
        self._counts: dict[str, Any] = {}
        self._told = False
        self._response_id: str | None = None

    @property
    def is_finished(self) -> bool:
        """Whether the answer is complete; a last chunk with the usage may still follow."""
        return self._reason is not None

    def read(self, chunk: Any) -> Iterable[ModelEvent]:
        """What one chunk says; without event streams the provider sends all chunks as one list.

        Raises:
            ModelError: the provider reports a failure, or refused the prompt.
        """
        if isinstance(chunk, list):
            return [said for one in chunk for said in self.read(one)]
        if not isinstance(chunk, dict):
            return NOTHING
        if chunk.get("error"):
            raise faults.reported(self._provider, chunk)
        if isinstance(usage := chunk.get("usageMetadata"), dict):
            # Counts are of the whole answer so far, and not every chunk has all of them.
            self._counts |= {key: count for key, count in usage.items() if count is not None}
        if self._response_id is None and isinstance(response_id := chunk.get("responseId"), str):
            self._response_id = response_id or None
        feedback = chunk.get("promptFeedback")
        if isinstance(feedback, dict) and feedback.get("blockReason"):
            raise faults.filtered(self._provider, str(feedback["blockReason"]))
        candidates = chunk.get("candidates")
        candidate = candidates[0] if isinstance(candidates, list) and candidates else None
        if not isinstance(candidate, dict):
            return NOTHING
        said = [*self._tell_input(), *self._read_content(candidate.get("content"))]
        if reason := candidate.get("finishReason"):
            self._finish(str(reason), candidate.get("finishMessage"))
        return said

    def close(self) -> Iterator[ModelEvent]:
        """The whole outputs of the answer, then `Finished`.

        Raises:
            ModelError: the answer was cut short, withheld or empty, or breaks the protocol.
        """
        if self._failure is not None:
            if (usage := self._usage()) is not None:
                yield UsageTold(usage)
            raise self._failure
        if self._reason is None:
            raise faults.cut(self._provider)
        messages = [text for text in self._texts if text.pieces]
        if not messages and not self._calls:
            raise faults.garbled(self._provider, "sent an answer with nothing in it")
        if self._thoughts_ordinal is not None:
            yield self._whole_thoughts(self._thoughts_ordinal)
        for text in messages:
            yield MessageDone(text.ordinal, "".join(text.pieces), native=self._native_of(text))
        yield from self._calls
        yield Finished(self._usage(), self._response_id)

    # ---- the parts of a chunk ------------------------------------------------------------------

    def _read_content(self, content: Any) -> list[ModelEvent]:
        parts = content.get("parts") if isinstance(content, dict) else None
        said: list[ModelEvent] = []
        for part in parts if isinstance(parts, list) else ():
            if isinstance(part, dict):
                said += self._read_part(part)
        return said

    def _read_part(self, part: Mapping[str, Any]) -> Iterable[ModelEvent]:
        signature = part.get("thoughtSignature")
        if not isinstance(signature, str) or not signature:
            signature = None
        if isinstance(call := part.get("functionCall"), dict):
            self._call(call, signature)
            return NOTHING
        text = part.get("text", "")
        if not isinstance(text, str):
            return NOTHING
        if part.get("thought") is True:
            return self._think(text, signature)
        return self._say(text, signature)

    def _say(self, text: str, signature: str | None) -> Iterable[ModelEvent]:
        self._thinking = False
        if not text and signature is None:
            return NOTHING
        if self._text is None:
            if not text:
                # A signature that belongs to no text of ours: there is nothing to keep it with.
                return NOTHING
            self._text = Text(self._take_ordinal())
            self._texts.append(self._text)
        self._text.add(text, signature)
        return (TextDelta(self._text.ordinal, text),) if text else NOTHING

    def _think(self, text: str, signature: str | None) -> Iterable[ModelEvent]:
        self._thought_signature = signature or self._thought_signature
        if not text and signature is None:
            return NOTHING
        if self._thoughts_ordinal is None:
            self._thoughts_ordinal = self._take_ordinal()
        if not self._thinking:
            self._thoughts.append([])
            self._thinking = True
        self._thoughts[-1].append(text)
        return (ReasoningDelta(self._thoughts_ordinal, len(self._thoughts) - 1, text),) if text else NOTHING

    def _call(self, call: Mapping[str, Any], signature: str | None) -> None:
        name, arguments, call_id = call.get("name"), call.get("args"), call.get("id")
        data: dict[str, Any] = {"id": call_id} if isinstance(call_id, str) and call_id else {}
        if signature is not None:
            data["signature"] = signature
        # What is said after a call is another message.
        self._text, self._thinking = None, False
        self._calls.append(
            CallDone(
                self._take_ordinal(),
                name if isinstance(name, str) else "",
                encode({} if arguments is None else arguments).decode(),
                self._native(data),
            )
        )

    def _take_ordinal(self) -> int:
        self._next += 1
        return self._next - 1

    # ---- whole outputs -------------------------------------------------------------------------

    def _native_of(self, text: Text) -> Native | None:
        signed = any(signature for _, signature in text.parts)
        return self._native({"parts": [list(part) for part in text.parts]} if signed else {})

    def _whole_thoughts(self, ordinal: int) -> ReasoningDone:
        summary = tuple(text for pieces in self._thoughts if (text := "".join(pieces)))
        signature = self._thought_signature
        return ReasoningDone(ordinal, summary, self._native({"signature": signature} if signature else {}))

    def _native(self, data: dict[str, Any]) -> Native | None:
        return Native(self._provider.name, self._model, data) if data else None

    # ---- the end -------------------------------------------------------------------------------

    def _finish(self, reason: str, message: Any) -> None:
        self._reason = reason
        if reason == "STOP" or self._failure is not None:
            return
        if reason in TRUNCATED:
            self._failure = faults.truncated(self._provider)
        elif reason in WITHHELD:
            self._failure = faults.filtered(self._provider, reason)
        elif reason == "MISSING_THOUGHT_SIGNATURE":
            said = (
                message if isinstance(message, str) and message else "A call is missing a thought_signature"
            )
            self._failure = faults.reported(self._provider, {"code": reason, "message": said})
        else:
            what = SPOILT.get(reason, "ended its answer without saying why")
            self._failure = faults.garbled(self._provider, f"{what} ({reason[:40]})")

    def _tell_input(self) -> Iterator[ModelEvent]:
        """Say once, early, what was read: an answer that breaks off says nothing more."""
        if not self._told and (usage := self._usage()) is not None:
            self._told = True
            yield UsageTold(usage)

    def _usage(self) -> TokenUsage | None:
        counts = self._counts
        thoughts = _count(counts.get("thoughtsTokenCount"))
        return token_usage(
            read=_count(counts.get("promptTokenCount")) + _count(counts.get("toolUsePromptTokenCount")),
            written=_count(counts.get("candidatesTokenCount")) + thoughts,
            cached=counts.get("cachedContentTokenCount"),
            reasoning=thoughts,
        )


def _count(value: Any) -> int:
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0
