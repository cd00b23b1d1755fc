"""One session's stored events in their order, gapless, for the readers of one node.

Events come from commits of this process, in pieces; hints say how far others have come. What lies
between is read from the store. Text in flight waits for the event it belongs behind.

    reached ──▶ next local event ──▶ … ──▶ target
                   ╰─ another process committed in between: read_after(reached)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from perdure.live.hub import Hub
from perdure.live.messages import Delta
from perdure.live.mirror import Mirror
from perdure.live.writing import Unfinished
from perdure.wire.events import Event

AHEAD = 1024
"""The most events and deltas that wait for what comes before them; what is dropped is read later."""


class StoredEvent(Protocol):
    @property
    def seq(self) -> int: ...

    @property
    def event(self) -> Event: ...


class Stretch(Protocol):
    """Stored events of a session in their order, up to `reached`; `more` of them are stored."""

    @property
    def events(self) -> Sequence[StoredEvent]: ...

    @property
    def reached(self) -> int: ...

    @property
    def more(self) -> bool: ...


class Sequencer:
    """See the module's text. Nothing is shown before the first reader's snapshot was read."""

    def __init__(self, hub: Hub, session_id: str) -> None:
        self.reached: int | None = None
        self.target = 0
        self._start = 0
        self._epoch = 0
        self._mirror = Mirror(hub, session_id)
        self._events: dict[int, Event] = {}
        self._deltas: list[Delta] = []

    @property
    def behind(self) -> bool:
        """Whether events are known to be stored that readers have not been told."""
        return self.lacks(self.target)

    def lacks(self, seq: int) -> bool:
        """Whether readers have not been told the event at `seq`."""
        return self.reached is not None and self.reached < seq

    def missing(self) -> dict[str, int]:
        """Items in progress that lack text, and from which character on."""
        return self._mirror.missing()

    def reaches_back(self, seq: int) -> bool:
        """Whether no event behind `seq` came before the stream began."""
        return self.reached is None or seq >= self._start

    def attach(self, seq: int, unfinished: Sequence[Unfinished]) -> None:
        """A reader starts from a snapshot at `seq`. The first one says where the stream begins."""
        if self.reached is None:
            self._start = seq
            self._mirror.begin(unfinished)
            self._reach(seq)
            self._go_on()
        self.hint(seq)
        for item in unfinished:
            # What was saved may be all there is: its writer may be dead.
            at = 0
            for part, text in enumerate(item.texts):
                self.add(
                    Delta(
                        session_id="",
                        epoch=self._epoch,
                        turn_id=item.turn_id,
                        item_id=item.item_id,
                        output_index=item.output_index,
                        kind=item.kind,
                        part=part,
                        at=at,
                        text=text,
                        after=seq,
                    )
                )
                at += len(text)

    def hint(self, seq: int) -> None:
        """Events are stored up to `seq`."""
        self.target = max(self.target, seq)

    def commit(self, seq: int, epoch: int, event: Event) -> None:
        """A stored event of this process, after its commit."""
        self._epoch = max(self._epoch, epoch)
        self.hint(seq)
        if self.reached is not None and seq <= self.reached:
            return
        if len(self._events) < AHEAD:
            self._events[seq] = event
        self._go_on()

    def fill(self, stretch: Stretch) -> None:
        """Events that were read from the store."""
        if self.reached is None:
            return
        for stored in stretch.events:
            if stored.seq > self.reached:
                self._mirror.tell(stored.seq, stored.event)
                self._reach(stored.seq)
        # The last events of a stretch may refer to rows that are gone, and are not told.
        if stretch.reached > self.reached:
            self._reach(stretch.reached)
        self._go_on()

    def add(self, delta: Delta) -> None:
        """Text that some process writes; that of an earlier owner is dropped."""
        self.hint(delta.after)
        if delta.epoch < self._epoch:
            return
        if delta.epoch > self._epoch:
            self._epoch = delta.epoch
            self._deltas = []
        if self.reached is not None and delta.after <= self.reached:
            self._mirror.add(delta)
        elif len(self._deltas) < AHEAD:
            self._deltas.append(delta)

    def _go_on(self) -> None:
        if self.reached is None:
            return
        while (event := self._events.pop(self.reached + 1, None)) is not None:
            self._mirror.tell(self.reached + 1, event)
            self._reach(self.reached + 1)
        if self._events:
            self._events = {seq: event for seq, event in self._events.items() if seq > self.reached}

    def _reach(self, seq: int) -> None:
        """Everything up to `seq` was told: text that waited for it follows."""
        self.reached = seq
        if self._deltas:
            waited, self._deltas = self._deltas, []
            for delta in waited:
                self.add(delta)
