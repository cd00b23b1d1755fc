"""HTTP without a network: answers arrive as they are made, and a reader that leaves is noticed."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
import pytest

from perdure.sdk.asgi import AHEAD, AsgiTransport

START = {"type": "http.response.start", "status": 200, "headers": [(b"x-a", b"1")]}


def piece(body: bytes, more: bool = True) -> dict[str, Any]:
    return {"type": "http.response.body", "body": body, "more_body": more}


def client(app: Any) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=AsgiTransport(app), base_url="http://inside")


async def test_a_piece_is_read_before_the_next_one_is_made() -> None:
    read = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send(START)
        await send(piece(b"one"))
        await read.wait()
        await send(piece(b"two", more=False))

    async with client(app) as http, http.stream("GET", "/path?a=1") as response:
        assert response.headers["x-a"] == "1"
        pieces = response.aiter_raw()
        assert await anext(pieces) == b"one"
        read.set()
        assert [part async for part in pieces] == [b"two"]


async def test_a_request_arrives_whole() -> None:
    seen: dict[str, Any] = {}

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.update(scope, body=(await receive())["body"])
        await send(START)
        await send(piece(b"ok", more=False))

    async with client(app) as http:
        response = await http.post("/a/b", params={"q": "1"}, content=b"body", headers={"X-Key": "k"})
    assert response.text == "ok"
    assert (seen["method"], seen["path"], seen["query_string"]) == ("POST", "/a/b", b"q=1")
    assert seen["body"] == b"body"
    assert (b"x-key", b"k") in seen["headers"]


async def test_a_reader_that_leaves_is_told_to_the_application() -> None:
    left, ended = asyncio.Event(), asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send(START)
        await send(piece(b"one"))
        assert (await receive())["type"] == "http.disconnect"
        left.set()
        await send(piece(b"nobody reads this"))
        ended.set()

    async with client(app) as http:
        async with http.stream("GET", "/") as response:
            assert await anext(response.aiter_raw()) == b"one"
        assert left.is_set()
        assert ended.is_set()


async def test_an_application_is_not_far_ahead_of_its_reader() -> None:
    sent = 0

    async def app(scope: Any, receive: Any, send: Any) -> None:
        nonlocal sent
        await send(START)
        for _ in range(10 * AHEAD):
            await send(piece(b"x"))
            sent += 1
        await send(piece(b"", more=False))

    async with client(app) as http, http.stream("GET", "/") as response:
        pieces = response.aiter_raw()
        await anext(pieces)
        for _ in range(20 * AHEAD):
            await asyncio.sleep(0)
        assert sent <= AHEAD + 3
        assert sum([1 async for _ in pieces]) == 10 * AHEAD - 1


async def test_an_application_that_fails_before_its_answer_is_a_broken_connection() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise RuntimeError("no")

    async def silent(scope: Any, receive: Any, send: Any) -> None:
        return None

    for broken in (app, silent):
        async with client(broken) as http:
            with pytest.raises(httpx2.ReadError):
                await http.get("/")
