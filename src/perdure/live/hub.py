"""Fan-out inside one process: what a session says reaches every subscriber in the order it was said.

Stored events arrive here after their commit; deltas arrive straight from the loop and are never
stored. A subscriber that reads slowly gets fewer, larger deltas; past its bound it gets an `error`
event and the end, never a gap. Nothing here ever waits for a reader.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeVar

from perdure.live.frames import DeltaFrame, EventFrame, Frame, LivePart, encode
from perdure.wire.errors import ErrorBody
from perdure.wire.events import (
    Event,
    ItemAdded,
    ItemDone,
    ReasoningSummaryPartAdded,
    ReasoningSummaryPartDone,
    ReasoningSummaryTextDone,
    SessionError,
)
from perdure.wire.items import SummaryText

# Ids of events that are never stored must differ between processes and restarts too.
_PROCESS = secrets.token_hex(3)
_live_events = itertools.count(1)

F = TypeVar("F", EventFrame, DeltaFrame)


class Subscription:
    """One reader's bounded buffer. Created by `Hub.subscribe`; read with `next_batch`."""

    def __init__(self, hub: Hub, session_id: str, *, obfuscate: bool, limit: int) -> None:
        self.session_id = session_id
        self.obfuscate = obfuscate
        # The text that was written before the subscription, and the items that were added since.
        self.written: dict[str, list[tuple[LivePart, str]]] = {}
        self.added: set[str] = set()
        self._hub = hub
        self._limit = limit
        self._frames: deque[Frame] = deque()
        self._size = 0
        self._seq = 0
        # Until a stored event behind the snapshot comes, live ones may be named after earlier ones.
        self._at_start = False
        self._ready = asyncio.Event()
        self._waiting = False
        self._ended = False

    # ---- the hub's side

    def push_event(self, frame: EventFrame) -> None:
        # A commit can be read before it is announced: the snapshot may already tell of this event.
        if self._ended or 0 < frame.seq <= self._seq:
            return
        frame = self._named(frame)
        self._frames.append(frame)
        self._grow(len(frame.encoded(False)))

    def push_delta(self, frame: DeltaFrame) -> None:
        if self._ended:
            return
        frame = self._named(frame)
        last = self._frames[-1] if self._frames else None
        if isinstance(last, DeltaFrame) and last.part is frame.part:
            self._frames[-1] = last.merged(frame)
            self._grow(len(frame.text))
        else:
            self._frames.append(frame)
            self._grow(frame.size)

    def end(self) -> None:
        """No more frames: what is buffered is still read, then the stream ends."""
        self._ended = True
        self._ready.set()

    def _grow(self, size: int) -> None:
        self._size += size
        self._ready.set()
        # Whoever waits for more is not behind, however large the next event is.
        if self._size > self._limit and not self._waiting:
            stored = (frame.seq for frame in self._frames if isinstance(frame, EventFrame) and frame.seq)
            unread = next(stored, None)
            told = self._hub.live_id(self.session_id, None if unread is None else unread - 1)
            self._frames.clear()
            self._frames.append(self._named(EventFrame(0, _interrupted(self.session_id, told))))
            self.end()
            self._hub.unsubscribe(self)

    def _named(self, frame: F) -> F:
        """A live event under a name that stands for what its reader knows, so that it is a cursor."""
        if not self._at_start:
            return frame
        if isinstance(frame, EventFrame) and frame.seq:
            self._at_start = False
            return frame
        return frame.named_behind(self._seq)

    # ---- the reader's side

    def attach(self, seq: int, in_progress: Iterable[str]) -> None:
        """Continue from a snapshot taken at `seq` in which the items `in_progress` were being written.

        Drops what the snapshot already tells: stored events up to `seq`, whether they have arrived
        or are still to come, and deltas of items that it shows as finished.
        """
        self._seq, self._at_start = seq, True
        writing = set(in_progress)
        kept: deque[Frame] = deque()
        for frame in self._frames:
            if isinstance(frame, EventFrame):
                if isinstance(frame.event, ItemAdded) and frame.event.item.id is not None:
                    self.added.add(frame.event.item.id)
                part_of = getattr(frame.event, "item_id", None)
                if frame.seq > seq or (frame.seq == 0 and (part_of is None or part_of in writing)):
                    kept.append(self._named(frame))
                    writing |= self.added
            elif frame.part.item_id in writing:
                kept.append(self._named(frame))
        self._frames = kept
        if not kept and not self._ended:
            self._ready.clear()

    async def next_batch(self, timeout: float) -> list[Frame] | None:
        """The frames that have arrived; [] after `timeout` seconds of silence; None at the end."""
        if not self._frames:
            if self._ended:
                return None
            self._waiting = True
            try:
                async with asyncio.timeout(timeout):
                    await self._ready.wait()
            except TimeoutError:
                return []
            finally:
                self._waiting = False
        batch = list(self._frames)
        self._frames.clear()
        self._size = 0
        if not self._ended:
            self._ready.clear()
        return batch or None

    def forget_beginning(self) -> None:
        """Drop what was only needed to make the reader's first frames."""
        self.written = {}
        self.added = set()

    def close(self) -> None:
        self._hub.unsubscribe(self)
        self.end()


