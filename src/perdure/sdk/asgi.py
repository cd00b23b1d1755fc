"""HTTP without a network: the requests of a client go to an ASGI application in the same event loop.

The transport that comes with the client's HTTP library collects a whole answer before it hands anything on;
event streams never end, so they need this one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from typing import Any

import httpx2

Message = MutableMapping[str, Any]
App = Callable[[Any, Callable[[], Awaitable[Any]], Callable[[Any], Awaitable[None]]], Awaitable[None]]

AHEAD = 64
"""Pieces of an answer that the application may be ahead of its reader."""


class AsgiTransport(httpx2.AsyncBaseTransport):
    """Hands requests to an application, and its answers on as they come."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._open: set[_Exchange] = set()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        body = await request.aread()
        exchange = _Exchange(self._app, request, body)
        self._open.add(exchange)
        exchange.task.add_done_callback(lambda _: self._open.discard(exchange))
        try:
            start = await exchange.start()
        except BaseException:
            await exchange.aclose()
            raise
        return httpx2.Response(start["status"], headers=start["headers"], stream=exchange)

    async def aclose(self) -> None:
        for exchange in list(self._open):
            await exchange.aclose()


class _Exchange(httpx2.AsyncByteStream):
    """One request and its answer; as a stream, the body of the answer."""

    def __init__(self, app: App, request: httpx2.Request, body: bytes) -> None:
        self._body: bytes | None = body
        self._pieces: asyncio.Queue[bytes | None] = asyncio.Queue(AHEAD)
        self._started: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._gone = asyncio.Event()
        self.task = asyncio.create_task(self._run(app, _scope(request)))

    async def start(self) -> Message:
        """The beginning of the answer. Raises what the application raised before it had begun one."""
        return await asyncio.shield(self._started)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while (piece := await self._pieces.get()) is not None:
            yield piece

    async def aclose(self) -> None:
        """Tell the application that its reader has left, and wait until it has noticed."""
        self._gone.set()
        while not self._pieces.empty():
            self._pieces.get_nowait()
        if self.task is not asyncio.current_task():
            await asyncio.wait({self.task})

    async def _run(self, app: App, scope: dict[str, Any]) -> None:
        try:
            await app(scope, self._receive, self._send)
        except Exception as error:
            # Also what happens when a reader has left: `_send` raises then.
            if not self._started.done():
                self._started.set_exception(httpx2.ReadError(f"the application failed: {error}"))
                self._started.exception()  # somebody may have stopped waiting for it
            elif not self._gone.is_set():
                await self._put(None)
                raise
        finally:
            if not self._started.done():
                self._started.set_exception(httpx2.ReadError("the application gave no answer"))
                self._started.exception()
            await self._put(None)

    async def _receive(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            if not self._started.done():
                self._started.set_result(message)
            return
        if piece := message.get("body", b""):
            await self._put(piece)
        if not message.get("more_body", False):
            await self._put(None)

    async def _put(self, piece: bytes | None) -> None:
        """Hand a piece on, or drop it when nobody reads any more."""
        if self._gone.is_set():
            return
        if not self._pieces.full():
            self._pieces.put_nowait(piece)
            return
        put = asyncio.ensure_future(self._pieces.put(piece))
        gone = asyncio.ensure_future(self._gone.wait())
        try:
            await asyncio.wait({put, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in (put, gone):
                each.cancel()


def _scope(request: httpx2.Request) -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": request.method,
        "headers": [(name.lower(), value) for name, value in request.headers.raw],
        "scheme": request.url.scheme,
        "path": request.url.path,
        "raw_path": request.url.raw_path.partition(b"?")[0],
        "query_string": request.url.query,
        "server": (request.url.host, request.url.port),
        "client": ("127.0.0.1", 0),
        "root_path": "",
    }
