"""A bad network in the test's own process: a TCP proxy that delays, tears and swallows what passes through.

An exchange begins when the client of a connection sends something behind the last answer to it, so a
connection that is kept alive has many of them. Each meets a `Weather` of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Literal, Self

Way = Literal["up", "down"]
Address = tuple[str, int]
Side = tuple[asyncio.StreamReader, asyncio.StreamWriter]

RESET = struct.pack("ii", 1, 0)
"""The SO_LINGER with which closing a socket resets its connection."""


@dataclass(frozen=True)
class Weather:
    """What happens to one exchange.

    Args:
        end: how the connection ends: `cut` closes it, `reset` resets it, `stall` leaves it open and
            forwards nothing any more, either way (half-open).
        after: when it ends: how many bytes of the exchange pass before, or up to which bytes.
        way: the direction that `after` looks at: `up` to the server, `down` to the client.
        dribble: forward one to three bytes at a time.
        delay: most seconds before bytes are forwarded.
    """

    end: Literal["cut", "reset", "stall"] | None = None
    after: int | bytes = 0
    way: Way = "down"
    dribble: bool = False
    delay: float = 0.0


CLEAR = Weather()


class Proxy:
    """A proxy in front of an address, on a free port of this machine; an async context manager.

    `queue` says what the next exchanges meet; behind those it is what `forecast` says. `seen` is the
    weather of every exchange so far.
    """

    def __init__(self, target: Address, seed: str, forecast: Callable[[], Weather] = lambda: CLEAR) -> None:
        self.target = target
        self.address: Address = ("127.0.0.1", 0)
        self.seen: list[Weather] = []
        self.choice = random.Random(seed)
        self._forecast = forecast
        self._queued: deque[Weather] = deque()
        self._links: set[asyncio.Task[None]] = set()
        self._listener: asyncio.Server | None = None

    @property
    def url(self) -> str:
        return f"http://{self.address[0]}:{self.address[1]}"

    def queue(self, *weathers: Weather) -> None:
        self._queued.extend(weathers)

    @property
    def unmet(self) -> int:
        """Queued weathers that no exchange has met."""
        return len(self._queued)

    def next_weather(self) -> Weather:
        weather = self._queued.popleft() if self._queued else self._forecast()
        self.seen.append(weather)
        return weather

    def renew(self, seed: str) -> None:
        """Forget what an earlier test has left behind."""
        self.choice.seed(seed)
        self._queued.clear()
        self.seen.clear()

    async def start(self) -> None:
        self._listener = await asyncio.start_server(self._accept, *self.address)
        self.address = self._listener.sockets[0].getsockname()[:2]

    def refuse(self) -> None:
        """End every connection and accept none, until `start`."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        for link in self._links:
            link.cancel()

    async def stop(self) -> None:
        self.refuse()
        await asyncio.gather(*self._links, return_exceptions=True)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = asyncio.create_task(self._connect(reader, writer))
        self._links.add(link)
        link.add_done_callback(self._links.discard)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(OSError):
            server = await asyncio.open_connection(*self.target)
            with contextlib.closing(server[1]):
                await Link(self, (reader, writer), server).run()


class Link:
    """One connection through the proxy."""

    def __init__(self, proxy: Proxy, client: Side, server: Side) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self._weather = CLEAR
        self._left: int | bytes = 0
        self._tail = b""
        self._answered = True
        self._torn = False
        self._over = asyncio.Event()

    async def run(self) -> None:
        """Forward until either side is gone, or both have ended, or the weather ends it."""
        pumps = [
            asyncio.create_task(self._pump("up", self._client[0], self._server[1])),
            asyncio.create_task(self._pump("down", self._server[0], self._client[1])),
        ]
        try:
            await self._over.wait()
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
        if self._torn and self._weather.end == "stall":
            await asyncio.Event().wait()  # until the proxy stops
        if self._torn and self._weather.end == "reset":
            for _, writer in (self._client, self._server):
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                writer.transport.abort()

    async def _pump(self, way: Way, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 16):
                if way == "up" and self._answered:
                    self._weather = self._proxy.next_weather()
                    self._left, self._tail = self._weather.after, b""
                self._answered = way == "down"
                for piece in self._pieces(data):
                    await self._forward(way, piece, writer)
                    if self._torn:
                        return
            writer.write_eof()
        except OSError:
            self._over.set()
        if self._client[0].at_eof() and self._server[0].at_eof():
            self._over.set()

    async def _forward(self, way: Way, piece: bytes, writer: asyncio.StreamWriter) -> None:
        if self._weather.delay:
            await asyncio.sleep(self._proxy.choice.uniform(0, self._weather.delay))
        passing = self._passing(way, piece)
        writer.write(piece[:passing])
        await writer.drain()
        if self._torn:
            self._over.set()
        elif self._weather.dribble:
            await asyncio.sleep(0)  # so that the reader sees these bytes alone

    def _passing(self, way: Way, piece: bytes) -> int:
        """How many bytes of the piece pass; notes when the connection ends behind them."""
        if self._weather.end is None or way != self._weather.way:
            return len(piece)
        if isinstance(self._left, int):
            passing = min(self._left, len(piece))
            self._left -= passing
            self._torn = passing < len(piece)
            return passing
        seen = self._tail + piece
        found = seen.find(self._left)
        self._torn = found >= 0
        if self._torn:
            return found + len(self._left) - len(self._tail)
        self._tail = seen[-len(self._left) + 1 :]
        return len(piece)

    def _pieces(self, data: bytes) -> Iterator[bytes]:
        if not self._weather.dribble:
            yield data
            return
        start = 0
        while start < len(data):
            size = self._proxy.choice.randint(1, 3)
            yield data[start : start + size]
            start += size
