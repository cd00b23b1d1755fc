"""One reader's bounded buffer of frames, and how it continues from a snapshot."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable
from typing import Protocol, TypeVar

from perdure.live.frames import DeltaFrame, EventFrame, Frame, LivePart
from perdure.wire.errors import ErrorBody
from perdure.wire.events import ItemAdded, SessionError

F = TypeVar("F", EventFrame, DeltaFrame)


class Source(Protocol):
    """What a subscription knows of its hub."""

    def live_id(self, session_id: str, seq: int | None = None) -> str: ...

    def unsubscribe(self, subscription: Subscription) -> None: ...

    def note_interrupted(self) -> None: ...


class Subscription:
    """One reader's bounded buffer. Created by `Hub.subscribe`; read with `next_batch`."""

    def __init__(self, hub: Source, session_id: str, *, obfuscate: bool, limit: int) -> None:
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
        # Until then, text may still come of items that the snapshot shows as finished.
        self._in_progress: frozenset[str] | None = None
        self._ready = asyncio.Event()
        self._waiting = False
        self._ended = False

    # ---- the hub's side

    def push_event(self, frame: EventFrame) -> None:
        # A commit can be read before it is announced: the snapshot may already tell of this event.
        if self._ended or 0 < frame.seq <= self._seq:
            return
        if frame.seq:
            self._in_progress = None
        elif self._told(getattr(frame.event, "item_id", None)):
            return
        frame = self._named(frame)
        self._frames.append(frame)
        self._grow(len(frame.encoded(False)))

    def push_delta(self, frame: DeltaFrame) -> None:
        if self._ended or self._told(frame.part.item_id):
            return
        frame = self._named(frame)
        last = self._frames[-1] if self._frames else None
        if isinstance(last, DeltaFrame) and last.part is frame.part:
            self._frames[-1] = last.merged(frame)
            self._grow(len(frame.text))
        else:
            self._frames.append(frame)
            self._grow(frame.size)

    def interrupt(self, reason: str) -> None:
        """Drop what is buffered and end with an `error` event, behind the last event that was read."""
        stored = (frame.seq for frame in self._frames if isinstance(frame, EventFrame) and frame.seq)
        unread = next(stored, None)
        told = self._hub.live_id(self.session_id, None if unread is None else unread - 1)
        self._frames.clear()
        self._frames.append(self._named(EventFrame(0, _interrupted(self.session_id, told, reason))))
        self.end()
        self._hub.unsubscribe(self)
        self._hub.note_interrupted()

    def end(self) -> None:
        """No more frames: what is buffered is still read, then the stream ends."""
        self._ended = True
        self._ready.set()

    def _grow(self, size: int) -> None:
        self._size += size
        self._ready.set()
        # Whoever waits for more is not behind, however large the next event is.
        if self._size > self._limit and not self._waiting:
            self.interrupt("was read too slowly")

    def _told(self, item_id: str | None) -> bool:
        """Whether the snapshot shows the item finished, and no event behind the snapshot has come."""
        return item_id is not None and self._in_progress is not None and item_id not in self._in_progress

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
        shown = frozenset(in_progress)
        writing = set(shown)
        passed = False
        kept: deque[Frame] = deque()
        for frame in self._frames:
            if isinstance(frame, EventFrame):
                if isinstance(frame.event, ItemAdded) and frame.event.item.id is not None:
                    self.added.add(frame.event.item.id)
                part_of = getattr(frame.event, "item_id", None)
                if frame.seq > seq or (frame.seq == 0 and (part_of is None or part_of in writing)):
                    kept.append(self._named(frame))
                    writing |= self.added
                    passed = passed or frame.seq > seq
            elif frame.part.item_id in writing:
                kept.append(self._named(frame))
        self._in_progress = None if passed else shown
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


def _interrupted(session_id: str, event_id: str, reason: str) -> SessionError:
    message = f"The stream {reason} and is interrupted. Open a new one and read the session's state."
    return SessionError(
        event_id=event_id,
        session_id=session_id,
        error=ErrorBody(type="server_error", code="stream_interrupted", message=message, param=None),
    )
