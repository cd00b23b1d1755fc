"""A server that dies with a thousand unfinished turns: the next one is ready and takes up all of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest

from perdure.api.keyring import DEFAULT_PROJECT
from perdure.store.sessions import create_session
from perdure.store.sqlite import SqliteStore
from perdure.wire.ids import new_id
from perdure.wire.sessions import SessionCreate

from .database import FILE, query
from .drive import DEADLINE, PAUSE, write_config
from .forge import Forge
from .model import MODEL, Model

pytestmark = pytest.mark.slow

TURNS = 1000


async def create_sessions(data_dir: Path) -> None:
    """Sessions with a queued turn each, as a server that died right away would leave them."""
    body = SessionCreate.model_validate(
        {"agent": {"model": MODEL}, "environment": {"type": "none"}, "input": "Wait for me."}
    )
    store = await SqliteStore.open(f"sqlite:///{data_dir / FILE}", lambda _: None)
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(TURNS):
                group.create_task(store.write(create_session, new_id("sess"), DEFAULT_PROJECT, body))
    finally:
        await store.close()


def until(condition: Callable[[], bool]) -> float:
    """Seconds until the condition holds."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < DEADLINE
        time.sleep(PAUSE)
    return time.monotonic() - began


async def test_all_unfinished_turns_are_taken_up_by_the_next_server(
    forge: Forge, model: Model, tmp_path: Path
) -> None:
    config, data_dir = write_config(tmp_path, model), tmp_path / "data"
    await create_sessions(data_dir)

    def claimed(times: int) -> bool:
        found = query(data_dir, "SELECT count(*) FROM sessions WHERE epoch >= ?", times)
        return found == [(TURNS,)]

    def ended() -> bool:
        found = query(data_dir, "SELECT count(*) FROM turns WHERE status = 'completed'")
        return found == [(TURNS,)]

    forge.start(config, data_dir, {})
    until(lambda: claimed(1))
    until(model.hold.reached.is_set)
    forge.kill()
    assert query(data_dir, "SELECT status, count(*) FROM turns GROUP BY status") == [("in_progress", TURNS)]
    began = time.monotonic()
    forge.start(config, data_dir, {})
    listening = time.monotonic() - began
    ready = until(lambda: httpx2.get(f"{forge.url}/readyz").status_code == 200)
    taken = until(lambda: claimed(2))
    model.hold.release()
    finished = until(ended)
    assert forge.stop() == 0
    print(
        f"{TURNS} unfinished turns: listening after {listening:.2f} s, ready {ready:.2f} s later, "
        f"all claimed {taken:.2f} s later; all completed {finished:.2f} s after their model answered"
    )
    assert model.provider.violations == []
    assert query(data_dir, "SELECT count(*) FROM items WHERE status = 'completed'") == [(2 * TURNS,)]
    assert query(data_dir, "SELECT DISTINCT status FROM sessions") == [("idle",)]
    assert query(data_dir, "SELECT count(*) FROM inbox") == [(0,)]
