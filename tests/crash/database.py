"""What must hold in the file that a server leaves behind."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

from .witness import ENDED, STORED, TURN

FILE = "perdure.db"


def query(data_dir: Path, statement: str, *values: Any) -> list[tuple[Any, ...]]:
    """Rows of the database; it may be in use."""
    with closing(sqlite3.connect(data_dir / FILE, timeout=10)) as connection:
        return connection.execute(statement, values).fetchall()


def check_database(data_dir: Path, session_id: str, streams: list[list[dict[str, Any]]]) -> None:
    """The rows of an idle session that owes nothing, and the events its streams told of."""
    assert query(data_dir, "PRAGMA integrity_check") == [("ok",)]
    (row,) = query(
        data_dir,
        "SELECT status, turn_id, inbox_count, open_calls, seq, item_pos, turn_pos FROM sessions WHERE id = ?",
        session_id,
    )
    status, turn_id, inbox_count, open_calls, seq, item_pos, turn_pos = row
    assert (status, turn_id, inbox_count, open_calls) == ("idle", None, 0, 0)
    assert query(data_dir, "SELECT * FROM inbox") == []
    states = query(data_dir, "SELECT DISTINCT state FROM calls WHERE session_id = ?", session_id)
    assert {state for (state,) in states} <= {"applied", "refused", "dropped"}
    for table, last in (("items", item_pos), ("turns", turn_pos)):
        found = query(data_dir, f"SELECT pos FROM {table} WHERE session_id = ? ORDER BY pos", session_id)
        assert [pos for (pos,) in found] == list(range(1, last + 1)), f"{table} are not dense"
    stored = _stored_events(data_dir, session_id)
    assert len(stored) == seq
    ends = Counter(
        entry["turn"] for entry in stored if entry["type"] in {f"{TURN}{status}" for status in ENDED}
    )
    ended = query(data_dir, "SELECT id FROM turns WHERE session_id = ?", session_id)
    assert ends == Counter(turn for (turn,) in ended), "a turn did not end exactly once"
    for events in streams:
        for event in events:
            number = STORED.fullmatch(event["event_id"])
            if number is not None:
                assert stored[int(number[1]) - 1]["type"] == event["type"], "an event was not stored as said"


def _stored_events(data_dir: Path, session_id: str) -> list[dict[str, Any]]:
    rows = query(data_dir, "SELECT seq, entries FROM events WHERE session_id = ? ORDER BY seq", session_id)
    stored: list[dict[str, Any]] = []
    for seq, entries in rows:
        stored += json.loads(entries)
        assert len(stored) == seq, "the sequence of events is not dense"
    return stored
