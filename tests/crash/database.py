"""The databases of crash tests, and what must hold in the rows that a server leaves behind."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import tuple_row
from psycopg.types.json import set_json_loads

from .witness import ENDED, STORED, TURN

FILE = "perdure.db"


@dataclass(frozen=True)
class Storage:
    """Where a server keeps its data: in the directory, or in a database on a PostgreSQL server."""

    data_dir: Path
    url: str | None = None

    @property
    def options(self) -> list[str]:
        """What a command is told of it."""
        named = [] if self.url is None else ["--database", self.url]
        return ["--data-dir", str(self.data_dir), *named]

    def query(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Rows of the database; it may be in use. JSON columns are text."""
        if self.url is None:
            with closing(sqlite3.connect(self.data_dir / FILE, timeout=10)) as connection:
                return connection.execute(statement, values).fetchall()
        with psycopg.connect(self.url, autocommit=True, row_factory=tuple_row) as server:
            set_json_loads(lambda text: bytes(text).decode(), server)
            return server.execute(statement.replace("?", "%s").encode(), values).fetchall()


def check_database(storage: Storage, session_id: str, streams: list[list[dict[str, Any]]]) -> None:
    """The rows of an idle session that owes nothing, and the events its streams told of."""
    if storage.url is None:
        assert storage.query("PRAGMA integrity_check") == [("ok",)]
    (row,) = storage.query(
        "SELECT status, turn_id, inbox_count, open_calls, seq, item_pos, turn_pos FROM sessions WHERE id = ?",
        session_id,
    )
    status, turn_id, inbox_count, open_calls, seq, item_pos, turn_pos = row
    assert (status, turn_id, inbox_count, open_calls) == ("idle", None, 0, 0)
    assert storage.query("SELECT * FROM inbox") == []
    states = storage.query("SELECT DISTINCT state FROM calls WHERE session_id = ?", session_id)
    assert {state for (state,) in states} <= {"applied", "refused", "dropped"}
    for table, last in (("items", item_pos), ("turns", turn_pos)):
        found = storage.query(f"SELECT pos FROM {table} WHERE session_id = ? ORDER BY pos", session_id)
        assert [pos for (pos,) in found] == list(range(1, last + 1)), f"{table} are not dense"
    stored = _stored_events(storage, session_id)
    assert len(stored) == seq
    ends = Counter(
        entry["turn"] for entry in stored if entry["type"] in {f"{TURN}{status}" for status in ENDED}
    )
    ended = storage.query("SELECT id FROM turns WHERE session_id = ?", session_id)
    assert ends == Counter(turn for (turn,) in ended), "a turn did not end exactly once"
    for events in streams:
        for event in events:
            number = STORED.fullmatch(event["event_id"])
            if number is not None:
                assert stored[int(number[1]) - 1]["type"] == event["type"], "an event was not stored as said"


def check_spending(storage: Storage, session_id: str, *, calls: int, deaths: int) -> None:
    """The rows of an idle session's model calls, of which `calls` were to be answered, and its counters."""
    ((spent,),) = storage.query("SELECT spent FROM sessions WHERE id = ?", session_id)
    counted = json.loads(spent)
    assert "reserved" not in counted, "a call that has ended is still reserved"
    rows = storage.query(
        "SELECT number, outcome, input_tokens, output_tokens FROM model_calls WHERE session_id = ?"
        " ORDER BY number",
        session_id,
    )
    assert [row[0] for row in rows] == list(range(1, len(rows) + 1)), "the calls are not dense"
    assert counted["model_calls"] == counted["calls"] == len(rows)
    outcomes = Counter(row[1] for row in rows)
    assert outcomes["ok"] == calls, "a step was listed twice or not at all"
    assert outcomes["cancelled"] <= 1
    assert outcomes["interrupted"] <= deaths, "more calls were broken off than owners died"
    assert outcomes["rate_limit_exceeded"] <= 1
    assert {row[2:] for row in rows if row[1] == "ok"} == {(100, 20)}


def _stored_events(storage: Storage, session_id: str) -> list[dict[str, Any]]:
    rows = storage.query("SELECT seq, entries FROM events WHERE session_id = ? ORDER BY seq", session_id)
    stored: list[dict[str, Any]] = []
    for seq, entries in rows:
        stored += json.loads(entries)
        assert len(stored) == seq, "the sequence of events is not dense"
    return stored
