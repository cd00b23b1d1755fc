"""The sessions that have readers on this node: told in order, read from the store where word is missing."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from perdure.live.bus import Bus, Unsubscribe
from perdure.live.hub import Hub
from perdure.live.messages import Delta, Message, Want, WantText
from perdure.live.sequencer import Sequencer, Stretch
from perdure.live.writing import Unfinished
from perdure.wire.errors import InvalidRequest
from perdure.wire.events import Event

log = logging.getLogger(__name__)

T = TypeVar("T")

LOOK_SECONDS = 1.0
REPEATED_SECONDS = 10.0
READY_SECONDS = 1.0
ASKED_SECONDS = 0.25
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
    subscribing: asyncio.Task[Unsubscribe] | None = None
    filling: asyncio.Task[None] | None = None
    deleted: bool = False
    # Items whose missing text was asked for, from which character on; and when everything was.
    asked: dict[str, int] = field(default_factory=dict)
    asked_at: float = 0.0


class Following:
    """See the module's text.

    Args:
        tell: sends a message to every process.
        written_here: the text of an item that this process writes; nothing when it does not.
    """

    def __init__(
        self,
        hub: Hub,
        bus: Bus,
        read_after: ReadAfter,
        read_states: ReadStates,
        tell: Callable[[Message], None],
        written_here: Callable[[str, str], Iterable[Delta]],
    ) -> None:
        self._hub = hub
        self._bus = bus
        self._read_after = read_after
        self._read_states = read_states
        self._tell = tell
        self._written_here = written_here
        self._clock = asyncio.get_running_loop().time
        self._followed: dict[str, _Followed] = {}
        self._look_now = asyncio.Event()
        self._reading = asyncio.Semaphore(READS)
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self) -> None:
        self._spawn(self._look())

    async def stop(self) -> None:
        running = list(self._tasks)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    # ---- readers come and go

    def listen(self, session_id: str, so_far: Iterable[Delta]) -> None:
        """The session has its first reader. `so_far`: text that this process is writing of it."""
        followed = self._followed[session_id] = _Followed(Sequencer(self._hub, session_id))
        followed.asked_at = self._clock()
        followed.subscribing = self._spawn(self._subscribe(session_id, followed))
        for delta in so_far:
            followed.sequencer.add(delta)

    def ignore(self, session_id: str) -> None:
        """The session's last reader is gone."""
        followed = self._followed.pop(session_id, None)
        if followed is None:
            return
        if followed.filling is not None:
            followed.filling.cancel()
        if followed.subscribing is not None:
            self._spawn(self._unsubscribe(followed.subscribing))

    async def ready(self, session_id: str) -> None:
        """Wait until the bus brings what is said of the session, but not for long."""
        followed = self._followed.get(session_id)
        if followed is not None and followed.subscribing is not None:
            await asyncio.wait({followed.subscribing}, timeout=READY_SECONDS)

    def reaches_back(self, session_id: str, seq: int) -> bool:
        followed = self._followed.get(session_id)
        return followed is None or followed.sequencer.reaches_back(seq)

    def attach(self, session_id: str, seq: int, unfinished: Sequence[Unfinished]) -> None:
        """A reader starts from a snapshot taken at `seq`."""
        followed = self._followed.get(session_id)
        if followed is not None:
            followed.sequencer.attach(seq, unfinished)
            self._settle(session_id, followed)

    # ---- what is told of sessions, here or elsewhere

    def commit(self, session_id: str, epoch: int, seq: int, event: Event) -> None:
        """A stored event of this process."""
        followed = self._followed.get(session_id)
        if followed is not None:
            followed.sequencer.commit(seq, epoch, event)
            self._settle(session_id, followed)

    def hint(self, session_id: str, seq: int) -> None:
        """Events are stored up to `seq`."""
        followed = self._followed.get(session_id)
        if followed is not None:
            followed.sequencer.hint(seq)
            self._settle(session_id, followed)

    def add(self, delta: Delta) -> None:
        """Text that some process is writing."""
        followed = self._followed.get(delta.session_id)
        if followed is not None:
            followed.sequencer.add(delta)
            self._settle(delta.session_id, followed)

    def follows(self, session_id: str) -> bool:
        return session_id in self._followed

    def end(self, session_id: str) -> None:
        """The session is deleted: its streams end behind its last event."""
        followed = self._followed.get(session_id)
        if followed is not None:
            followed.deleted = True
            self._settle(session_id, followed)

    def look_now(self) -> None:
        """Messages may have been lost: ask the store, and all who write."""
        self.want_all(new=True)
        self._look_now.set()

    def want_all(self, *, new: bool) -> None:
        """Tell every process which sessions have readers here."""
        self._want(self._followed, new=new)

    def _want(self, session_ids: Iterable[str], *, new: bool) -> None:
        wanted = tuple(session_ids)
        if wanted:
            self._tell(Want(wanted, new))

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

    # ---- what is missing

    def _settle(self, session_id: str, followed: _Followed) -> None:
        """Read what readers have not been told, and ask for text that is missing."""
        if (followed.sequencer.behind or followed.deleted) and followed.filling is None:
            followed.filling = self._spawn(self._fill(session_id, followed))
        missing = followed.sequencer.missing()
        if missing:
            self._ask(session_id, followed, missing)
        elif followed.asked:
            followed.asked.clear()

    def _ask(self, session_id: str, followed: _Followed, missing: dict[str, int]) -> None:
        for item_id, at in missing.items():
            here = list(self._written_here(session_id, item_id))
            for delta in here:
                followed.sequencer.add(delta)
            # Whoever has just asked for everything gets this too.
            just_asked = self._clock() - followed.asked_at < ASKED_SECONDS
            if not here and not just_asked and followed.asked.get(item_id) != at:
                followed.asked[item_id] = at
                self._tell(WantText(session_id, item_id, at))

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
        except Exception as error:  # noqa: BLE001 - the next look tries again
            log.warning("reading events of session %s failed, trying again: %s", session_id, error)
        finally:
            followed.filling = None

    async def _look(self) -> None:
        """Find what no message told of, say again what is wanted, ask again for what is missing."""
        told_at, failed = self._clock(), False
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._look_now.wait()
            self._look_now.clear()
            if self._clock() - told_at >= REPEATED_SECONDS:
                told_at = self._clock()
                self.want_all(new=False)
            try:
                await self._look_once()
                failed = False
            except Exception as error:  # noqa: BLE001 - a database that is away comes back
                if not failed:
                    log.warning("looking for new events failed, trying again: %s", error)
                failed = True

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
