"""The bus over NATS: one subject for each session, and one for what concerns every process."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from perdure.live.bus import BusDown, Receive, Unsubscribe
from perdure.live.messages import Letter, payloads

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg

log = logging.getLogger(__name__)

CONTROL = "perdure.control"
START_SECONDS = 2.0
CONNECT_SECONDS = 5
PAUSE_SECONDS = 1
PING_SECONDS = 10


class NatsBus:
    """See the module's text. `urls` are those of one server or of a cluster's, with commas between them."""

    def __init__(self, urls: str) -> None:
        self._urls = [url.strip() for url in urls.split(",")]
        self._receive: Receive = lambda payload: None
        self._client: Client | None = None
        self._ready = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._complaint = ""

    async def start(self, receive: Receive, reconnected: Callable[[], None]) -> None:
        self._receive = receive
        self._task = asyncio.create_task(self._connect(reconnected), name="fan-out connect")
        await asyncio.wait({self._task}, timeout=START_SECONDS)
        if self._task.done():
            self._task.result()
        else:
            log.warning("the bus cannot be reached yet, trying on; until then events of others come late")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._client is not None:
            await self._client.close()

    async def publish(self, letters: Sequence[Letter]) -> None:
        import nats.errors

        client = self._client
        if client is None or not client.is_connected:
            raise BusDown("the bus is not connected")
        try:
            for session_id, group in groupby(letters, key=lambda letter: letter.session_id):
                subject = CONTROL if session_id is None else _subject(session_id)
                for payload in payloads(group):
                    await client.publish(subject, payload)
        except (nats.errors.Error, OSError) as error:
            raise BusDown(str(error)) from error

    async def subscribe(self, session_id: str) -> Unsubscribe:
        await self._ready.wait()
        client = self._client
        assert client is not None
        subscription = await client.subscribe(_subject(session_id), cb=self._hear)
        # The server must know of it before the caller reads what it continues from.
        await self._flush(client)

        async def unsubscribe() -> None:
            import nats.errors

            with contextlib.suppress(nats.errors.Error):
                await subscription.unsubscribe()

        return unsubscribe

    async def _connect(self, reconnected: Callable[[], None]) -> None:
        from nats.aio.client import Client

        async def back() -> None:
            log.info("the bus is connected again")
            self._complaint = ""
            reconnected()

        async def lost() -> None:
            if not client.is_closed:
                log.warning("the bus is not connected, trying again")

        async def failed(error: Exception) -> None:
            complaint = str(error) or type(error).__name__
            if complaint != self._complaint:
                log.warning("the bus: %s", complaint)
            self._complaint = complaint

        client = Client()
        await client.connect(
            self._urls,
            name="perdure",
            no_echo=True,
            max_reconnect_attempts=-1,
            reconnect_time_wait=PAUSE_SECONDS,
            connect_timeout=CONNECT_SECONDS,
            ping_interval=PING_SECONDS,
            reconnected_cb=back,
            disconnected_cb=lost,
            error_cb=failed,
        )
        self._client = client
        await client.subscribe(CONTROL, cb=self._hear)
        await self._flush(client)
        self._complaint = ""
        self._ready.set()

    async def _flush(self, client: Client) -> None:
        import nats.errors

        # Without a connection there is nothing to wait for: the client subscribes anew with the next one.
        if client.is_connected:
            with contextlib.suppress(nats.errors.Error, TimeoutError):
                await client.flush(CONNECT_SECONDS)

    async def _hear(self, message: Msg) -> None:
        self._receive(message.data)


def _subject(session_id: str) -> str:
    return f"perdure.session.{session_id}"
