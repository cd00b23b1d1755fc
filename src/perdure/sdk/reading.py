"""The events of a session, without end and whatever the network does, until somebody stops reading."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from perdure.sdk.errors import ConnectionLost
from perdure.sdk.events import Recovered
from perdure.sdk.picture import ENDED, Picture
from perdure.sdk.requests import delays, persistently

if TYPE_CHECKING:
    from openai import AsyncOpenAI, AsyncStream
    from openai.types.beta.agent_session import AgentSession
    from openai.types.beta.agent_session_event import AgentSessionEvent
    from openai.types.beta.agent_session_item import AgentSessionItem
    from openai.types.beta.agents.sessions.turn import Turn

log = logging.getLogger(__name__)

SILENCE = 60.0
"""Seconds without a byte after which a stream counts as broken; servers send a sign of life more often."""


class Reader:
    """Reads one session into a picture.

    A stream tells nothing of what happened while it was not open. So after every interruption it is opened
    again first, then session, turn and items are read, and its events are merged into that by item id.
    """

    def __init__(self, client: AsyncOpenAI, picture: Picture, patience: float) -> None:
        self._client = client
        self._sessions = client.beta.agents.sessions
        self._picture = picture
        self._patience = patience
        self.session_id: str | None = None

    async def open(self, session_id: str) -> AsyncStream[AgentSessionEvent]:
        """Subscribe. Raises openai.APIError when that does not work for longer than patience."""
        from httpx2 import Timeout

        timeout = Timeout(SILENCE, connect=10.0)
        return await persistently(
            lambda: self._sessions.events.stream(session_id, include_obfuscation=False, timeout=timeout),
            self._patience,
        )

    async def newest_turn(self, session_id: str) -> Turn | None:
        """The newest turn of the main agent."""
        async for turn in self._sessions.turns.list(session_id, limit=20, order="desc"):
            if turn.subagent_id is None:
                return turn
        return None

    async def catch_up(self, session_id: str) -> Recovered:
        """Read session, turn and items into the picture."""
        turn, items = await self._newest(session_id)
        # The session last: what it owes is then at least as new as the turn and its items.
        session: AgentSession = await self._sessions.retrieve(session_id)
        status = session.status
        if status == "idle" and (turn is None or turn.status not in ENDED):
            # The turn has ended between the two reads; only items that were read after that are its last.
            turn, items = await self._newest(session_id)
        self._picture.catch_up(turn, items, status)
        return Recovered(session, tuple(items))

    async def _newest(self, session_id: str) -> tuple[Turn | None, list[AgentSessionItem]]:
        turn = await self.newest_turn(session_id)
        if turn is None:
            return None, []
        listed = self._sessions.turns.items.list(turn.id, session_id=session_id, order="asc", limit=100)
        return turn, [item async for item in listed]

    async def events(
        self, first: Callable[[], Awaitable[Any]], *, recover_first: bool = False
    ) -> AsyncGenerator[AgentSessionEvent | Recovered]:
        """The events of the stream that `first` opens, and of those that follow it.

        Args:
            first: opens the first stream; called again while the session's id is not known.
            recover_first: read the present state before the first event, too.

        Raises:
            ConnectionLost: the server was away for longer than patience.
        """
        pauses, is_begun = delays(self._patience), False
        while True:
            try:
                is_first = not is_begun or self.session_id is None
                stream = await (first() if is_first else self.open(str(self.session_id)))
                async with aclosing(_closing(stream)) as events:
                    if recover_first or (is_begun and not is_first):
                        yield await persistently(self._recover, self._patience)
                    is_begun = True
                    async for event in events:
                        if event.type == "agent.session.created":
                            self.session_id = event.session.id
                        pauses = delays(self._patience)
                        yield event
            except _Broken as broken:
                log.info("The stream of session %s broke: %r", self.session_id, broken.__cause__)
            except _interruptions() as error:
                raise self._lost() from error
            pause = next(pauses, None)
            if pause is None:
                raise self._lost()
            await asyncio.sleep(pause)

    async def _recover(self) -> Recovered:
        return await self.catch_up(str(self.session_id))

    def _lost(self) -> ConnectionLost:
        told = self.session_id or "that was being created"
        return ConnectionLost(
            f"The events of session {told} could not be read for {self._patience:.0f} s.",
            self.session_id or "",
        )


class _Broken(Exception):
    """A stream that was open has broken."""


async def _closing(stream: Any) -> AsyncGenerator[Any]:
    try:
        async for event in stream:
            yield event
    except _interruptions() as error:
        raise _Broken from error
    finally:
        await stream.close()


def _interruptions() -> tuple[type[Exception], ...]:
    """What says that a stream or a request was cut, and not that it was wrong."""
    import httpx2
    from openai import APIConnectionError, InternalServerError

    return (httpx2.TransportError, httpx2.StreamError, APIConnectionError, InternalServerError, OSError)
