"""A client behind a bad network: it repeats what was not answered, and puts together what it missed."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from types import TracebackType
from typing import Any, Self, TypeVar

from openai import APIConnectionError, AsyncOpenAI
from tests.server import ServerProcess

from .picture import Json, Picture
from .proxy import Proxy

PATIENCE = 1.0
"""Seconds of silence after which a connection is given up; a living stream has a comment more often."""

T = TypeVar("T")


class StreamEnded(Exception):
    """The server ended the stream."""


def through(server: ServerProcess, proxy: Proxy) -> tuple[str, AsyncOpenAI]:
    """The name and the client of a traveller whose requests take the way of the proxy."""
    client = AsyncOpenAI(
        base_url=f"{proxy.url}/v1",
        api_key=server.api_key,
        max_retries=0,
        timeout=PATIENCE,
        _strict_response_validation=True,
    )
    return f"{proxy.address[1]}", client


class Traveller:
    """One session and the clients that drive and follow it; an async context manager.

    `follows` is the client that reads, if that is another one.
    """

    LOST: tuple[type[Exception], ...] = (APIConnectionError,)
    """After these, a request is repeated and a stream opened again."""

    def __init__(
        self,
        name: str,
        client: AsyncOpenAI,
        model: str,
        tools: list[Any],
        *,
        follows: AsyncOpenAI | None = None,
    ) -> None:
        self.session_id = ""
        self.picture = Picture()
        self.said: list[str] = []
        self.ran: Counter[str] = Counter()
        self.connections = 0
        self._agent: Any = {"model": model, "tools": tools}
        self.name = name
        self._clients = {client, follows or client}
        self._sessions = client.beta.agents.sessions
        self._followed = (follows or client).beta.agents.sessions
        self._changed = asyncio.Condition()
        self._running: asyncio.TaskGroup

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for client in self._clients:
            await client.close()

    async def converse(self, rounds: list[list[str]]) -> None:
        """Say the texts of each round in one request; the next round follows when all is dealt with.

        The first round is one text, with which the session is created.
        """
        (opening,), *others = rounds
        self.said.append(opening)
        created = await self._begin(opening)
        async with asyncio.TaskGroup() as self._running:
            following = self._running.create_task(self._follow(created))
            await self._until_it_rests()
            for texts in others:
                self.said += texts
                await self._submit(f"round {len(self.said)}", [said(text) for text in texts])
                await self._until_it_rests()
            following.cancel()

    # ---- following, which is done in one of two ways

    async def _begin(self, text: str) -> AsyncIterator[Json] | None:
        """Create the session; returns the stream of its creation if there is one."""
        raise NotImplementedError

    async def _follow(self, created: AsyncIterator[Json] | None) -> None:
        raise NotImplementedError

    async def _take(self, event: Json) -> None:
        """Apply an event, and do what the session asks for."""
        self.picture.apply(event)
        await self._look()

    async def _look(self) -> None:
        for action in self.picture.owed:
            if action["call_id"] not in self.ran:
                self.ran[action["call_id"]] += 1
                self._running.create_task(self._answer(action))
        async with self._changed:
            self._changed.notify_all()

    # ---- requests

    async def persist(self, action: Callable[[], Awaitable[T]]) -> T:
        """The action's result; it is repeated until it is answered."""
        while True:
            try:
                return await action()
            except self.LOST:
                await self._lose()

    async def _lose(self) -> None:
        """A connection is lost."""
        self.connections += 1

    async def _answer(self, action: Json) -> None:
        city = action["arguments"]["city"]
        result = {"type": "agent.session.input.tool_result", "success": True, "output": f"fine in {city}"}
        result |= {"turn_id": action["turn_id"], "call_id": action["call_id"]}
        await self._submit(action["call_id"], [result])

    async def _submit(self, key: str, events: list[Any]) -> None:
        await self.persist(
            lambda: self._sessions.events.create(
                self.session_id, events=events, idempotency_key=f"{self.name} {key}"
            )
        )

    async def _create(self, text: str, stream: bool) -> Any:
        return await self._sessions.create(
            agent=self._agent,
            environment={"type": "none"},
            input=text,
            stream=stream,
            extra_headers={"Idempotency-Key": f"{self.name} creation"},
        )

    async def _read(self) -> tuple[Json, list[Json], list[Json]]:
        """The session, its turns and its items, oldest first."""
        session = await self._followed.retrieve(self.session_id)
        turns = [turn async for turn in self._followed.turns.list(self.session_id, order="asc", limit=100)]
        items = [item async for item in self._followed.items.list(self.session_id, order="asc", limit=100)]
        return session.to_dict(), [turn.to_dict() for turn in turns], [item.to_dict() for item in items]

    async def _events(self, **query: str) -> AsyncIterator[Json]:
        async with await self._followed.events.stream(self.session_id, extra_query=query) as stream:
            async for event in stream:
                yield event.to_dict()

    async def _until_it_rests(self) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self.picture.rests(self.said))


class Reader(Traveller):
    """Comes back by the documented procedure: subscribe, read, merge, apply what came meanwhile, go on."""

    async def _begin(self, text: str) -> None:
        self.session_id = (await self.persist(lambda: self._create(text, stream=False))).id

    async def _follow(self, created: AsyncIterator[Json] | None) -> None:
        while True:
            try:
                await self._follow_once()
            except self.LOST:
                await self._lose()
                self.picture.reconnect()

    async def _follow_once(self) -> None:
        buffered: asyncio.Queue[Json | Exception] = asyncio.Queue()
        async with await self._followed.events.stream(self.session_id) as stream:

            async def receive() -> None:
                try:
                    async for event in stream:
                        buffered.put_nowait(event.to_dict())
                    buffered.put_nowait(StreamEnded())
                except self.LOST as error:
                    buffered.put_nowait(error)

            receiving = asyncio.create_task(receive())
            try:
                self.picture.read(*await self._read())
                await self._look()
                while not isinstance(event := await buffered.get(), Exception):
                    await self._take(event)
                raise event
            finally:
                receiving.cancel()
                await asyncio.gather(receiving, return_exceptions=True)


class Replayer(Traveller):
    """Comes back with the id of the last event it has seen, and reads nothing again.

    `told` are the ids and types of the events it was told behind `first`, without the deltas.
    """

    first = ""
    cursor = ""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.picture.replayed = True
        self.told: list[tuple[str, str]] = []

    async def _begin(self, text: str) -> AsyncIterator[Json] | None:
        while True:
            stream = await self.persist(lambda: self._create(text, stream=True))
            events = (event.to_dict() async for event in stream)
            try:
                event = await anext(events)
            except (StopAsyncIteration, *self.LOST):
                await self._lose()
                continue
            self.session_id = event["session"]["id"]
            self.first = self.cursor = event["event_id"]
            self.picture.apply(event)
            if self.connections == 0:
                return events
            # The session was created by a request whose answer was lost: what it said then is read once.
            await stream.close()
            self.picture.read(*await self.persist(self._read))
            return None

    async def _follow(self, created: AsyncIterator[Json] | None) -> None:
        await self._look()
        while True:
            events = self._events(after=self.cursor) if created is None else created
            try:
                async for event in events:
                    self.cursor = event["event_id"]
                    if not event["type"].endswith(".delta"):
                        self.told.append((self.cursor, event["type"]))
                    await self._take(event)
            except self.LOST:
                await self._lose()
            created = None
            self.picture.reconnect()


def said(text: str) -> Any:
    """An input event with one user message."""
    part = {"type": "input_text", "text": text}
    user = {"type": "message", "role": "user", "content": [part]}
    return {"type": "agent.session.input.message", "input": [user]}
