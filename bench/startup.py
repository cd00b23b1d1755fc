"""`start-up`: from the command to the first answer, and what an idle server holds."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import uvloop

from bench.client import SESSIONS, connected
from bench.processes import Running, start_server
from bench.report import Row


def measure(directory: Path, smoke: bool) -> list[Row]:
    """Servers over an empty directory, whose schema must be made, and over one that exists."""
    tries = 1 if smoke else 5
    interpreter = _seconds("pass", tries)
    imported = _seconds("import perdure", tries)
    first: list[tuple[float, float, float]] = []
    again: list[tuple[float, float, float]] = []
    for number in range(tries):
        home = directory / f"home-{number}"
        home.mkdir()
        first.append(_start(home))
        again.append(_start(home))
    rows = [
        Row(
            "import perdure",
            max(0.0, imported - interpreter) * 1e3,
            "ms",
            300,
            beside=interpreter * 1e3,
            beside_what="Python itself",
        )
    ]
    for name, found in (("first start", first), ("later start", again)):
        listening, answered, rss = (median(values) for values in zip(*found, strict=True))
        rows.append(Row(f"{name}, listening", listening * 1e3, "ms"))
        rows.append(
            Row(
                f"{name}, first answer",
                answered * 1e3,
                "ms",
                1500,
                beside=interpreter * 1e3,
                beside_what="Python itself",
            )
        )
        rows.append(Row(f"{name}, memory when idle", rss / 1e6, "MB", 100))
    return rows


def _seconds(code: str, tries: int) -> float:
    taken = []
    for _ in range(tries + 1):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        taken.append(time.perf_counter() - began)
    return min(taken)


def _start(home: Path) -> tuple[float, float, float]:
    """Seconds to the listening line and to the first answer, and bytes of memory afterwards."""
    with start_server(home, pin=False) as server:
        asked = time.perf_counter()
        uvloop.run(_first_answer(server))
        answered = server.seconds + time.perf_counter() - asked
        time.sleep(1.0)
        return server.seconds, answered, server.rss


async def _first_answer(server: Running) -> None:
    async with connected(server.port) as (connection,):
        await connection.request("GET", SESSIONS)
