"""The store on PostgreSQL: what many threads, many processes and a lost database mean for an operation."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator

import psycopg
import pytest
from sqlalchemy import Connection, insert, select, text, update
from sqlalchemy.exc import IntegrityError
from tests.postgres import PostgresServer

from perdure.store import hot
from perdure.store.engine import StoreError, open_sync_connection
from perdure.store.idempotency import IdempotencyKey, Outcome, run_once
from perdure.store.migrate import SchemaTooNew
from perdure.store.postgres import PostgresStore
from perdure.store.tables import session_configs
from perdure.store.tx import Announcement, Closed, Tx, Woken


@pytest.fixture
def announced() -> list[Announcement]:
    return []


@pytest.fixture
async def store(postgres_url: str, announced: list[Announcement]) -> AsyncIterator[PostgresStore]:
    opened = await PostgresStore.open(postgres_url, announced.append)
    yield opened
    await opened.close()


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    with PostgresServer(durable=True) as server:
        yield server


def put(tx: Tx, name: str, *, version: int = 0, fail: bool = False) -> str:
    tx.conn.execute(insert(session_configs), {"session_id": name, "version": version, "settings": {}})
    tx.announcements.append(Closed(name))
    if fail:
        raise ValueError(name)
    return name


def names(conn: Connection) -> set[str]:
    return {row[0] for row in conn.execute(select(session_configs.c.session_id))}


def count_up(tx: Tx, name: str) -> int:
    """Read and write under a row lock, as every operation on a session does."""
    row = session_configs.c.session_id == name
    held = tx.conn.execute(select(session_configs.c.settings).where(row).with_for_update()).scalar_one()
    value = held.get("count", 0) + 1
    tx.conn.execute(update(session_configs).where(row), {"settings": {"count": value}})
    tx.announcements.append(Woken(f"{name} {value}"))
    return int(value)


async def test_an_operation_is_all_or_nothing(store: PostgresStore, announced: list[Announcement]) -> None:
    writes = [store.write(put, f"s{n}", fail=n % 3 == 0) for n in range(30)]
    results = await asyncio.gather(*writes, return_exceptions=True)
    kept = [f"s{n}" for n in range(30) if n % 3]
    assert [result for result in results if isinstance(result, str)] == kept
    assert all(isinstance(results[n], ValueError) for n in range(0, 30, 3))
    assert await store.read(names) == set(kept)
    assert sorted(each.session_id for each in announced) == sorted(kept)


async def test_an_error_that_only_the_commit_would_tell_is_the_operations_own(
    store: PostgresStore, announced: list[Announcement]
) -> None:
    def queued(tx: Tx) -> None:
        # Hot statements do not wait for the server's answer.
        hot.INSERT_CONFIG.execute(tx.conn, {"session_id": "twice", "version": 1, "settings": {}})
        tx.announcements.append(Closed("twice"))

    await store.write(queued)
    with pytest.raises((IntegrityError, psycopg.errors.UniqueViolation)):
        await store.write(queued)
    assert announced == [Closed("twice")]
    assert await store.write(put, "next") == "next"


async def test_announcements_leave_in_the_order_of_the_commits_of_a_row(
    store: PostgresStore, announced: list[Announcement]
) -> None:
    for name in ("a", "b"):
        await store.write(put, name)
    announced.clear()
    results = await asyncio.gather(*(store.write(count_up, "ab"[n % 2]) for n in range(120)))
    assert sorted(results) == sorted([*range(1, 61), *range(1, 61)])
    for name in ("a", "b"):
        told = [each.session_id for each in announced if each.session_id.startswith(name)]
        assert told == [f"{name} {n}" for n in range(1, 61)]


async def test_wakes_are_enqueued_in_the_transaction_of_their_data(postgres_url: str) -> None:
    def enqueue(conn: Connection, session_id: str) -> None:
        conn.execute(
            insert(session_configs), {"session_id": f"wake {session_id}", "version": 0, "settings": {}}
        )
        if session_id == "refused":
            raise ValueError(session_id)

    def wake(tx: Tx, name: str) -> None:
        tx.announcements += [Woken(name), Woken(name)]

    store = await PostgresStore.open(postgres_url, lambda _: None, enqueue=enqueue)
    await store.write(wake, "s")
    with pytest.raises(ValueError, match="refused"):
        await store.write(wake, "refused")
    assert await store.read(names) == {"wake s"}
    await store.close()


async def test_a_reader_sees_one_state_of_the_database(store: PostgresStore) -> None:
    looked, written = threading.Event(), threading.Event()

    def look_twice(conn: Connection) -> tuple[set[str], set[str]]:
        first = names(conn)
        looked.set()
        assert written.wait(30)
        return first, names(conn)

    reading = asyncio.create_task(store.read(look_twice))
    await asyncio.to_thread(looked.wait, 30)
    await store.write(put, "meanwhile")
    written.set()
    assert await reading == (set(), set())
    assert await store.read(names) == {"meanwhile"}


async def test_deadlocked_operations_both_land(store: PostgresStore) -> None:
    for name in ("left", "right"):
        await store.write(put, name)
    both = threading.Barrier(2)
    runs: list[str] = []

    def cross(tx: Tx, first: str, second: str) -> None:
        runs.append(first)
        count_up(tx, first)
        if len(runs) <= 2:
            both.wait(30)
        count_up(tx, second)

    await asyncio.gather(store.write(cross, "left", "right"), store.write(cross, "right", "left"))
    assert len(runs) == 3, "one of the two was run again"
    assert await store.write(count_up, "left") == 3


async def test_a_duplicate_waits_for_the_outcome_of_the_first(
    store: PostgresStore, postgres_url: str
) -> None:
    """Two processes, one key: one effect, one outcome."""
    other = await PostgresStore.open(postgres_url, lambda _: None)
    key = IdempotencyKey("p", "/v1/agents", "k", {"a": 1})
    ran: list[int] = []

    def once(tx: Tx, number: int) -> Outcome:
        def effect() -> str:
            ran.append(number)
            return put(tx, f"made by {number}")

        return run_once(tx, key, effect)

    outcomes = await asyncio.gather(*((store if n % 2 else other).write(once, n) for n in range(12)))
    assert len(ran) == 1
    assert {outcome.value for outcome in outcomes} == {f"made by {ran[0]}"}
    assert sum(not outcome.replayed for outcome in outcomes) == 1
    await other.close()


async def test_text_with_nul_is_kept_in_json_and_matches_no_id(store: PostgresStore) -> None:
    settings = {"text": "nul \u0000 and é", "\u0000key": [2**80, None, ""]}

    def insert_row(tx: Tx) -> None:
        hot.INSERT_CONFIG.execute(tx.conn, {"session_id": "s", "version": 1, "settings": settings})

    def find(conn: Connection, session_id: str) -> object:
        return conn.execute(
            select(session_configs.c.settings).where(session_configs.c.session_id == session_id)
        ).scalar()

    await store.write(insert_row)
    assert await store.read(find, "s") == settings
    assert await store.read(find, "s\u0000") is None


async def test_the_write_of_a_cancelled_waiter_lands_and_is_announced(
    store: PostgresStore, announced: list[Announcement]
) -> None:
    waiter = asyncio.create_task(store.write(put, "given-up"))
    await asyncio.sleep(0)
    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    await store.write(put, "after")
    await store.close()
    assert sorted(each.session_id for each in announced) == ["after", "given-up"]


async def test_connections_that_were_closed_while_idle_are_replaced(
    store: PostgresStore, postgres_url: str
) -> None:
    await asyncio.gather(*(store.write(put, f"s{n}") for n in range(20)))
    await asyncio.gather(*(store.read(names) for _ in range(20)))
    with psycopg.connect(postgres_url, autocommit=True) as admin:
        ended = admin.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        ).fetchone()
    assert ended is not None
    assert ended[0] >= 2
    results = await asyncio.gather(*(store.write(put, f"s{n}", version=1) for n in range(20)))
    assert len(results) == 20
    assert len(await store.read(names)) == 20


async def test_an_operation_that_is_stopped_in_mid_transaction_gives_its_locks_back(
    postgres_url: str, store: PostgresStore
) -> None:
    """As a stopped process would hold them."""
    await store.write(put, "held")
    with open_sync_connection(postgres_url) as conn:
        limit = conn.execute(text("SHOW idle_in_transaction_session_timeout")).scalar_one()
    assert limit == "5s"


async def test_a_lost_database_is_said_in_words_and_comes_back(own_server: PostgresServer) -> None:
    url = own_server.create_database()
    store = await PostgresStore.open(url, lambda _: None)
    await store.write(put, "before")
    own_server.kill()
    with pytest.raises(StoreError, match="cannot be used"):
        await store.write(put, "lost")
    with pytest.raises(StoreError, match="cannot be used"):
        await store.read(names)
    own_server.start()
    assert await store.write(put, "after") == "after"
    assert await store.read(names) == {"before", "after"}
    await store.close()
    with pytest.raises(StoreError, match="closed"):
        await store.write(put, "late")


@pytest.mark.parametrize(
    "url", ["postgresql://nobody:wrong@127.0.0.1:1/none", "postgresql://127.0.0.1:1/none?sslmode=bogus"]
)
async def test_a_database_that_cannot_be_reached_is_said_without_its_password(url: str) -> None:
    with pytest.raises(StoreError) as refused:
        await PostgresStore.open(url, lambda _: None)
    assert "wrong" not in str(refused.value)


async def test_a_newer_schema_is_refused(postgres_url: str) -> None:
    await (await PostgresStore.open(postgres_url, lambda _: None)).close()
    with psycopg.connect(postgres_url) as conn:
        conn.execute("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(SchemaTooNew, match="9999"):
        await PostgresStore.open(postgres_url, lambda _: None)
