"""A server that dies with a thousand unfinished turns: the next one is ready and takes up all of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import httpx2
import pytest

from .conftest import Databases
from .database import Storage
from .drive import DEADLINE, PAUSE, write_config
from .forge import Forge
from .model import MODEL, Model

pytestmark = pytest.mark.slow

TURNS = 1000
CLIENTS = 40


async def create_sessions(forge: Forge) -> None:
    """Sessions whose model is held, or waits for its turn."""
    body = {"agent": {"model": MODEL}, "environment": {"type": "none"}, "input": "Wait for me."}
    headers = {"Authorization": f"Bearer {forge.api_key}", "OpenAI-Beta": "agents=v1"}
    async with httpx2.AsyncClient(base_url=forge.base_url, headers=headers, timeout=DEADLINE) as client:

        async def create(count: int) -> None:
            for _ in range(count):
                assert (await client.post("/agents/sessions", json=body)).status_code == 201

        async with asyncio.TaskGroup() as group:
            for _ in range(CLIENTS):
                group.create_task(create(TURNS // CLIENTS))


def until(condition: Callable[[], bool]) -> float:
    """Seconds until the condition holds."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < DEADLINE
        time.sleep(PAUSE)
    return time.monotonic() - began


async def test_all_unfinished_turns_are_taken_up_by_the_next_server(
    forge: Forge, model: Model, tmp_path: Path, databases: Databases
) -> None:
    config, storage = write_config(tmp_path, model), Storage(tmp_path / "data", databases())

    def claimed(times: int) -> bool:
        found = storage.query("SELECT count(*) FROM sessions WHERE epoch >= ?", times)
        return found == [(TURNS,)]

    def ended() -> bool:
        found = storage.query("SELECT count(*) FROM turns WHERE status = 'completed'")
        return found == [(TURNS,)]

    forge.start(config, storage, {})
    await create_sessions(forge)
    until(lambda: claimed(1))
    until(model.hold.reached.is_set)
    forge.kill()
    assert storage.query("SELECT status, count(*) FROM turns GROUP BY status") == [("in_progress", TURNS)]
    began = time.monotonic()
    forge.start(config, storage, {})
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
    assert storage.query("SELECT count(*) FROM items WHERE status = 'completed'") == [(2 * TURNS,)]
    assert storage.query("SELECT DISTINCT status FROM sessions") == [("idle",)]
    assert storage.query("SELECT count(*) FROM inbox") == [(0,)]
