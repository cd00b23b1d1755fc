"""One process among others: its store, its loop and its readers on one side, the bus on the other.

    commits, text of this process ──▶ sequencer of each session with readers ──▶ hub ──▶ readers
                 │                            ▲            ▲
                 ▼                            │            ╰── read_after: the store
             publisher ──▶ bus ──▶ others     ╰── text and hints of others

The database is the truth. The bus brings text in flight, and word that there is something to read;
whatever it loses, a look at the store once a second finds. So a reader on any node gets every stored
event of its session once and in order.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import assert_never

from perdure.live.bus import Bus
from perdure.live.following import Following, ReadAfter, ReadStates, State
from perdure.live.hub import Hub
from perdure.live.interest import Interest, Recent
from perdure.live.messages import (
    Delta,
    Gone,
    Input,
    Message,
    Newest,
    Want,
    WantText,
    WhoWants,
    messages,
)
from perdure.live.outgoing import Publisher, WrittenItem
from perdure.live.writing import LiveItem, Unfinished
from perdure.wire.events import Event, ItemDone, OutputTextDelta, ReasoningSummaryTextDelta

log = logging.getLogger(__name__)

__all__ = ["Exchange", "ReadAfter", "ReadStates", "State"]


class Exchange:
    """See the module's text; the outlet of a hub.

    Args:
        may_speak: whether this process may still tell others about a session it runs or wrote to;
            asked when it is about to.
        woken: called when another process accepted input for a session.
    """

    def __init__(
        self,
        hub: Hub,
        bus: Bus,
        read_after: ReadAfter,
        read_states: ReadStates,
        *,
        may_speak: Callable[[str], bool] = lambda session_id: True,
        woken: Callable[[str], None] = lambda session_id: None,
    ) -> None:
        self._bus = bus
        self._may_speak = may_speak
        self._woken = woken
        clock = asyncio.get_running_loop().time
        self._publisher = Publisher(bus, may_speak)
        self._interest = Interest(clock)
        self._recent = Recent(clock)
        self._written: dict[str, dict[str, WrittenItem]] = {}
        self._following = Following(
            hub, bus, read_after, read_states, self._publisher.tell, self._written_here
        )
        hub.outlet = self

    async def start(self) -> None:
        """Connect to the bus. A bus that cannot be reached delays nothing for long and is tried again."""
        self._publisher.start()
        self._publisher.tell(WhoWants())
        self._following.start()
        await self._bus.start(self._receive, self._reconnected)

    async def stop(self) -> None:
        """Send what is left and disconnect; the hub's streams have ended before."""
        await self._following.stop()
        await self._publisher.stop()
        await self._bus.stop()

    # ---- what this process does

    def published(self, session_id: str, epoch: int, seq: int, event: Event) -> None:
        """An event of a commit of this process, in the session's order."""
        if isinstance(event, OutputTextDelta | ReasoningSummaryTextDelta):
            return  # never stored; readers get the text with the event that ends it
        self._recent.note(session_id, seq)
        if self._interest.wanted(session_id):
            self._publisher.newest(session_id, seq)
        if isinstance(event, ItemDone):
            self._finish(session_id, event.item.id)
        self._following.commit(session_id, epoch, seq, event)

    def closed(self, session_id: str) -> None:
        """A commit of this process deleted the session."""
        self._publisher.gone(session_id)
        self._following.end(session_id)

    def accepted(self, session_id: str) -> None:
        """A commit of this process accepted input for the session."""
        self._publisher.tell(Input(session_id))

    # ---- the hub's outlet

    def open_item(
        self, session_id: str, turn_id: str, item_id: str, output_index: int, epoch: int, after: int
    ) -> LiveItem:
        item = WrittenItem(session_id, turn_id, item_id, output_index, epoch, after, self._wrote)
        self._written.setdefault(session_id, {})[item_id] = item
        return item

    def abandon(self, session_id: str) -> None:
        # What was not finished is another owner's to finish; nothing more of it may leave.
        for item in self._written.pop(session_id, {}).values():
            item.is_live = False
            self._publisher.drop(item)

    def listen(self, session_id: str) -> None:
        written = self._written.get(session_id, {}).values()
        self._following.listen(session_id, (delta for item in written for delta in item.whole()))

    def ignore(self, session_id: str) -> None:
        self._following.ignore(session_id)

    async def ready(self, session_id: str) -> None:
        await self._following.ready(session_id)

    def reaches_back(self, session_id: str, seq: int) -> bool:
        return self._following.reaches_back(session_id, seq)

    def attach(self, session_id: str, seq: int, unfinished: Sequence[Unfinished]) -> None:
        self._following.attach(session_id, seq, unfinished)

    def _wrote(self, item: WrittenItem, part: int, at: int, text: str) -> None:
        """The loop appended text to an item."""
        session_id = item.session_id
        if not item.is_live or not self._may_speak(session_id):
            return
        if self._following.follows(session_id):
            self._following.add(item.delta(part, at, text))
        if self._interest.wanted(session_id):
            self._publisher.text(item)

    def _finish(self, session_id: str, item_id: str) -> None:
        """An item's end is committed."""
        written = self._written.get(session_id, {})
        item = written.pop(item_id, None)
        if item is not None:
            item.is_live = False
            if not written:
                del self._written[session_id]

    def _written_here(self, session_id: str, item_id: str) -> Iterable[Delta]:
        item = self._written.get(session_id, {}).get(item_id)
        return () if item is None else item.whole()

    # ---- what others say

    def _receive(self, payload: bytes) -> None:
        for message in messages(payload):
            try:
                self._hear(message)
            except Exception:
                # The store has what the message was about, or its text ends with an event that has.
                log.exception("a message of another process failed: %s", type(message).__name__)

    def _hear(self, message: Message) -> None:
        match message:
            case Newest(session_id, seq):
                self._following.hint(session_id, seq)
            case Delta():
                self._following.add(message)
            case Gone(session_id):
                self._following.end(session_id)
            case Input(session_id):
                self._woken(session_id)
            case Want(session_ids, new):
                unknown = self._interest.note(session_ids)
                for session_id in session_ids if new else unknown:
                    self._tell_all(session_id)
            case WantText(session_id, item_id, at):
                self._interest.note((session_id,))
                if (item := self._written.get(session_id, {}).get(item_id)) is not None:
                    item.rewind(at)
                    self._publisher.text(item, at_once=True)
            case WhoWants():
                self._following.want_all(new=False)
            case _:
                assert_never(message)

    def _tell_all(self, session_id: str) -> None:
        """Somebody who knows nothing of the session wants it."""
        for item in self._written.get(session_id, {}).values():
            item.rewind(0)
            self._publisher.text(item, at_once=True)
        newest = self._recent.newest(session_id)
        if newest is not None:
            self._publisher.newest(session_id, newest)

    def _reconnected(self) -> None:
        """The bus was away: nobody knows what was lost."""
        self._publisher.tell(WhoWants())
        self._following.look_now()
