"""Wakes as jobs: none is lost, none is doubled, and none comes before its data."""

from __future__ import annotations

import pytest
from sqlalchemy import text
from tests.conformance.watch import DEADLINE

from perdure.store.claims import claim
from perdure.store.engine import now_us
from perdure.store.tx import Tx
from perdure.store.workers import hold_lock, register_worker
from perdure.work.queue import Seen, dead_jobs, enqueue, enqueue_all, give_up, lost_sessions

from .rows import Rows, cancel, on_thread, say

LEASE = 10_000_000


def seen(number: int, *jobs: int) -> Seen:
    return Seen(f"worker_{number}", jobs, ())


def test_a_wake_that_waits_already_is_enough_and_leaves_the_transaction_usable(rows: Rows) -> None:
    session_id = rows.create()
    with rows.engine.begin() as conn:
        for _ in range(3):
            enqueue(conn, session_id)
        conn.execute(text("INSERT INTO workers VALUES ('worker_1', '\"here\"', 1, 1, 1)"))
    assert rows.jobs() == [("todo", session_id)]
    assert rows.ask("SELECT id FROM workers") == [("worker_1",)]


def test_a_wake_for_a_session_that_is_being_run_waits_behind_its_job(rows: Rows) -> None:
    session_id = rows.create()
    worker = rows.register()
    first = rows.fetch(worker)
    assert first is not None
    for number in range(3):
        rows.do(say, session_id, f"Message {number}.")
    assert rows.jobs() == [("doing", session_id), ("todo", session_id)]
    assert rows.fetch(worker) is None
    rows.finish(first)
    assert rows.fetch(worker) is not None


def test_a_wake_is_undone_with_its_transaction(rows: Rows) -> None:
    session_id = rows.create_idle()
    with rows.engine.connect() as conn:
        begun = conn.begin()
        say(Tx(conn, now_us()), session_id, "Second.")
        enqueue(conn, session_id)
        begun.rollback()
    assert rows.jobs() == []
    assert rows.ask("SELECT status FROM sessions") == [("idle",)]


@pytest.mark.parametrize("commits", [True, False])
def test_two_wakes_at_once_are_one_whatever_becomes_of_the_first(rows: Rows, commits: bool) -> None:
    session_id = rows.create_idle()
    with rows.engine.connect() as conn:
        begun = conn.begin()
        enqueue(conn, session_id)
        second = on_thread(lambda: rows.do(enqueue_all, [session_id]))
        rows.until_blocked()
        begun.commit() if commits else begun.rollback()
        second.result(DEADLINE)
    assert rows.jobs() == [("todo", session_id)]


def test_a_job_that_is_fetched_before_the_data_is_committed_still_finds_it(rows: Rows) -> None:
    session_id = rows.create()
    with rows.engine.connect() as conn:
        begun = conn.begin()
        say(Tx(conn, now_us()), session_id, "Second.")
        enqueue(conn, session_id)  # the job of the creation waits already
        assert rows.fetch(rows.register()) is not None
        claimed = on_thread(lambda: rows.do(claim, session_id, owner="worker_1"))
        rows.until_blocked()
        begun.commit()
    boundary = claimed.result(DEADLINE)
    assert boundary is not None
    texts = [item.data["content"][0]["text"] for item in boundary.items]
    assert texts == ["Hello.", "Second."]


def test_a_wake_during_the_fetch_of_the_waiting_job_is_enqueued_behind_it(rows: Rows) -> None:
    session_id = rows.create()
    worker = rows.register()
    with rows.engine.connect() as conn:
        begun = conn.begin()
        fetched = text("SELECT (procrastinate_fetch_job_v2(ARRAY['perdure'], :worker)).id")
        assert conn.execute(fetched, {"worker": worker}).scalar_one() is not None
        said = on_thread(lambda: rows.do(say, session_id, "Second."))
        rows.until_blocked()
        begun.commit()
        said.result(DEADLINE)
    assert rows.jobs() == [("doing", session_id), ("todo", session_id)]


def test_a_dead_workers_job_is_given_up_though_another_wake_waits(rows: Rows) -> None:
    session_id = rows.create()
    alone = rows.create()
    dead = rows.register()
    jobs = [rows.fetch(dead), rows.fetch(dead)]
    rows.do(say, session_id, "Second.")
    with rows.engine.connect() as conn:
        assert sorted(dead_jobs(conn, LEASE, seen(rows.register()))) == jobs
    assert rows.do(give_up, jobs) == 2
    assert rows.do(give_up, jobs) == 0
    assert sorted(rows.jobs()) == sorted([("todo", session_id), ("todo", alone)])


def test_jobs_of_live_workers_are_not_dead_unless_their_worker_does_not_know_them(rows: Rows) -> None:
    rows.create()
    worker = rows.register()
    job = rows.fetch(worker)
    assert job is not None
    with rows.engine.connect() as conn:
        owner = f"worker_{worker}"
        assert hold_lock(conn, owner)
        register_worker(conn, owner, "here", 1)
        conn.commit()
        other = seen(worker + 1)
        assert dead_jobs(conn, LEASE, other) == []
        assert dead_jobs(conn, LEASE, seen(worker, job)) == []
        assert dead_jobs(conn, LEASE, seen(worker)) == [job]
        # Its heartbeat is older than the lease: stopped, or cut off.
        assert dead_jobs(conn, 0, other) == [job]
    # Its connection is closed: the lock is gone, however young the heartbeat is.
    rows.engine.dispose()
    with rows.engine.connect() as conn:
        assert dead_jobs(conn, LEASE, other) == [job]


def test_sessions_without_a_job_are_found_if_they_have_something_to_do(rows: Rows) -> None:
    queued, owned, idle = rows.create(), rows.create(), rows.create_idle()
    rows.do(claim, owned, owner="worker_7")
    with rows.engine.begin() as conn:
        assert lost_sessions(conn, LEASE, seen(8)) == []
        conn.execute(text("DELETE FROM procrastinate_jobs"))
    with rows.engine.connect() as conn:
        assert sorted(lost_sessions(conn, LEASE, seen(8))) == sorted([queued, owned])
    assert idle not in dict(rows.jobs())


def test_a_cancel_of_an_idle_session_wakes_nobody(rows: Rows) -> None:
    rows.do(cancel, rows.create_idle())
    assert rows.jobs() == []
