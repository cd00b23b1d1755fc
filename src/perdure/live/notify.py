"""The bus over PostgreSQL: NOTIFY on one channel for each database schema.

Two connections: one listens, one sends. A process receives its own notifications too and knows them
by the sending backend.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from perdure.live.bus import BusDown, Receive, Unsubscribe
from perdure.live.messages import Letter, payloads

if TYPE_CHECKING:
    from psycopg import AsyncConnection

log = logging.getLogger(__name__)

START_SECONDS = 2.0
CONNECT_SECONDS = 5.0
SILENCE_SECONDS = 15.0
"""How long nothing may arrive before the connection is asked whether it lives."""
LONGEST_PAUSE = 2.0
NAME_BYTES = 63
SEND = "SELECT pg_notify(%s, payload) FROM unnest(%s::text[]) AS payload"


class NotifyBus:
    """See the module's text.

    Args:
        conninfo: the database, as PostgreSQL's own library takes it.
        options: more options of a connection.
    """

    def __init__(self, conninfo: str, options: Mapping[str, Any] | None = None) -> None:
        self._conninfo = conninfo
        self._options: dict[str, Any] = {"application_name": "perdure events", **(options or {})}
        self._receive: Receive = lambda payload: None
        self._reconnected: Callable[[], None] = lambda: None
        self._listening = asyncio.Event()
        self._channel = ""
        self._sender: AsyncConnection[Any] | None = None
        self._sending = asyncio.Lock()
        self._own = 0
        self._closing: deque[asyncio.Task[None]] = deque(maxlen=8)
        self._task: asyncio.Task[None] | None = None

    async def start(self, receive: Receive, reconnected: Callable[[], None]) -> None:
        self._receive, self._reconnected = receive, reconnected
        self._task = asyncio.create_task(self._stay_connected(), name="fan-out listen")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(START_SECONDS):
                await self._listening.wait()

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        async with self._sending:
            await self._drop_sender()
        await asyncio.gather(*self._closing)

    async def publish(self, letters: Sequence[Letter]) -> None:
        import psycopg

        if not self._listening.is_set():
            raise BusDown("the database is not connected")
        texts = [payload.decode() for payload in payloads(letters)]
        async with self._sending:
            # A connection of before may have been closed long ago: then a new one serves.
            for is_last in (self._sender is None, True):
                try:
                    await self._send(texts)
                    return
                except (psycopg.Error, OSError, TimeoutError) as error:
                    await self._drop_sender()
                    if is_last:
                        raise BusDown(str(error)) from error
                except BaseException:
                    # A statement that was broken off leaves a connection in an unknown state.
                    await self._drop_sender()
                    raise

    async def _send(self, texts: list[str]) -> None:
        if self._sender is None:
            self._sender = await self._connect()
            self._own = self._sender.info.backend_pid
        await self._sender.execute(SEND, (self._channel, texts))

    async def subscribe(self, session_id: str) -> Unsubscribe:
        """Everything arrives everywhere; so this waits for the connection alone."""
        await self._listening.wait()

        async def unsubscribe() -> None:
            return None

        return unsubscribe

    async def _connect(self) -> AsyncConnection[Any]:
        import psycopg

        connecting = asyncio.create_task(
            psycopg.AsyncConnection.connect(self._conninfo, autocommit=True, **self._options)
        )
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                return await asyncio.shield(connecting)
        except BaseException:
            # Broken off half-way, the server would hold it for a minute, and its database with it.
            self._closing.append(asyncio.create_task(_close(connecting)))
            raise

    async def _drop_sender(self) -> None:
        sender, self._sender = self._sender, None
        if sender is not None:
            await sender.close()

    async def _stay_connected(self) -> None:
        pause, lost = 0.1, False
        while True:
            try:
                async with await self._connect() as connection:
                    await self._listen(connection)
                    self._listening.set()
                    if lost:
                        log.info("notifications of the database arrive again")
                        self._reconnected()
                    pause, lost = 0.1, False
                    await self._hear(connection)
            except Exception as error:  # noqa: BLE001 - whatever it is, the database may be back soon
                if not lost:
                    log.warning("notifications of the database do not arrive, connecting again: %s", error)
            self._listening.clear()
            lost = True
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _listen(self, connection: AsyncConnection[Any]) -> None:
        from psycopg import sql

        row = await (await connection.execute("SELECT current_schema()")).fetchone()
        name = f"perdure_{row[0] if row else ''}".encode()[:NAME_BYTES].decode(errors="ignore")
        await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(name)))
        self._channel = name

    async def _hear(self, connection: AsyncConnection[Any]) -> None:
        """Pass on what arrives until the connection breaks."""
        while True:
            async for notification in connection.notifies(timeout=SILENCE_SECONDS):
                if notification.pid != self._own:
                    self._receive(notification.payload.encode())
            async with asyncio.timeout(CONNECT_SECONDS):
                await connection.execute("SELECT 1")


async def _close(connecting: asyncio.Task[AsyncConnection[Any]]) -> None:
    import psycopg

    with contextlib.suppress(psycopg.Error, OSError):
        connection = await connecting
        await connection.close()
