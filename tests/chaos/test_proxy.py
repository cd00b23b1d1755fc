"""The bad network is as bad as it says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from .proxy import CLEAR, Proxy, Weather

DEADLINE = 20.0
LONG = bytes(range(256)) * 40


@pytest.fixture
async def proxy(seed: str) -> AsyncIterator[Proxy]:
    """In front of a server that says everything back."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 16):
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with asyncio.timeout(DEADLINE), Proxy(server.sockets[0].getsockname()[:2], seed) as proxy:
        yield proxy
    server.close()


async def send(proxy: Proxy, data: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection(*proxy.address)
    writer.write(data)
    return reader, writer


@pytest.mark.parametrize("weather", [CLEAR, Weather(dribble=True), Weather(delay=0.01)])
async def test_what_is_not_torn_arrives_whole(proxy: Proxy, weather: Weather) -> None:
    proxy.queue(weather)
    reader, writer = await send(proxy, LONG)
    assert await reader.readexactly(len(LONG)) == LONG
    writer.close()
    assert await reader.read() == b""


@pytest.mark.parametrize(("after", "passed"), [(0, b""), (7, LONG[:7]), (b"\x10\x11\x12", LONG[:0x13])])
@pytest.mark.parametrize("dribble", [False, True])
async def test_a_cut_lets_pass_what_came_before(
    proxy: Proxy, after: int | bytes, passed: bytes, dribble: bool
) -> None:
    proxy.queue(Weather("cut", after=after, dribble=dribble))
    reader, _ = await send(proxy, LONG)
    assert await reader.read() == passed


async def test_a_reset_is_a_reset(proxy: Proxy) -> None:
    proxy.queue(Weather("reset", after=0, way="up"))
    reader, _ = await send(proxy, LONG)
    with pytest.raises(ConnectionResetError):
        await reader.read()


async def test_a_stall_is_silence_both_ways(proxy: Proxy) -> None:
    proxy.queue(Weather("stall", after=3))
    reader, writer = await send(proxy, b"hello")
    assert await reader.readexactly(3) == b"hel"
    writer.write(b"anyone?")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reader.read(1), 0.2)


async def test_each_exchange_of_a_connection_has_a_weather_of_its_own(proxy: Proxy) -> None:
    proxy.queue(CLEAR, Weather("cut", after=2))
    reader, writer = await send(proxy, b"first")
    assert await reader.readexactly(5) == b"first"
    writer.write(b"second")
    assert await reader.read() == b"se"
    assert proxy.unmet == 0
    reader, _ = await send(proxy, b"third")
    assert await reader.readexactly(5) == b"third"


async def test_a_proxy_that_refuses_can_start_again(proxy: Proxy) -> None:
    proxy.refuse()
    with pytest.raises(ConnectionError):
        await send(proxy, b"hello")
    await proxy.start()
    reader, _ = await send(proxy, b"hello")
    assert await reader.readexactly(5) == b"hello"
