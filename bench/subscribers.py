"""`idle-subscribers`: what an open event stream costs while nothing happens."""

from __future__ import annotations

import asyncio
from pathlib import Path

import uvloop

from bench.client import SESSIONS, Connection, connected, creation
from bench.machine import cores, pinned
from bench.processes import Running, start_server
from bench.report import Row

BATCH = 50


def measure(directory: Path, smoke: bool) -> list[Row]:
    """Each stream follows an idle session of its own, for one keep-alive period and a little more."""
    count, period = (50, 1.0) if smoke else (2_000, 15.0)
    settings = f"[server]\nkeepalive = {period}\n"
    with pinned(cores()[1]), start_server(directory, settings=settings) as server:
        return uvloop.run(_measure(server, count, period))


async def _measure(server: Running, count: int, period: float) -> list[Row]:
    async with connected(server.port) as (poster,):
        ids = [
            (await poster.request("POST", SESSIONS, creation("desk", "Hello.")))["id"]
            for _ in range(count + BATCH)
        ]
    readers: list[Connection] = []
    try:
        await _follow(server, ids[:BATCH], readers)  # what the first streams cost for all
        cpu = server.cpu
        await asyncio.sleep(1.0)
        quiet = server.cpu - cpu
        before = server.rss
        await _follow(server, ids[BATCH:], readers)
        grown = server.rss - before
        began = sum(reader.keepalives for reader in readers)
        cpu = server.cpu
        await asyncio.sleep(period * 1.2)
        cpu = server.cpu - cpu
        kept = sum(reader.keepalives for reader in readers) - began
        if kept < count:
            raise RuntimeError(f"{count} streams carried only {kept} keep-alives in {period * 1.2} seconds")
        return [
            Row(f"memory of one of {count:,} streams", grown / count / 1000, "kB", 40),
            Row(
                "load of a core, keep-alives included",
                cpu / period / 1.2 * 100,
                "%",
                beside=quiet * 100,
                beside_what=f"{BATCH} streams",
            ),
            Row("CPU for a keep-alive", cpu / kept * 1e6, "µs"),
        ]
    finally:
        for reader in readers:
            reader.close()


async def _follow(server: Running, ids: list[str], readers: list[Connection]) -> None:
    for start in range(0, len(ids), BATCH):
        opened = [await Connection.connect(server.port) for _ in ids[start : start + BATCH]]
        readers += opened
        for reader, session_id in zip(opened, ids[start:], strict=False):
            reader.follow(f"{SESSIONS}/{session_id}/events")
        for reader in opened:
            await reader.until(b"agent.session.idle")
