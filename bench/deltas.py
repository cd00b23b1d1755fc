"""`deltas`: from the provider's socket to a subscriber's socket, complete and in order."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path

import orjson
import uvloop

from bench.client import SESSIONS, Connection, connected, message, open_session
from bench.machine import cores, pinned
from bench.processes import Running, start_bare, start_provider, start_server
from bench.provider import answer_text
from bench.report import Row

DELTA = b"agent.session.turn.output_text.delta"
DONE = b"agent.session.turn.output_text.done"
PACE_MS = 10


@dataclass(frozen=True)
class Flow:
    """`seconds` and server `cpu` of all streams; `events`: how many delta events arrived."""

    seconds: float
    cpu: float
    events: int


def measure(directory: Path, smoke: bool) -> list[Row]:
    """One answer as fast as it goes, then many paced ones, whose deltas arrive one at a time."""
    count = 2_000 if smoke else 100_000
    streams, paced = (4, 50) if smoke else (64, 500)
    with (
        pinned(cores()[1]),
        start_provider(directory) as provider,
        start_server(directory, provider=provider.port) as server,
        start_bare(directory, provider.port) as bare,
    ):
        bare.ask(1, deltas=count)
        asked = bare.ask(1, deltas=count)
        uvloop.run(_flow(server, 1, f"deltas-{count}", count))
        burst = uvloop.run(_flow(server, 1, f"deltas-{count}", count))
        steady = uvloop.run(_flow(server, streams, f"deltas-{paced}-every-{PACE_MS}", paced))
    bare_cpu = asked.cpu / count * 1e6
    flowing = streams * paced
    return [
        Row("one answer", count / burst.seconds, "deltas/s", 25_000, at="least", beside=count / asked.wall),
        Row("one answer, CPU of the server", burst.cpu / count * 1e6, "µs", 40, beside=bare_cpu),
        Row("one answer, events merged from", count / burst.events, "deltas"),
        Row(f"{streams} paced answers", flowing / steady.seconds, "deltas/s"),
        Row(f"{streams} paced answers, CPU", steady.cpu / flowing * 1e6, "µs"),
        Row(f"{streams} paced answers, events of", flowing / steady.events, "deltas"),
    ]


async def _flow(server: Running, streams: int, model: str, count: int) -> Flow:
    async with connected(server.port, 2 * streams) as connections:
        posters, readers = connections[:streams], connections[streams:]
        pairs = list(zip(posters, readers, strict=True))
        sessions = await asyncio.gather(*(open_session(poster, reader, model) for poster, reader in pairs))
        started, cpu = time.perf_counter(), server.cpu
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(_read(poster, reader, session_id, count))
                for (poster, reader), session_id in zip(pairs, sessions, strict=True)
            ]
        return Flow(time.perf_counter() - started, server.cpu - cpu, sum(task.result() for task in tasks))


async def _read(poster: Connection, reader: Connection, session_id: str, count: int) -> int:
    """One turn; checks that every character arrived, and returns how many delta events carried them."""
    await poster.request("POST", f"{SESSIONS}/{session_id}/events", message("Go on."))
    deltas: list[bytes] = []
    while (frame := await reader.next_frame()).name != DONE:
        if frame.name == DELTA:
            deltas.append(frame.data)
    await reader.until(b"agent.session.turn.completed")
    await reader.until(b"agent.session.idle")
    text = "".join(orjson.loads(data)["delta"] for data in deltas)
    if text != answer_text(count) or orjson.loads(frame.data)["text"] != text:
        raise RuntimeError(
            f"{len(text)} of {len(answer_text(count))} characters arrived, or in another order"
        )
    return len(deltas)
