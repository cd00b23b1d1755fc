"""`context`: whether building a request costs more the longer ago a session began."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, insert

from bench.report import Row, percentile
from perdure.config.settings import Settings
from perdure.harness.checks import check_request
from perdure.harness.conversation import Conversation
from perdure.harness.room import Room, Windows
from perdure.models.messages import Capabilities, Entry, ModelRequest
from perdure.models.registry import Resolved
from perdure.store.compactions import load_history
from perdure.store.engine import open_engine
from perdure.store.migrate import migrate
from perdure.store.tables import compactions, items

SIZES = (10, 1_000, 10_000)
TAIL = 8
"""Items behind a compaction."""
SESSION, AGENT = "sess_bench", "agt_bench"
NOTE: dict[str, Any] = {
    "summary": "They spoke about orders. " * 100,
    "requests": [],
    "earlier": 0,
    "open": [],
    "subagents": [],
    "carried": [],
}


def measure(directory: Path, smoke: bool) -> list[Row]:
    """The first step of a turn, from the rows to a checked request, with all but a few items compacted.

    Beside it the same history whole. Both as after a restart, and with the conversation still in memory.
    """
    repeats = 20 if smoke else 200
    rows: list[Row] = []
    costs: dict[int, tuple[float, float]] = {}
    for size in SIZES:
        taken = []
        for compacted in (True, False):
            engine = open_engine(f"sqlite:///{directory}/{size}-{compacted}.db")
            migrate(engine)
            with engine.connect() as conn:
                conn.exec_driver_sql("BEGIN")
                _fill(conn, size, compacted)
                conn.exec_driver_sql("COMMIT")
                count = repeats if compacted or size < SIZES[-1] else max(5, repeats // 20)
                taken.append((_cold(conn, count), _warm(conn, repeats)))
            engine.dispose()
        (cold, warm), (whole_cold, whole_warm) = taken
        costs[size] = (cold, warm)
        for what, value, whole in (("read", cold, whole_cold), ("in memory", warm, whole_warm)):
            rows.append(
                Row(f"{size:,} items, {what}", value * 1e3, "ms", beside=whole * 1e3, beside_what="whole")
            )
    first, last = costs[SIZES[1]], costs[SIZES[-1]]
    for what, place in (("read", 0), ("in memory", 1)):
        rows.append(
            Row(f"{SIZES[-1]:,} items over {SIZES[1]:,}, {what}", last[place] / first[place], "times", 1.5)
        )
    return rows


def _cold(conn: Connection, repeats: int) -> float:
    def build() -> None:
        history = load_history(conn, SESSION, AGENT)
        conversation = Conversation(history.items, history.compaction)
        check_request(_request(_view(conversation)), conversation.checked)

    return _median(build, repeats)


def _warm(conn: Connection, repeats: int) -> float:
    history = load_history(conn, SESSION, AGENT)
    conversation = Conversation(history.items, history.compaction)
    _view(conversation)

    def build() -> None:
        entries = _view(conversation)
        check_request(_request(entries, conversation.settled), conversation.checked)

    return _median(build, repeats)


def _view(conversation: Conversation) -> tuple[Entry, ...]:
    return conversation.view("bench", "m", "turn_running", ROOM, {"order": "A-1042"})


def _request(entries: tuple[Entry, ...], settled: int = 0) -> ModelRequest:
    return ModelRequest(model="m", instructions="", entries=entries, settled=settled)


def _median(build: Callable[[], None], repeats: int) -> float:
    seconds = []
    for _ in range(repeats):
        began = time.perf_counter()
        build()
        seconds.append(time.perf_counter() - began)
    return percentile(seconds, 0.5)


def _fill(conn: Connection, size: int, compacted: bool) -> None:
    """Turns of a question, a call, its result and an answer."""
    made = [_item(pos) for pos in range(1, size + 1)]
    for start in range(0, size, 1_000):
        conn.execute(insert(items), made[start : start + 1_000])
    if compacted and size > TAIL:
        through = (size - TAIL) // 4 * 4
        conn.execute(
            insert(compactions),
            {
                **{"session_id": SESSION, "agent_id": AGENT, "number": 1, "through_pos": through},
                **{"method": "summary", "data": NOTE, "pins": [], "tokens": {}, "model": None},
                **{"dropped": {}, "created_us": 0},
            },
        )


def _item(pos: int) -> dict[str, Any]:
    turn, place = divmod(pos - 1, 4)
    kind, step, data = (
        ("message", None, _message("user", "input_text", f"Where is order A-{turn}?")),
        ("function_call", 0, {"call_id": f"c{turn}", "name": "lookup", "arguments": {"order": f"A-{turn}"}}),
        ("function_call_output", None, {"call_id": f"c{turn}", "output": "packed " * 40, "error": None}),
        ("message", 1, _message("assistant", "output_text", "It is packed and waits for its driver. " * 5)),
    )[place]
    return {
        **{"session_id": SESSION, "pos": pos, "id": f"item_{pos}", "turn_id": f"turn_{turn}"},
        **{"agent_id": AGENT, "step": step, "type": kind, "status": "completed"},
        **{"output_index": None if step is None else step, "data": data, "private": None},
    }


def _message(role: str, kind: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": [{"type": kind, "text": text}], "phase": None}


ROOM = Room.of(
    Resolved(None, "bench", "m", Capabilities(context_window=100_000_000)),  # type: ignore[arg-type]
    Settings(),
    Windows(),
)
