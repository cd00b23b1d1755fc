"""Whoever may have lost a session does nothing more for it: no row, no event, no model call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, select
from tests.server import scripted_config

from perdure.config.settings import load_settings
from perdure.harness.advance import advance
from perdure.harness.deps import Deps
from perdure.live.hub import Hub
from perdure.models.registry import Registry
from perdure.store.sessions import create_session, resolve_settings
from perdure.store.sqlite import SqliteStore
from perdure.store.tables import items, sessions, turns
from perdure.store.tx import Announcement, Published, Tx
from perdure.wire.ids import new_id
from perdure.wire.sessions import SessionCreate

CHUNKS = ["One ", "two ", "three."]
SCRIPT = f"[otherwise]\nanswer = [{{ chunks = {CHUNKS} }}]\n"


class Lapsing:
    """An ownership that is lost when it is asked for the n-th time."""

    owner = "worker_1"

    def __init__(self, left: int) -> None:
        self._left = left
        self.asked_after_the_end = 0

    def alive(self) -> bool:
        self._left -= 1
        if self._left < 0:
            self.asked_after_the_end += 1
        return self._left >= 0


class House:
    """A store, a hub and a scripted model in this process, with one session that has a queued turn."""

    def __init__(self, deps: Deps, session_id: str, said: list[Announcement]) -> None:
        self.deps = deps
        self.session_id = session_id
        self.said = said

    async def run(self, ownership: Lapsing) -> None:
        owned = Deps(
            self.deps.settings, self.deps.store, self.deps.hub, self.deps.registry, asyncio.Semaphore(1),
            ownership=ownership,
        )  # fmt: skip
        await advance(owned, self.session_id, asyncio.Event())

    async def rows(self) -> list[Any]:
        def read(conn: Connection) -> list[Any]:
            return [conn.execute(select(table)).fetchall() for table in (sessions, turns, items)]

        return await self.deps.store.read(read)


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    settings = load_settings(scripted_config(tmp_path, {"m": SCRIPT}), {}, {"data_dir": str(tmp_path)})
    said: list[Announcement] = []
    store = await SqliteStore.open(settings.database, said.append)
    registry = Registry(settings)
    body = SessionCreate.model_validate(
        {"agent": {"model": "m"}, "environment": {"type": "none"}, "input": "Count."}
    )
    session_id = new_id("sess")

    def create(tx: Tx) -> None:
        name, agent = resolve_settings(tx.conn, "default", body)
        create_session(tx, session_id, "default", body, name, agent)

    await store.write(create)
    try:
        deps = Deps(settings, store, Hub(1 << 20), registry, asyncio.Semaphore(1))
        yield House(deps, session_id, said)
    finally:
        await registry.close()
        await store.close()


async def test_without_ownership_a_session_is_not_claimed(house: House) -> None:
    before = await house.rows()
    await house.run(Lapsing(0))
    assert await house.rows() == before


@pytest.mark.parametrize("asked", range(1, 7))
async def test_where_ownership_ends_everything_ends(house: House, asked: int) -> None:
    ownership = Lapsing(asked)
    await house.run(ownership)
    assert ownership.asked_after_the_end == 1
    (session,), (turn,), found = await house.rows()
    assert (session.owner, turn.status, turn.model_calls) == ("worker_1", "in_progress", 0)
    assert [item.status for item in found if item.type == "message"] in (
        ["completed"],
        ["completed", "in_progress"],
    )
    ended = {"agent.session.turn.completed", "agent.session.item.done"}
    assert not [said for said in house.said if isinstance(said, Published) and said.event.type in ended]


async def test_with_ownership_to_the_end_the_turn_is_completed(house: House) -> None:
    await house.run(Lapsing(1000))
    (session,), (turn,), found = await house.rows()
    assert (session.owner, session.status, turn.status) == (None, "idle", "completed")
    assert found[-1].data["content"][0]["text"] == "".join(CHUNKS)
