"""`fan-out`: text from the process that writes a session to a reader of another one, over both buses.

Two exchanges in one process, so that CPU is that of both ends; the bus has a server of its own. There is
no database behind them: what is measured is text in flight, which is in no row.
"""

from __future__ import annotations

import asyncio
import bisect
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import uvloop
from tests.nats import NatsServer
from tests.postgres import PostgresServer

from bench.report import Row, percentile
from perdure.live.bus import Bus
from perdure.live.exchange import Exchange, State
from perdure.live.frames import DeltaFrame
from perdure.live.hub import Hub, LiveItem, Subscription
from perdure.live.nats import NatsBus
from perdure.live.notify import NotifyBus
from perdure.live.sequencer import Stretch
from perdure.wire.events import ItemAdded
from perdure.wire.items import AssistantMessageItem

WORD = "word "
PACE_SECONDS = 0.01
BURST = 50
PATIENCE_SECONDS = 60.0


@dataclass(frozen=True)
class Flow:
    """`cpu` of both ends; `delays` from writing a delta to reading it, in seconds."""

    seconds: float
    cpu: float
    delays: Sequence[float]


def measure(directory: Path, smoke: bool) -> list[Row]:
    """One text as fast as it goes, then many paced ones, whose deltas are merged before they leave."""
    count, sessions, each = (2_000, 4, 50) if smoke else (50_000, 64, 300)
    rows: list[Row] = []
    with PostgresServer(durable=True) as postgres:
        url = postgres.create_database()
        rows += uvloop.run(_measure("NOTIFY", NotifyBus(url), NotifyBus(url), count, sessions, each))
    with NatsServer() as nats:
        one, other = NatsBus(nats.url), NatsBus(nats.url)
        rows += uvloop.run(_measure("NATS", one, other, count, sessions, each))
    return rows


async def _measure(name: str, one: Bus, other: Bus, count: int, sessions: int, each: int) -> list[Row]:
    writer, reader = Hub(1 << 30), Hub(1 << 30)
    exchanges = [_exchange(hub, bus) for hub, bus in ((writer, one), (reader, other))]
    for exchange in exchanges:
        await exchange.start()
    try:
        burst = await _flow(writer, reader, 1, count, pace=0.0)
        paced = await _flow(writer, reader, sessions, each, pace=PACE_SECONDS)
    finally:
        reader.close()
        for exchange in exchanges:
            await exchange.stop()
    flowing = sessions * each
    return [
        Row(f"{name}, one text", count / burst.seconds, "deltas/s"),
        Row(f"{name}, one text, CPU of both ends", burst.cpu / count * 1e6, "µs"),
        Row(f"{name}, {sessions} paced texts", flowing / paced.seconds, "deltas/s"),
        Row(f"{name}, {sessions} paced texts, CPU", paced.cpu / flowing * 1e6, "µs"),
        Row(f"{name}, {sessions} paced texts, delay p50", percentile(paced.delays, 0.5) * 1e3, "ms"),
        Row(f"{name}, {sessions} paced texts, delay p95", percentile(paced.delays, 0.95) * 1e3, "ms"),
    ]


def _exchange(hub: Hub, bus: Bus) -> Exchange:
    async def read_after(session_id: str, after: int, limit: int) -> Stretch | None:
        return None

    async def read_states(session_ids: Sequence[str]) -> Sequence[State]:
        return []

    return Exchange(hub, bus, read_after, read_states)


async def _flow(writer: Hub, reader: Hub, sessions: int, count: int, *, pace: float) -> Flow:
    names = [f"sess_{pace}{number:020}" for number in range(sessions)]
    subscriptions = [await _subscribed(reader, session_id) for session_id in names]
    items = [_opened(writer, reader, session_id) for session_id in names]
    # The writer has heard of the readers once the first text arrives.
    for item, subscription in zip(items, subscriptions, strict=True):
        item.append_text(WORD)
        await _read(subscription, len(WORD))
    started, cpu = time.perf_counter(), time.process_time()
    async with asyncio.TaskGroup() as group:
        following = [group.create_task(_read(each, count * len(WORD))) for each in subscriptions]
        writing = [group.create_task(_write(item, count, pace)) for item in items]
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    delays: list[float] = []
    for read, wrote in zip(following, writing, strict=True):
        arrivals = read.result()
        ends = [length for length, _ in arrivals]
        for number, at in enumerate(wrote.result(), 1):
            delays.append(arrivals[bisect.bisect_left(ends, number * len(WORD))][1] - at)
    for subscription in subscriptions:
        subscription.close()
    return Flow(seconds, cpu, delays)


async def _subscribed(hub: Hub, session_id: str) -> Subscription:
    subscription = hub.subscribe(session_id, obfuscate=False)
    await hub.ready(session_id)
    hub.attach(subscription, 0, f"evt_{session_id[-16:]}_0", [])
    return subscription


def _opened(writer: Hub, reader: Hub, session_id: str) -> LiveItem:
    """An item that is announced on both sides, as if it had been committed and read."""
    item = AssistantMessageItem(id="msg_1", turn_id="turn_1", status="in_progress", content=[])
    event = ItemAdded(
        event_id=f"evt_{session_id[-16:]}_1",
        session_id=session_id,
        turn_id="turn_1",
        item=item,
        output_index=0,
    )
    assert isinstance(reader.outlet, Exchange)
    reader.outlet.published(session_id, 1, 1, event)
    return writer.open_item(session_id, "turn_1", "msg_1", 0, epoch=1, after=1)


async def _write(item: LiveItem, count: int, pace: float) -> list[float]:
    """Append `count` words; when each was."""
    times: list[float] = []
    for number in range(count):
        times.append(time.perf_counter())
        item.append_text(WORD)
        if pace:
            await asyncio.sleep(pace)
        elif number % BURST == 0:
            await asyncio.sleep(0)
    return times


async def _read(subscription: Subscription, length: int) -> list[tuple[int, float]]:
    """Read so many characters; how many there were at which time."""
    found: list[tuple[int, float]] = []
    reached = 0
    while reached < length:
        batch = await subscription.next_batch(PATIENCE_SECONDS)
        if not batch:
            raise RuntimeError(f"{reached} of {length} characters arrived")
        reached += sum(len(frame.text) for frame in batch if isinstance(frame, DeltaFrame))
        found.append((reached, time.perf_counter()))
    return found
