"""A run while it goes on: its events, and what it comes to."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from perdure.sdk.answering import Answers
from perdure.sdk.crew import Crew
from perdure.sdk.errors import TurnCancelled, TurnFailed
from perdure.sdk.events import Event, HandedOff
from perdure.sdk.handoff import Handoff, HandoffRecord
from perdure.sdk.leg import Leg, OnAction
from perdure.sdk.picture import Picture
from perdure.sdk.reading import Reader
from perdure.sdk.results import RunResult, final_output

if TYPE_CHECKING:
    from perdure.sdk.journal_async import AsyncJournal
    from perdure.sdk.session import Session

log = logging.getLogger(__name__)

OutputT_co = TypeVar("OutputT_co", covariant=True)

AHEAD = 4096
"""Events that a run may be ahead of whoever iterates; past it, the reading waits, and no event is lost."""


class RunStream(Generic[OutputT_co]):
    """An async context manager and iterator. Leaving it stops the reading and answering, and no turn.

    async with session.stream("Where is A-1042?") as events:
        async for event in events:
            ...
        result = await events.result()
    """

    def __init__(
        self,
        session: Session[OutputT_co],
        open_first: Callable[[Picture, Reader], Callable[[], Awaitable[Any]]],
        *,
        on_action: OnAction | None,
        catches_up: bool,
    ) -> None:
        self._session: Session[Any] = session
        self._open_first = open_first
        self._on_action = on_action
        self._catches_up = catches_up
        self._queue: asyncio.Queue[tuple[Event, bool] | None] = asyncio.Queue()
        self._room = asyncio.Semaphore(AHEAD)
        self._error: BaseException | None = None
        self._task: asyncio.Task[None] | None = None
        self._leg: Leg | None = None
        self._handoffs: list[HandoffRecord] = []

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._work())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        if self._task is None:
            raise RuntimeError("Use `async with session.stream(…) as events`, then iterate.")
        entry = await self._queue.get()
        if entry is None:
            self._queue.put_nowait(None)
            if self._error is not None:
                raise self._error
            raise StopAsyncIteration
        event, takes_room = entry
        if takes_room:
            self._room.release()
        return event

    async def result(self) -> RunResult[OutputT_co]:
        """What the run came to, after its last event; events that nobody has read are passed over.

        Raises:
            TurnFailed, TurnCancelled: the turn did not complete.
            InvalidFinalOutput: the answer does not match the agent's output type.
            ActionRequired, SessionFailed, ConnectionLost, ValidatorFault: the run could not go on.
        """
        async for _ in self:
            pass
        assert self._leg is not None
        picture, session = self._leg.picture, self._leg.session
        turn = picture.turn
        assert turn is not None
        match turn.status:
            case "failed":
                raise TurnFailed(turn)
            case "cancelled":
                raise TurnCancelled(turn)
            case _:
                pass
        text = picture.text
        output = final_output(session.agent, turn, text)
        return RunResult(output, text, session.agent, session, turn, picture.items, tuple(self._handoffs))

    async def _work(self) -> None:
        try:
            await self._follow(self._session, self._open_first, catches_up=self._catches_up)
            while (following := self._handed_to()) is not None:
                record, handed_to = following
                self._handoffs.append(record)
                self._tell(HandedOff(record))
                session = self._session.sessions.attach(
                    record.target.session_id, handed_to.agent, ledger_type=self._session.ledger_type
                )
                await self._follow(session, follow_from_start, catches_up=True)
        except Exception as error:  # noqa: BLE001  # raised again to whoever iterates
            self._error = self._error or error
        except asyncio.CancelledError:
            if self._error is None:
                raise
        finally:
            self._queue.put_nowait(None)

    async def _follow(
        self,
        session: Session[Any],
        open_first: Callable[[Picture, Reader], Callable[[], Awaitable[Any]]],
        *,
        catches_up: bool,
    ) -> None:
        sessions = session.sessions
        picture = Picture()
        crew = Crew(session, picture)
        reader = Reader(sessions.client, picture, sessions.patience)
        reader.session_id = session.id if session.exists else None

        def answers_of(journal: AsyncJournal, settled: Callable[[], None]) -> Answers:
            return Answers(
                session,
                journal,
                limit=sessions.max_concurrent_tools,
                patience=sessions.patience,
                tell=self._tell,
                fail=self._fail,
                settled=settled,
            )

        leg = self._leg = Leg(
            session, picture, reader, answers_of, on_action=self._on_action, fail=self._fail
        )
        try:
            async with aclosing(leg.events(open_first(picture, reader), catches_up=catches_up)) as events:
                async for event in events:
                    await self._room.acquire()
                    self._queue.put_nowait((event, True))
                    async for told in crew.events(event):
                        self._tell(told)
        finally:
            await leg.close()
        await session.turn_ended(picture.turn, picture.items)

    def _handed_to(self) -> tuple[HandoffRecord, Handoff[Any]] | None:
        """The handoff of the last leg, read from the items of its turn."""
        assert self._leg is not None
        picture, agent = self._leg.picture, self._leg.session.agent
        if picture.turn is None or picture.turn.status == "cancelled":
            return None
        offered = {each.name: each for each in agent.handoffs}
        calls = {
            item.call_id: offered[item.name]
            for item in picture.items
            if item.type == "function_call" and item.name in offered
        }
        for item in picture.items:
            if item.type == "function_call_output" and item.call_id in calls and item.error is None:
                record = _record(item.output)
                if record is not None:
                    return record, calls[item.call_id]
        return None

    def _tell(self, event: Event) -> None:
        """An event of our own: there are few of them, and they wait for no reader."""
        self._queue.put_nowait((event, False))

    def _fail(self, error: BaseException) -> None:
        if self._error is None:
            self._error = error
        if self._task is not None and not self._task.done():
            self._task.cancel()


def follow_from_start(picture: Picture, reader: Reader) -> Callable[[], Awaitable[Any]]:
    """Begin with a subscription; what there is already is read after it."""

    async def first() -> Any:
        assert reader.session_id is not None
        return await reader.open(reader.session_id)

    return first


def _record(output: object) -> HandoffRecord | None:
    if not isinstance(output, str):
        return None
    try:
        return HandoffRecord.from_json(json.loads(output))
    except (ValueError, KeyError, TypeError):
        return None
