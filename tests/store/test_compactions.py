"""Compactions on both databases: written by the owner alone, read without what they cover."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Engine, func, select

from perdure.store.boundary import Boundary
from perdure.store.claims import claim
from perdure.store.compactions import (
    Compaction,
    list_compactions,
    load_history,
    read_call,
    read_standing,
    record_compaction,
)
from perdure.store.engine import now_us, open_engine
from perdure.store.history import load_turn_items
from perdure.store.locked import Fenced
from perdure.store.migrate import migrate
from perdure.store.purge import purge_deleted
from perdure.store.sessions import create_session, delete_session, resolve_settings
from perdure.store.steps import Call, Spent, Text, commit_step
from perdure.store.tables import compactions
from perdure.store.tx import Tx
from perdure.wire.ids import new_id
from perdure.wire.sessions import SessionCreate

PROJECT = "default"
NOTHING = Spent(None, 0, 0)
ODD = "nul \u0000, é, 𝄞"


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = open_engine(database_url)
    migrate(engine)
    yield engine
    engine.dispose()


@contextmanager
def tx(engine: Engine) -> Iterator[Tx]:
    with engine.begin() as conn:
        if engine.dialect.name == "sqlite":
            conn.exec_driver_sql("BEGIN IMMEDIATE")
        yield Tx(conn, now_us())
        if engine.dialect.name == "sqlite":
            conn.exec_driver_sql("COMMIT")


def start(engine: Engine) -> Boundary:
    """A session in its first turn, behind a step with an asynchronous call and one that was answered."""
    body = SessionCreate.model_validate(
        {"agent": {"model": "m"}, "environment": {"type": "none"}, "input": "Hello."}
    )
    session_id = new_id("sess")
    with tx(engine) as opened:
        name, settings = resolve_settings(opened.conn, PROJECT, body)
        create_session(opened, session_id, PROJECT, body, name, settings)
    with tx(engine) as opened:
        boundary = claim(opened, session_id, owner="w")
    assert boundary is not None
    assert boundary.turn is not None
    calls = [Call("survey", {"place": ODD}, is_async=True), Call("read_result", {}, answer="a part")]
    with tx(engine) as opened:
        spent = Spent(None, 0)
        following = commit_step(opened, boundary.lease, boundary.turn.id, 0, calls, spent, ending=None)
    assert following.state == "run"
    return following


def compaction(through: int, carried: list[int]) -> Compaction:
    data: dict[str, Any] = {"summary": ODD, "carried": carried}
    pins = [{"name": "order", "value": ODD}]
    return Compaction(0, through, "summary", data, pins, {"before": 9, "after": 1}, {"model": "m"}, {})


def test_what_is_covered_is_not_read_but_carried_items_and_the_items_stay(engine: Engine) -> None:
    boundary = start(engine)
    turn, lease = boundary.turn, boundary.lease
    assert turn is not None
    with engine.connect() as conn:
        whole = load_history(conn, turn.session_id, turn.agent_id)
        listed = load_turn_items(conn, turn.id)
    assert whole.compaction is None
    positions = [item.pos for item in whole.items]
    for number, (through, carried) in enumerate(((positions[1], positions[:1]), (positions[-1], [])), 1):
        with tx(engine) as opened:
            _, recorded = record_compaction(opened, lease, turn.id, compaction(through, carried), NOTHING)
        assert recorded.number == number
        with engine.connect() as conn:
            history = load_history(conn, turn.session_id, turn.agent_id)
            assert load_turn_items(conn, turn.id) == listed
        assert history.compaction == recorded
        assert [item.pos for item in history.items] == carried + [p for p in positions if p > through]
    with engine.connect() as conn:
        assert [each.number for each in list_compactions(conn, turn.session_id, turn.agent_id)] == [2, 1]


def test_an_owner_that_was_displaced_writes_none(engine: Engine) -> None:
    boundary = start(engine)
    assert boundary.turn is not None
    with tx(engine) as opened:
        claim(opened, boundary.lease.session_id, owner="another")
    with pytest.raises(Fenced), tx(engine) as opened:
        record_compaction(opened, boundary.lease, boundary.turn.id, compaction(2, []), NOTHING)
    with engine.connect() as conn:
        assert conn.execute(select(func.count()).select_from(compactions)).scalar_one() == 0


def test_a_compaction_covers_more_than_the_one_before_it(engine: Engine) -> None:
    boundary = start(engine)
    assert boundary.turn is not None
    with tx(engine) as opened:
        record_compaction(opened, boundary.lease, boundary.turn.id, compaction(2, []), NOTHING)
    with pytest.raises(AssertionError), tx(engine) as opened:
        record_compaction(opened, boundary.lease, boundary.turn.id, compaction(2, []), NOTHING)


def test_what_stands_open_and_what_was_answered_is_found(engine: Engine) -> None:
    boundary = start(engine)
    turn = boundary.turn
    assert turn is not None
    with engine.connect() as conn:
        ends, owed = read_standing(conn, turn.session_id, turn.agent_id, [turn.id, "turn_none"])
        found = read_call(conn, turn.session_id, turn.agent_id, owed[0].call_id)
        assert read_call(conn, turn.session_id, "agt_another", owed[0].call_id) is None
    assert ends == {turn.id: "in_progress"}
    assert [call.arguments for call in owed] == [{"place": ODD}]
    assert found == owed[0]


def test_compactions_go_with_their_session(engine: Engine) -> None:
    boundary = start(engine)
    turn = boundary.turn
    assert turn is not None
    with tx(engine) as opened:
        record_compaction(opened, boundary.lease, turn.id, compaction(2, []), NOTHING)
    said = {"role": "assistant", "content": [{"type": "output_text", "text": "Done."}], "phase": None}
    with tx(engine) as opened:
        commit_step(
            opened, boundary.lease, turn.id, 1, [Text("message", said)], Spent(None, 0), ending="completed"
        )
        opened.conn.exec_driver_sql("UPDATE calls SET state = 'dropped'")
        opened.conn.exec_driver_sql("UPDATE sessions SET open_calls = 0")
    with tx(engine) as opened:
        delete_session(opened, turn.session_id, PROJECT)
    with tx(engine) as opened:
        while purge_deleted(opened, 100):
            pass
    with engine.connect() as conn:
        assert conn.execute(select(func.count()).select_from(compactions)).scalar_one() == 0
