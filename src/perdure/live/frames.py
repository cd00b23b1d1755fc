"""Server-sent event frames: each event is encoded once, however many subscribers read it.

A frame is one `event:` line, one `data:` line with the whole JSON object, and a blank line. Never
`id:` or `retry:`: the official client's decoder fails on a keep-alive that follows one.
"""

from __future__ import annotations

import random
import string
from dataclasses import dataclass, field
from typing import Literal

import orjson

from perdure.wire.events import Event, OutputTextDelta, ReasoningSummaryTextDelta, type_of

KEEPALIVE = b": keepalive\n\n"
_ALPHABET = string.ascii_letters + string.digits


def padding() -> bytes:
    """Random text that hides how long a delta is from observers of encrypted traffic."""
    return "".join(random.choices(_ALPHABET, k=random.randint(8, 32))).encode()


def encode_json(event: Event) -> bytes:
    """An event as JSON, without obfuscation."""
    body: bytes = event.__pydantic_serializer__.to_json(event, by_alias=True, exclude={"obfuscation"})
    return body


def encode(event: Event) -> bytes:
    """The frame of an event, without obfuscation."""
    return b"event: %b\ndata: %b\n\n" % (type_of(event).encode(), encode_json(event))


def named_behind(event_id: str, seq: int) -> str:
    """The id of an event that is not stored, moved behind the stored one `seq` if that is later."""
    head, _, tail = event_id.rpartition("_")
    before, mark, own = tail.partition("d")
    return event_id if int(before) >= seq else f"{head}_{seq}{mark}{own}"


@dataclass(slots=True)
class EventFrame:
    """A stored event on its way out; `seq` is its place in the session's sequence (0: a snapshot's)."""

    seq: int
    event: Event
    _encoded: bytes | None = None

    def encoded(self, obfuscate: bool) -> bytes:
        if self._encoded is None:
            self._encoded = encode(self.event)
        if obfuscate and isinstance(self.event, OutputTextDelta | ReasoningSummaryTextDelta):
            return b'%b,"obfuscation":"%b"}\n\n' % (self._encoded[:-3], padding())
        return self._encoded

    def named_behind(self, seq: int) -> EventFrame:
        """The frame of an event that is not stored, under a name that stands for `seq` or later."""
        name = named_behind(self.event.event_id, seq)
        return EventFrame(0, self.event.model_copy(update={"event_id": name}))


DeltaKind = Literal["output_text", "reasoning_summary_text"]


@dataclass(slots=True)
class LivePart:
    """The text so far of one part of an item that a model is writing, and how its deltas look."""

    kind: DeltaKind
    item_id: str
    head: bytes
    pieces: list[str] = field(default_factory=list)

    @classmethod
    def open(
        cls, kind: DeltaKind, session_id: str, turn_id: str, item_id: str, output_index: int, part: int
    ) -> LivePart:
        index = "content_index" if kind == "output_text" else "summary_index"
        name = f"agent.session.turn.{kind}.delta"
        body = orjson.dumps(
            {
                "type": name,
                "session_id": session_id,
                "turn_id": turn_id,
                "item_id": item_id,
                "output_index": output_index,
                index: part,
            }
        )
        return cls(kind, item_id, b"event: %b\ndata: %b" % (name.encode(), body[:-1]))

    @property
    def text(self) -> str:
        if len(self.pieces) > 1:
            self.pieces = ["".join(self.pieces)]
        return self.pieces[0] if self.pieces else ""


@dataclass(slots=True)
class DeltaFrame:
    """Text appended to a part; adjacent ones merge while a reader is slow."""

    part: LivePart
    event_id: str
    text: str
    _plain: bytes | None = None
    _padded: bytes | None = None

    def encoded(self, obfuscate: bool) -> bytes:
        if self._plain is None:
            self._plain = b'%b,"event_id":"%b","delta":%b}\n\n' % (
                self.part.head,
                self.event_id.encode(),
                orjson.dumps(self.text),
            )
        if not obfuscate:
            return self._plain
        if self._padded is None:
            self._padded = b'%b,"obfuscation":"%b"}\n\n' % (self._plain[:-3], padding())
        return self._padded

    def merged(self, later: DeltaFrame) -> DeltaFrame:
        return DeltaFrame(self.part, later.event_id, self.text + later.text)

    def named_behind(self, seq: int) -> DeltaFrame:
        """The frame under a name that stands for the stored event `seq` or a later one."""
        return DeltaFrame(self.part, named_behind(self.event_id, seq), self.text)

    @property
    def size(self) -> int:
        return len(self.text) + 400


Frame = EventFrame | DeltaFrame
