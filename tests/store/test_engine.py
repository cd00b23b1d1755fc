"""The writer thread: what a result means, and what a failure leaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import Connection, insert, select
from sqlalchemy.exc import IntegrityError

from perdure.store import sqlite
from perdure.store.engine import StoreError, open_engine, open_sync_connection
from perdure.store.migrate import SchemaTooNew, migrate
from perdure.store.sqlite import SqliteStore
from perdure.store.tables import session_configs
from perdure.store.tx import Announcement, Closed, Tx


@pytest.fixture
def announced() -> list[Announcement]:
    return []


@pytest.fixture
async def store(tmp_path: Path, announced: list[Announcement]) -> AsyncIterator[SqliteStore]:
    opened = await SqliteStore.open(f"sqlite:///{tmp_path}/p.db", announced.append)
    yield opened
    await opened.close()


def put(tx: Tx, name: str, *, fail: bool = False) -> str:
    tx.conn.execute(insert(session_configs), {"session_id": name, "version": 1, "settings": {}})
    tx.announcements.append(Closed(name))
    if fail:
        raise ValueError(name)
    return name


def modes(directory: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mode & 0o777 for path in directory.iterdir()}


def names(conn: Connection) -> set[str]:
    return {row[0] for row in conn.execute(select(session_configs.c.session_id))}


async def test_a_failed_operation_leaves_nothing_and_its_neighbours_everything(
    store: SqliteStore, announced: list[Announcement]
) -> None:
    writes = [store.write(put, f"s{n}", fail=n % 3 == 0) for n in range(30)]
    results = await asyncio.gather(*writes, return_exceptions=True)
    kept = [f"s{n}" for n in range(30) if n % 3]
    assert [result for result in results if isinstance(result, str)] == kept
    assert all(isinstance(results[n], ValueError) for n in range(0, 30, 3))
    assert await store.read(names) == set(kept)
    assert [each.session_id for each in announced] == kept


async def test_an_operation_that_fails_alone_is_rolled_back(store: SqliteStore) -> None:
    with pytest.raises(ValueError, match="lonely"):
        await store.write(put, "lonely", fail=True)
    await store.write(put, "next")
    with pytest.raises(IntegrityError):
        await store.write(put, "next")
    assert await store.read(names) == {"next"}


async def test_the_write_of_a_cancelled_waiter_lands_and_is_announced(
    store: SqliteStore, announced: list[Announcement]
) -> None:
    waiter = asyncio.create_task(store.write(put, "given-up"))
    await asyncio.sleep(0)
    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    await store.write(put, "after")
    assert await store.read(names) == {"given-up", "after"}
    assert [each.session_id for each in announced] == ["given-up", "after"]


async def test_a_commit_that_fails_fails_every_member_and_announces_nothing(
    store: SqliteStore, announced: list[Announcement], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = sqlite.control

    def failing(conn: Connection, statement: str) -> None:
        if statement == "COMMIT":
            raise OSError("the disk is full")
        run(conn, statement)

    monkeypatch.setattr(sqlite, "control", failing)
    results = await asyncio.gather(*(store.write(put, f"s{n}") for n in range(5)), return_exceptions=True)
    monkeypatch.undo()
    assert all(isinstance(result, OSError) for result in results)
    assert announced == []
    assert await store.read(names) == set()
    assert await store.write(put, "recovered") == "recovered"


async def test_a_second_engine_on_the_same_file_is_refused(store: SqliteStore, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="in use by another perdure"):
        await SqliteStore.open(f"sqlite:///{tmp_path}/p.db", lambda _: None)


async def test_a_command_may_write_beside_the_engine(store: SqliteStore, tmp_path: Path) -> None:
    with open_sync_connection(f"sqlite:///{tmp_path}/p.db") as conn:
        conn.execute(insert(session_configs), {"session_id": "cli", "version": 1, "settings": {}})
    assert await store.read(names) == {"cli"}


async def test_nobody_else_may_read_the_database(store: SqliteStore, tmp_path: Path) -> None:
    await store.write(put, "private")
    assert set(modes(tmp_path).values()) == {0o600}


async def test_the_lock_is_free_after_closing(tmp_path: Path) -> None:
    for _ in range(2):
        opened = await SqliteStore.open(f"sqlite:///{tmp_path}/q.db", lambda _: None)
        await opened.close()
        with pytest.raises(StoreError, match="closed"):
            await opened.write(put, "late")


def test_a_newer_schema_is_refused_in_words(tmp_path: Path) -> None:
    database = open_engine(f"sqlite:///{tmp_path}/n.db")
    migrate(database)
    with database.connect() as conn:
        conn.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(SchemaTooNew, match="9999"):
        migrate(database)
    database.dispose()


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "mysql://x/y", "nonsense"])
def test_a_database_that_cannot_be_served_is_refused(url: str) -> None:
    with pytest.raises(StoreError):
        open_engine(url)
