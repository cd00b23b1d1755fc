"""The bare client: what asking the provider costs with nothing between, through aiohttp.

A process that reads one JSON command a line and answers with one line. It takes our server's place
(the same core), reads every event of the stream and checks that the text is complete.
"""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

import aiohttp
import orjson
import uvloop

from bench.provider import answer_text


@dataclass(frozen=True)
class Outcome:
    """`seconds`: how long each request took. `wall` and `cpu`: seconds for all of them."""

    seconds: list[float]
    wall: float
    cpu: float


def request_body(model: str, history: int) -> bytes:
    """A streaming request with `history` earlier turns, as our server would send it."""
    entries: list[dict[str, Any]] = []
    for _ in range(history):
        entries += [_user(), {"type": "message", "role": "assistant", "content": answer_text(1)}]
    body = {"model": model, "input": [*entries, _user()], "stream": True, "store": False}
    return orjson.dumps(body)


def _user() -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Go on."}]}


async def ask(session: aiohttp.ClientSession, url: str, body: bytes, expected: str) -> float:
    """One request read to its end; returns the seconds until the answer was complete."""
    started = time.perf_counter()
    texts: list[str] = []
    completed = 0.0
    rest = b""
    headers = {"content-type": "application/json", "accept": "text/event-stream"}
    async with session.post(url, data=body, headers=headers) as response:
        while chunk := await response.content.readany():
            *frames, rest = (rest + chunk).split(b"\n\n")
            for frame in frames:
                event = orjson.loads(frame[frame.index(b"\ndata: ") + 7 :])
                if event["type"] == "response.output_text.delta":
                    texts.append(event["delta"])
                elif event["type"] == "response.completed":
                    completed = time.perf_counter()
    if "".join(texts) != expected or not completed:
        raise RuntimeError("the provider's answer is not complete")
    return completed - started


async def run(session: aiohttp.ClientSession, command: dict[str, Any]) -> Outcome:
    """`count` requests for an answer of `deltas` deltas, `concurrency` at once."""
    body = request_body(f"deltas-{command['deltas']}", command["history"])
    expected = answer_text(command["deltas"])
    remaining = command["count"]
    seconds: list[float] = []

    async def worker() -> None:
        nonlocal remaining
        while remaining > 0:
            remaining -= 1
            seconds.append(await ask(session, command["url"], body, expected))

    wall, cpu = time.perf_counter(), time.process_time()
    async with asyncio.TaskGroup() as group:
        for _ in range(command["concurrency"]):
            group.create_task(worker())
    return Outcome(seconds, time.perf_counter() - wall, time.process_time() - cpu)


async def _serve() -> None:
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar()) as session:
        print("listening on standard input", flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            outcome = await run(session, orjson.loads(line))
            print(orjson.dumps(asdict(outcome)).decode(), flush=True)


if __name__ == "__main__":
    uvloop.run(_serve())
