"""`growth`: whether the thousandth turn of a session costs more than the hundredth."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import uvloop

from bench.client import connected, message, open_session, take_turn
from bench.machine import cores, pinned
from bench.processes import BareClient, Running, start_bare, start_provider, start_server
from bench.report import Row, percentile

MODEL = "deltas-1"


@dataclass(frozen=True)
class Stretch:
    """What a turn costs before turn `end`.

    Bytes stored since the last mark; milliseconds, and CPU milliseconds, of the turns just before it.
    """

    end: int
    stored: float
    taken: float
    cpu: float
    bare: float


def measure(directory: Path, smoke: bool) -> list[Row]:
    """One session that grows; see `Stretch`."""
    marks = (20, 60) if smoke else (100, 300, 1_000)
    with (
        pinned(cores()[1]),
        start_provider(directory) as provider,
        start_server(directory, provider=provider.port) as server,
        start_bare(directory, provider.port) as bare,
    ):
        stretches = uvloop.run(_measure(server, bare, directory / "data" / "perdure.db", marks))
    first, last = stretches[0], stretches[-1]
    rows = []
    for each in stretches:
        rows.append(Row(f"turn {each.end:,}, database", each.stored, "bytes"))
        rows.append(Row(f"turn {each.end:,}, time", each.taken, "ms", beside=each.bare))
        rows.append(Row(f"turn {each.end:,}, CPU of the server", each.cpu, "ms"))
    rows.append(
        Row(f"database, turn {last.end:,} over {first.end:,}", last.stored / first.stored, "times", 1.1)
    )
    rows.append(
        Row(
            f"time, turn {last.end:,} over {first.end:,}",
            last.taken / first.taken,
            "times",
            1.5,
            beside=last.bare / first.bare,
        )
    )
    return rows


async def _measure(
    server: Running, bare: BareClient, database: Path, marks: tuple[int, ...]
) -> list[Stretch]:
    stretches = []
    body = message("Go on.")
    async with connected(server.port, 2) as (poster, reader):
        session_id = await open_session(poster, reader, MODEL)
        done = behind = 0
        size = _size(database)
        for mark in marks:
            measured = max(10, mark // 10)
            while done < mark - measured:
                await take_turn(poster, reader, session_id, body)
                done += 1
            cpu = server.cpu
            taken = [await take_turn(poster, reader, session_id, body) for _ in range(measured)]
            cpu = server.cpu - cpu
            done += measured
            size, before = _size(database), size
            behind, turns = done, done - behind
            asked = bare.ask(measured, history=mark - 1)
            stretches.append(
                Stretch(
                    end=mark,
                    stored=(size - before) / turns,
                    taken=percentile(taken, 0.5) * 1e3,
                    cpu=cpu / measured * 1e3,
                    bare=percentile(asked.seconds, 0.5) * 1e3,
                )
            )
    return stretches


def _size(database: Path) -> int:
    """Bytes of the database that are in use, those of its log included."""
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as reading:
        pages, free, size = (
            reading.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "freelist_count", "page_size")
        )
        return int((pages - free) * size)
