"""Fan-out inside one process: what a session says reaches every subscriber in the order it was said.

Stored events arrive here after their commit; deltas arrive straight from the loop and are never
stored. A subscriber that reads slowly gets fewer, larger deltas; past its bound it gets an `error`
event and the end, never a gap. Nothing here ever waits for a reader.

A process that is not alone gives its hub an `outlet`; see `perdure.live.exchange`.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Sequence

from perdure.live.frames import DeltaFrame, EventFrame, LivePart, encode
from perdure.live.outlet import Outlet
from perdure.live.subscription import Subscription
from perdure.live.writing import LiveItem, ShownItem, Unfinished
from perdure.wire.events import Event, ItemDone

_live_events = itertools.count(1)


class Hub:
    """Who listens to which session, and what is being written now."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        # Ids of events that are never stored must differ between processes and restarts too.
        self._process = secrets.token_hex(3)
        self._subscribers: dict[str, list[Subscription]] = {}
        self._writing: dict[str, dict[str, ShownItem]] = {}
        self._last: dict[str, str] = {}
        self._closed = False
        # Called for each stream that ends because its reader was too slow.
        self.on_interrupted: Callable[[], None] = lambda: None
        self.outlet: Outlet | None = None

    # ---- readers

    def subscribe(self, session_id: str, *, obfuscate: bool) -> Subscription:
        """Listen from now on. `written` holds the text so far of what is being written at this instant."""
        subscription = Subscription(self, session_id, obfuscate=obfuscate, limit=self._limit)
        for item_id, live in self._writing.get(session_id, {}).items():
            subscription.written[item_id] = [(part, part.text) for part in live.parts]
        if self._closed:
            subscription.end()
            return subscription
        listening = self._subscribers.setdefault(session_id, [])
        listening.append(subscription)
        if self.outlet is not None and len(listening) == 1:
            self.outlet.listen(session_id)
        return subscription

    async def ready(self, session_id: str) -> None:
        """Wait until a snapshot read from now on misses nothing that a subscription does not get."""
        if self.outlet is not None:
            await self.outlet.ready(session_id)

    def attach(
        self, subscription: Subscription, seq: int, event_id: str, unfinished: Sequence[Unfinished]
    ) -> bool:
        """Continue a subscription from a snapshot taken at `seq`, whose event has this id.

        False when the snapshot is too old to be continued, and another one has to be read.
        """
        if self.outlet is not None and not self.outlet.reaches_back(subscription.session_id, seq):
            return False
        self.note_last(subscription.session_id, event_id)
        subscription.attach(seq, [item.item_id for item in unfinished])
        if self.outlet is not None:
            self.outlet.attach(subscription.session_id, seq, unfinished)
        return True

    @property
    def tells_saved_text(self) -> bool:
        """Whether text that was saved before anything was shown here reaches subscriptions as deltas."""
        return self.outlet is not None

    def unsubscribe(self, subscription: Subscription) -> None:
        listening = self._subscribers.get(subscription.session_id)
        if listening is not None and subscription in listening:
            listening.remove(subscription)
            if not listening:
                del self._subscribers[subscription.session_id]
                self._forget(subscription.session_id)

    def _forget(self, session_id: str) -> None:
        """The session has no readers any more."""
        self._last.pop(session_id, None)
        if self.outlet is not None:
            self._writing.pop(session_id, None)
            self.outlet.ignore(session_id)

    # ---- what happens

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

    def open_item(
        self,
        session_id: str,
        turn_id: str,
        item_id: str,
        output_index: int,
        *,
        epoch: int = 0,
        after: int = 0,
    ) -> LiveItem:
        """An item whose `item.added` has just left is about to be written by this process.

        epoch, after: the owner's epoch, and the sequence of the last event that announced the item.
        """
        if self.outlet is not None:
            return self.outlet.open_item(session_id, turn_id, item_id, output_index, epoch, after)
        return self.show_item(session_id, turn_id, item_id, output_index)

    def show_item(self, session_id: str, turn_id: str, item_id: str, output_index: int) -> ShownItem:
        """An item in progress whose text readers are going to see."""
        shown = ShownItem(self, session_id, turn_id, item_id, output_index)
        self._writing.setdefault(session_id, {})[item_id] = shown
        return shown

    def abandon(self, session_id: str) -> None:
        """The session's writer is gone: its half-written text is no longer live."""
        if self.outlet is not None:
            self.outlet.abandon(session_id)
        else:
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
        return f"{before}d{next(_live_events):x}{self._process}"

    # ---- ends

    def interrupt(self, session_id: str) -> None:
        """What its readers miss can no longer be read: their streams end with an error."""
        for subscription in tuple(self._subscribers.get(session_id, ())):
            subscription.interrupt("lacks events that are no longer stored")

    def note_interrupted(self) -> None:
        self.on_interrupted()

    def close_session(self, session_id: str) -> None:
        """The session is deleted: its streams end."""
        listening = self._subscribers.pop(session_id, [])
        for subscription in listening:
            subscription.end()
        self._writing.pop(session_id, None)
        self._last.pop(session_id, None)
        if listening:
            self._forget(session_id)

    def close(self) -> None:
        """The process stops: every stream ends after what it has buffered."""
        self._closed = True
        for session_id in tuple(self._subscribers):
            for subscription in self._subscribers.pop(session_id):
                subscription.end()
            self._forget(session_id)


__all__ = ["Hub", "LiveItem", "ShownItem", "Subscription", "Unfinished", "encode"]