class LiveItem:
    """An item that a model is writing now: where the loop appends text, and where snapshots read it."""

    def __init__(self, hub: Hub, session_id: str, turn_id: str, item_id: str, output_index: int) -> None:
        self.item_id = item_id
        self.parts: list[LivePart] = []
        self._hub = hub
        self._session_id = session_id
        self._turn_id = turn_id
        self._output_index = output_index

    def append_text(self, text: str) -> None:
        """Text of a message's one part."""
        if not self.parts:
            self._open_part("output_text")
        self._append(self.parts[0], text)

    def append_summary(self, part: int, text: str) -> None:
        """Text of a part of a reasoning summary; a new part is said first."""
        while len(self.parts) <= part:
            if self.parts:
                self._close_summary(len(self.parts) - 1)
            self._open_part("reasoning_summary_text")
            self._say(ReasoningSummaryPartAdded, len(self.parts) - 1, part=SummaryText(text=""))
        self._append(self.parts[part], text)

    def texts(self) -> list[str]:
        return [part.text for part in self.parts]

    def _append(self, part: LivePart, text: str) -> None:
        part.pieces.append(text)
        self._hub.delta(self._session_id, part, text)

    def _open_part(self, kind: str) -> LivePart:
        part = LivePart.open(
            "output_text" if kind == "output_text" else "reasoning_summary_text",
            self._session_id,
            self._turn_id,
            self.item_id,
            self._output_index,
            len(self.parts),
        )
        self.parts.append(part)
        return part

    def _close_summary(self, index: int) -> None:
        text = self.parts[index].text
        self._say(ReasoningSummaryTextDone, index, text=text)
        self._say(ReasoningSummaryPartDone, index, part=SummaryText(text=text))

    def _say(self, kind: Callable[..., Event], index: int, **fields: object) -> None:
        self._hub.say(
            self._session_id,
            lambda event_id: kind(
                event_id=event_id,
                session_id=self._session_id,
                turn_id=self._turn_id,
                item_id=self.item_id,
                output_index=self._output_index,
                summary_index=index,
                **fields,
            ),
        )


class Hub:
    """Who listens to which session, and what is being written now."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._subscribers: dict[str, list[Subscription]] = {}
        self._writing: dict[str, dict[str, LiveItem]] = {}
        self._last: dict[str, str] = {}
        self._closed = False

    def subscribe(self, session_id: str, *, obfuscate: bool) -> Subscription:
        """Listen from now on. `written` holds the text so far of what is being written at this instant."""
        subscription = Subscription(self, session_id, obfuscate=obfuscate, limit=self._limit)
        for item_id, live in self._writing.get(session_id, {}).items():
            subscription.written[item_id] = [(part, part.text) for part in live.parts]
        if self._closed:
            subscription.end()
        else:
            self._subscribers.setdefault(session_id, []).append(subscription)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        listening = self._subscribers.get(subscription.session_id)
        if listening is not None and subscription in listening:
            listening.remove(subscription)
            if not listening:
                del self._subscribers[subscription.session_id]
                self._last.pop(subscription.session_id, None)

    def publish(self, session_id: str, seq: int, event: Event) -> None:
        """A stored event, after its commit, in the order of its session's sequence."""
        if isinstance(event, ItemDone):
            writing = self._writing.get(session_id)
            if writing is not None and writing.pop(event.item.id, None) is not None and not writing:
                del self._writing[session_id]
        listening = self._subscribers.get(session_id)
        if listening is None:
            return
        self._last[session_id] = event.event_id
        frame = EventFrame(seq, event)
        for subscription in tuple(listening):
            subscription.push_event(frame)

    def open_item(self, session_id: str, turn_id: str, item_id: str, output_index: int) -> LiveItem:
        """An item whose `item.added` has just left is about to be written."""
        live = LiveItem(self, session_id, turn_id, item_id, output_index)
        self._writing.setdefault(session_id, {})[item_id] = live
        return live

    def abandon(self, session_id: str) -> None:
        """The session's writer is gone: its half-written text is no longer live."""
        self._writing.pop(session_id, None)

    def delta(self, session_id: str, part: LivePart, text: str) -> None:
        listening = self._subscribers.get(session_id)
        if listening is None:
            return
        frame = DeltaFrame(part, self.live_id(session_id), text)
        for subscription in tuple(listening):
            subscription.push_delta(frame)

    def say(self, session_id: str, make: Callable[[str], Event]) -> None:
        """An event that is never stored, with an id behind that of the stored event before it."""
        listening = self._subscribers.get(session_id)
        if listening is None:
            return
        frame = EventFrame(0, make(self.live_id(session_id)))
        for subscription in tuple(listening):
            subscription.push_event(frame)

    def note_last(self, session_id: str, event_id: str) -> None:
        """The stored event a subscriber's snapshot stands at: later live events are named after it."""
        if session_id in self._subscribers:
            self._last.setdefault(session_id, event_id)

    def live_id(self, session_id: str, seq: int | None = None) -> str:
        """A unique id for an event that is not stored: that of the stored event before it, and a suffix.

        That event is the one at `seq`, or the last one published.
        """
        last = self._last.get(session_id) if seq is None else None
        before = last or f"evt_{session_id[-16:]}_{seq or 0}"
        return f"{before}d{next(_live_events):x}{_PROCESS}"

    def close_session(self, session_id: str) -> None:
        """The session is deleted: its streams end."""
        for subscription in self._subscribers.pop(session_id, []):
            subscription.end()
        self._writing.pop(session_id, None)
        self._last.pop(session_id, None)

    def close(self) -> None:
        """The process stops: every stream ends after what it has buffered."""
        self._closed = True
        for session_id in tuple(self._subscribers):
            for subscription in self._subscribers.pop(session_id):
                subscription.end()


def _interrupted(session_id: str, event_id: str) -> SessionError:
    message = (
        "The stream was read too slowly and is interrupted. Open a new one and read the session's state."
    )
    return SessionError(
        event_id=event_id,
        session_id=session_id,
        error=ErrorBody(type="server_error", code="stream_interrupted", message=message, param=None),
    )


__all__ = ["Hub", "LiveItem", "Subscription", "encode"]
