"""The protocol's client as bytes on a socket: cheap enough that it does not measure itself.

One `Connection` carries one request at a time, kept alive between them; the answer is read whole or,
as an event stream, frame by frame.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Self, cast

import httptools
import orjson

from bench.processes import KEY

# No benchmark waits longer for one answer; a server that hangs is an error, not a number.
PATIENCE = 120.0
SESSIONS = "/v1/agents/sessions"
FAILURES = frozenset({b"agent.session.turn.failed", b"agent.session.failed", b"error"})


@dataclass(frozen=True, slots=True)
class Frame:
    """One event: its name, its JSON as bytes, and when it arrived (`time.perf_counter`)."""

    name: bytes
    data: bytes
    arrived: float


class Connection(asyncio.Protocol):
    """See the module's text. Open with `connect`."""

    def __init__(self) -> None:
        self.status = 0
        self.keepalives = 0
        self._body = bytearray()
        self._frames: deque[Frame] = deque()
        self._streaming = False
        self._complete = True
        self._waiter: asyncio.Future[None] | None = None
        self._closed = False

    @classmethod
    async def connect(cls, port: int) -> Self:
        _, connection = await asyncio.get_running_loop().create_connection(cls, "127.0.0.1", port)
        return connection

    def close(self) -> None:
        self._transport.close()

    async def request(self, method: str, path: str, body: Any = None) -> Any:
        """The JSON of the answer (None when it is empty).

        Raises:
            RuntimeError: the answer is no success.
        """
        self._send(method, path, body)
        while not self._complete:
            await self._wait()
        content = bytes(self._body)
        if not 200 <= self.status < 300:
            raise RuntimeError(f"{method} {path} answered {self.status}: {content[:500]!r}")
        return orjson.loads(content) if content else None

    def follow(self, path: str, body: Any = None) -> None:
        """Ask for an event stream; `next_frame` reads it."""
        self._send("GET" if body is None else "POST", path, body)
        self._streaming = True

    async def next_frame(self) -> Frame:
        """The next event of the stream.

        Raises:
            RuntimeError: the stream has ended, or is none.
        """
        while not self._frames:
            if self._complete:
                raise RuntimeError(f"the stream ended ({self.status}): {bytes(self._body)[:500]!r}")
            await self._wait()
        return self._frames.popleft()

    async def until(self, name: bytes) -> Frame:
        """The next event of this name; those before it are passed over.

        Raises:
            RuntimeError: a turn or the session failed first.
        """
        while True:
            frame = await self.next_frame()
            if frame.name == name:
                return frame
            if frame.name in FAILURES:
                raise RuntimeError(frame.data.decode())

    async def finish(self) -> None:
        """Read to the end of a stream, so that the connection can be used again."""
        while not self._complete:
            await self._wait()
        self._frames.clear()

    # ---- what the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # No isinstance: uvloop's transports do not inherit from asyncio's.
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._closed = True
        self._wake()

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)
        if self._streaming:
            self._cut_frames()
        if self._streaming or self._complete:
            self._wake()

    # ---- what the parser calls

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        self._complete = True

    # ---- inside

    def _send(self, method: str, path: str, body: Any) -> None:
        content = b"" if body is None else orjson.dumps(body)
        length = f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n" if content else ""
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: perdure\r\nAuthorization: Bearer {KEY}\r\n"
            f"OpenAI-Beta: agents=v1\r\n{length}\r\n"
        )
        self._parser = httptools.HttpResponseParser(self)
        self._body.clear()
        self._frames.clear()
        self._streaming = False
        self._complete = False
        self._transport.write(head.encode() + content)

    def _cut_frames(self) -> None:
        if self.status >= 300:
            return
        now = time.perf_counter()
        *frames, rest = bytes(self._body).split(b"\n\n")
        if not frames:
            return
        self._body = bytearray(rest)
        for frame in frames:
            if frame.startswith(b"event: "):
                name, _, data = frame.partition(b"\ndata: ")
                self._frames.append(Frame(name[7:], data, now))
            else:
                self.keepalives += 1

    async def _wait(self) -> None:
        if self._closed:
            raise RuntimeError("the server closed the connection")
        self._waiter = asyncio.get_running_loop().create_future()
        timer = asyncio.get_running_loop().call_later(PATIENCE, self._give_up, self._waiter)
        try:
            await self._waiter
        finally:
            timer.cancel()
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _give_up(self, waiter: asyncio.Future[None]) -> None:
        if not waiter.done():
            waiter.set_exception(TimeoutError(f"no answer within {PATIENCE:.0f} seconds"))


@asynccontextmanager
async def connected(port: int, count: int = 1) -> AsyncIterator[list[Connection]]:
    """`count` connections, closed afterwards."""
    connections: list[Connection] = []
    try:
        for _ in range(count):
            connections.append(await Connection.connect(port))
        yield connections
    finally:
        for connection in connections:
            connection.close()


def creation(
    model: str, text: str, *, stream: bool = False, tools: list[Mapping[str, Any]] | None = None
) -> dict[str, Any]:
    """The body that creates a session with its first message."""
    agent: dict[str, Any] = {"model": model}
    if tools is not None:
        agent["tools"] = tools
    return {"agent": agent, "environment": {"type": "none"}, "input": text, "stream": stream}


def message(text: str) -> dict[str, Any]:
    """The body that submits one user message."""
    content = [{"type": "input_text", "text": text}]
    said = {"type": "message", "role": "user", "content": content}
    return {"events": [{"type": "agent.session.input.message", "input": [said]}]}


async def open_session(poster: Connection, reader: Connection, model: str) -> str:
    """An idle session that `reader` follows; returns its id."""
    session: dict[str, Any] = await poster.request("POST", SESSIONS, creation(model, "Hello."))
    reader.follow(f"{SESSIONS}/{session['id']}/events")
    await reader.until(b"agent.session.idle")
    return str(session["id"])


async def take_turn(poster: Connection, reader: Connection, session_id: str, body: Any) -> float:
    """One message and its turn; returns the seconds from sending it to the session's idle event."""
    started = time.perf_counter()
    await poster.request("POST", f"{SESSIONS}/{session_id}/events", body)
    await reader.until(b"agent.session.turn.completed")
    frame = await reader.until(b"agent.session.idle")
    return frame.arrived - started
