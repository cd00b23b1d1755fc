"""`page-latency`: a page of a very long session, from either end and from its depths."""

from __future__ import annotations

import random
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import uvloop
from sqlalchemy import Row, insert, select, update

from bench import report
from bench.client import SESSIONS, connected, open_session
from bench.machine import cores, pinned
from bench.processes import Running, start_server
from bench.report import percentile
from perdure.store.engine import open_engine
from perdure.store.tables import items, sessions, turns
from perdure.wire.ids import new_id

ITEMS_PER_TURN = 20
BATCH = 10_000
LIMIT = 5.0


def measure(directory: Path, smoke: bool) -> list[report.Row]:
    """Write the items into the database of a stopped server, then read pages over HTTP."""
    count, reads = (10_000, 50) if smoke else (1_000_000, 500)
    with start_server(directory) as server:
        session_id = uvloop.run(_create(server))
    database = directory / "data" / "perdure.db"
    cursors = _fill(database, session_id, count)
    with pinned(cores()[1]), start_server(directory) as server:
        return uvloop.run(_measure(server, database, session_id, cursors, reads))


async def _create(server: Running) -> str:
    async with connected(server.port, 2) as (poster, reader):
        return await open_session(poster, reader, "desk")


def _fill(database: Path, session_id: str, count: int) -> list[str]:
    """Give the session `count` items; returns ids from all over it."""
    cursors: list[str] = []
    engine = open_engine(f"sqlite:///{database}")
    with engine.connect() as conn:
        conn.exec_driver_sql("BEGIN IMMEDIATE")
        session = conn.execute(select(sessions).where(sessions.c.id == session_id)).one()
        turn_pos, item_pos = session.turn_pos, session.item_pos
        for _ in range(count // BATCH):
            turn_rows = [_turn(session, turn_pos + n + 1) for n in range(BATCH // ITEMS_PER_TURN)]
            item_rows = [
                _item(session, turn_rows[n // ITEMS_PER_TURN], item_pos + n + 1, n % ITEMS_PER_TURN)
                for n in range(BATCH)
            ]
            conn.execute(insert(turns), turn_rows)
            conn.execute(insert(items), item_rows)
            cursors += [row["id"] for row in random.sample(item_rows, 200)]
            turn_pos, item_pos = turn_pos + len(turn_rows), item_pos + BATCH
        changes = {"item_pos": item_pos, "turn_pos": turn_pos}
        conn.execute(update(sessions).where(sessions.c.id == session_id), changes)
        conn.exec_driver_sql("COMMIT")
        conn.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    engine.dispose()
    return cursors


def _turn(session: Row[Any], pos: int) -> dict[str, Any]:
    return {
        "id": new_id("turn"),
        "session_id": session.id,
        "agent_id": session.agent_id,
        "subagent_id": None,
        "pos": pos,
        "status": "completed",
        "config_version": 1,
        "created_us": session.created_us,
        "started_us": session.created_us,
        "completed_us": session.created_us,
        "active_us": 0,
        "error": None,
        "usage": None,
        "usage_unknown": False,
        "prompt_cache": None,
        "outputs": ITEMS_PER_TURN - 1,
        "model_calls": ITEMS_PER_TURN - 1,
        "tool_calls": 0,
    }


def _item(session: Row[Any], turn: dict[str, Any], pos: int, place: int) -> dict[str, Any]:
    """The first item of a turn is the user's, the others are the model's."""
    kind, role = ("input_text", "user") if place == 0 else ("output_text", "assistant")
    content = [{"type": kind, "text": f"Entry {pos} of a session that never ends."}]
    return {
        "session_id": session.id,
        "pos": pos,
        "id": new_id("msg"),
        "turn_id": turn["id"],
        "agent_id": session.agent_id,
        "step": None if place == 0 else place - 1,
        "type": "message",
        "status": "completed",
        "output_index": None if place == 0 else place - 1,
        "data": {"role": role, "content": content, "phase": None},
        "private": None,
    }


async def _measure(
    server: Running, database: Path, session_id: str, cursors: list[str], reads: int
) -> list[report.Row]:
    rows = []
    path = f"{SESSIONS}/{session_id}/items?limit=20"
    async with connected(server.port) as (connection,):
        for order in ("desc", "asc"):
            for what in ("first page", "page behind a random item"):
                taken = []
                for read in range(reads + 20):
                    after = "" if what == "first page" else f"&after={random.choice(cursors)}"
                    began = time.perf_counter()
                    page = await connection.request("GET", f"{path}&order={order}{after}")
                    if read >= 20:
                        taken.append((time.perf_counter() - began) * 1e3)
                    if len(page["data"]) != 20 and not after:
                        raise RuntimeError(f"a page of {len(page['data'])} items where 20 were asked for")
                alone = _database_alone(database, session_id, order, reads)
                for share in (0.5, 0.95):
                    rows.append(
                        report.Row(
                            f"{what}, {order}, p{share * 100:.0f}",
                            percentile(taken, share),
                            "ms",
                            LIMIT,
                            beside=percentile(alone, share),
                            beside_what="the database alone",
                        )
                    )
    return rows


def _database_alone(database: Path, session_id: str, order: str, reads: int) -> list[float]:
    """The same rows by position, through the driver and nothing else."""
    compare = "<" if order == "desc" else ">"
    query = f"SELECT * FROM items WHERE session_id = ? AND pos {compare} ? ORDER BY pos {order} LIMIT 21"
    taken = []
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as reading:
        last = reading.execute("SELECT max(pos) FROM items WHERE session_id = ?", (session_id,)).fetchone()[0]
        for _ in range(reads):
            began = time.perf_counter()
            reading.execute(query, (session_id, random.randint(1, last))).fetchall()
            taken.append((time.perf_counter() - began) * 1e3)
    return taken
