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
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, assert_never

from perdure.live.bus import Bus, Unsubscribe
from perdure.live.hub import Hub
from perdure.live.interest import REPEATED_SECONDS, Interest, Recent
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
from perdure.live.sequencer import Sequencer, Stretch
from perdure.live.writing import LiveItem, Unfinished
from perdure.wire.errors import InvalidRequest
from perdure.wire.events import Event, ItemDone, OutputTextDelta, ReasoningSummaryTextDelta

log = logging.getLogger(__name__)

T = TypeVar("T")

LOOK_SECONDS = 1.0
READY_SECONDS = 1.0
STRETCH = 200
READS = 8
"""How many sessions are read at once."""


class State(Protocol):
    """How far a session has come in the store."""

    @property
    def session_id(self) -> str: ...

    @property
    def seq(self) -> int: ...

    @property
    def deleted(self) -> bool: ...


ReadAfter = Callable[[str, int, int], Awaitable[Stretch | None]]
"""Stored events of a session behind a sequence, about so many; None when there is no such session.

Raises InvalidRequest when they are no longer stored.
"""
ReadStates = Callable[[Sequence[str]], Awaitable[Sequence[State]]]


@dataclass(slots=True, eq=False)
class _Followed:
    """A session with readers here."""

    sequencer: Sequencer
    asked_at: float
    subscribing: asyncio.Task[Unsubscribe] | None = None
    filling: asyncio.Task[None] | None = None
    deleted: bool = False
    # Items whose missing text was asked for, from which character on.
    asked: dict[str, int] = field(default_factory=dict)


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
        self._hub = hub
        self._bus = bus
        self._read_after = read_after
        self._read_states = read_states
        self._may_speak = may_speak
        self._woken = woken
        self._clock = asyncio.get_running_loop().time
        self._publisher = Publisher(bus, may_speak)
        self._interest = Interest(self._clock)
        self._recent = Recent(self._clock)
        self._followed: dict[str, _Followed] = {}
        self._written: dict[str, dict[str, WrittenItem]] = {}
        self._look_now = asyncio.Event()
        self._reading = asyncio.Semaphore(READS)
        self._tasks: set[asyncio.Task[object]] = set()
        self._looking: asyncio.Task[None] | None = None
        hub.outlet = self

    async def start(self) -> None:
        """Connect to the bus. A bus that cannot be reached delays nothing and is tried again."""
        self._publisher.start()
        self._publisher.tell(WhoWants())
        self._looking = asyncio.create_task(self._look(), name="fan-out look")
        await self._bus.start(self._receive, self._reconnected)

    async def stop(self) -> None:
        """Send what is left and disconnect; the hub's streams have ended before."""
        running = [task for task in (self._looking, *self._tasks) if task is not None]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
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
        followed = self._followed.get(session_id)
        if followed is not None:
            followed.sequencer.commit(seq, epoch, event)
            self._settle(session_id, followed)

    def closed(self, session_id: str) -> None:
        """A commit of this process deleted the session."""
        self._publisher.gone(session_id)
        self._end(session_id)

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
        followed = _Followed(Sequencer(self._hub, session_id), self._clock())
        self._followed[session_id] = followed
        followed.subscribing = self._spawn(self._subscribe(session_id, followed))
        for item in self._written.get(session_id, {}).values():
            for delta in item.whole():
                followed.sequencer.add(delta)

    def ignore(self, session_id: str) -> None:
        followed = self._followed.pop(session_id, None)
        if followed is None:
            return
        if followed.filling is not None:
            followed.filling.cancel()
        if followed.subscribing is not None:
            self._spawn(self._unsubscribe(followed.subscribing))

    async def ready(self, session_id: str) -> None:
        followed = self._followed.get(session_id)
        if followed is not None and followed.subscribing is not None:
            await asyncio.wait({followed.subscribing}, timeout=READY_SECONDS)

    def reaches_back(self, session_id: str, seq: int) -> bool:
        followed = self._followed.get(session_id)
        return followed is None or followed.sequencer.reaches_back(seq)

    def attach(self, session_id: str, seq: int, unfinished: Sequence[Unfinished]) -> None:
        followed = self._followed.get(session_id)
        if followed is not None:
            followed.sequencer.attach(seq, unfinished)
            self._settle(session_id, followed)

    def _wrote(self, item: WrittenItem, part: int, at: int, text: str) -> None:
        """The loop appended text to an item."""
        session_id = item.session_id
        if not item.is_live or not self._may_speak(session_id):
            return
        followed = self._followed.get(session_id)
        if followed is not None:
            followed.sequencer.add(item.delta(part, at, text))
            self._settle(session_id, followed)
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
                if (followed := self._followed.get(session_id)) is not None:
                    followed.sequencer.hint(seq)
                    self._settle(session_id, followed)
            case Delta(session_id=session_id):
                if (followed := self._followed.get(session_id)) is not None:
                    followed.sequencer.add(message)
                    self._settle(session_id, followed)
            case Gone(session_id):
                self._end(session_id)
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
                self._want(self._followed, new=False)
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
        self._want(self._followed, new=True)
        self._look_now.set()

    # ---- following sessions

    def _want(self, session_ids: Iterable[str], *, new: bool) -> None:
        wanted = tuple(session_ids)
        if wanted:
            self._publisher.tell(Want(wanted, new))

    async def _subscribe(self, session_id: str, followed: _Followed) -> Unsubscribe:
        unsubscribe = await self._bus.subscribe(session_id)
        followed.asked_at = self._clock()
        self._want((session_id,), new=True)
        return unsubscribe

    async def _unsubscribe(self, subscribing: asyncio.Task[Unsubscribe]) -> None:
        if not subscribing.done():
            subscribing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            unsubscribe = await subscribing
            await unsubscribe()

    def _settle(self, session_id: str, followed: _Followed) -> None:
        """Read what readers have not been told, and ask for text that is missing."""
        if (followed.sequencer.behind or followed.deleted) and followed.filling is None:
            followed.filling = self._spawn(self._fill(session_id, followed))
        self._ask(session_id, followed)

    def _ask(self, session_id: str, followed: _Followed) -> None:
        missing = followed.sequencer.missing()
        if not missing:
            followed.asked.clear()
            return
        for item_id, at in missing.items():
            written = self._written.get(session_id, {}).get(item_id)
            if written is not None:
                for delta in written.whole():
                    followed.sequencer.add(delta)
            # Whoever has just asked for everything gets this too.
            elif followed.asked.get(item_id) != at and self._clock() - followed.asked_at > LOOK_SECONDS / 4:
                followed.asked[item_id] = at
                self._publisher.tell(WantText(session_id, item_id, at))

    async def _fill(self, session_id: str, followed: _Followed) -> None:
        sequencer = followed.sequencer
        try:
            while sequencer.behind or followed.deleted:
                before = sequencer.reached
                async with self._reading:
                    stretch = await self._read_after(session_id, before or 0, STRETCH)
                if stretch is not None:
                    sequencer.fill(stretch)
                if followed.deleted and (before is None or stretch is None or not stretch.more):
                    self._hub.close_session(session_id)
                    return
                if stretch is None or sequencer.reached == before:
                    return  # it is not there yet: the next look finds it
        except InvalidRequest:
            if followed.deleted:
                self._hub.close_session(session_id)
            else:
                self._hub.interrupt(session_id)
        except Exception:
            log.exception("reading events of session %s failed; trying again", session_id)
        finally:
            followed.filling = None
        self._ask(session_id, followed)

    def _end(self, session_id: str) -> None:
        followed = self._followed.get(session_id)
        if followed is not None:
            followed.deleted = True
            self._settle(session_id, followed)

    # ---- once a second

    async def _look(self) -> None:
        """Find what no message told of, say again what is wanted, ask again for what is missing."""
        told_at = self._clock()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._look_now.wait()
            self._look_now.clear()
            try:
                if self._clock() - told_at >= REPEATED_SECONDS:
                    told_at = self._clock()
                    self._want(self._followed, new=False)
                    self._interest.forget_old()
                await self._look_once()
            except Exception as error:  # noqa: BLE001 - a database that is away comes back
                log.warning("looking for new events failed, trying again: %s", error)

    async def _look_once(self) -> None:
        if not self._followed:
            return
        late = []
        for state in await self._read_states(tuple(self._followed)):
            followed = self._followed.get(state.session_id)
            if followed is None:
                continue
            followed.asked.clear()
            if followed.filling is None and followed.sequencer.lacks(state.seq):
                late.append(state.session_id)
            followed.sequencer.hint(state.seq)
            followed.deleted = followed.deleted or state.deleted
            self._settle(state.session_id, followed)
        # A hint was lost, or whoever commits has not heard of us.
        self._want(late, new=False)

    def _spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
