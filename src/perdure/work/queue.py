"""The wakes of sessions as jobs of the queue in PostgreSQL: what of it is plain SQL on a connection.

One job asks for one session to be run. Its `lock` is the session, so no two of them run at once; so is
its `queueing_lock`, so no more than one waits. A wake is inserted in the transaction of the data. Where a
job waits already, that is a success: it has not been fetched when the statement looks, so whoever fetches
it takes the session's lock after the transaction has ended, and finds the data.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import psycopg
from sqlalchemy import Connection, text

from perdure.store.engine import now_us
from perdure.store.tx import Tx
from perdure.store.workers import live_workers, worker_number

QUEUE = "perdure"
TASK = "perdure.advance"

# In a pipeline an error ends more than a savepoint can save, and it would be in the server's log each time.
_ENQUEUE = f"""
    INSERT INTO procrastinate_jobs (queue_name, task_name, lock, queueing_lock, args)
    SELECT '{QUEUE}', '{TASK}', id, id, jsonb_build_object('session_id', id)
    FROM unnest(%s::text[]) AS id ORDER BY id
    ON CONFLICT DO NOTHING
"""
_DEAD_JOBS = text(
    """
    SELECT id FROM procrastinate_jobs
    WHERE status = 'doing' AND task_name = :task
        AND (worker_id IS NULL OR worker_id <> ALL(:live)
            OR (worker_id = :own AND id <> ALL(:running)))
    """
)
_TAKE_JOBS = text(
    """
    SELECT id, lock FROM procrastinate_jobs
    WHERE id = ANY(:ids) AND status = 'doing' ORDER BY lock FOR UPDATE SKIP LOCKED
    """
)
_FINISH = text(
    "SELECT procrastinate_finish_job_v1(id, 'failed', true) FROM unnest(CAST(:ids AS bigint[])) AS id"
)
_NO_JOB = """
    NOT EXISTS (SELECT FROM procrastinate_jobs j WHERE j.lock = s.id AND j.status IN ('todo', 'doing'))
"""
# Messages behind results that are owed wait with them: nobody has to do anything.
_LOST = text(
    f"""
    SELECT s.id FROM sessions s
    WHERE s.deleted_us IS NULL AND s.status <> 'failed'
        AND ((s.turn_id IS NOT NULL AND s.status <> 'requires_action')
            OR s.subagents_running > 0
            OR EXISTS (SELECT FROM inbox i WHERE i.session_id = s.id AND i.kind <> 'report'
                AND (i.kind <> 'message' OR s.turn_id IS NULL)))
        AND (s.owner IS NULL OR s.owner <> ALL(:live) OR (s.owner = :own AND s.id <> ALL(:running)))
        AND {_NO_JOB}
    """
)
_DUE = text(f"SELECT s.id FROM sessions s WHERE s.wake_at <= :now AND s.deleted_us IS NULL AND {_NO_JOB}")
_PRUNE = text("SELECT count(*) FROM procrastinate_prune_stalled_workers_v1(:seconds)")


@dataclass(frozen=True, slots=True)
class Seen:
    """What a worker knows of itself when it looks for what nobody does: its id, its jobs, its sessions."""

    owner: str
    jobs: Collection[int]
    sessions: Collection[str]


def enqueue(conn: Connection, session_id: str) -> None:
    """Ask for a session to be run, in this transaction; a wake that waits already is enough."""
    _insert(conn, [session_id])


def enqueue_all(tx: Tx, session_ids: Sequence[str]) -> None:
    """Ask for sessions to be run; in the order of their ids, so that two who do so never deadlock."""
    _insert(tx.conn, session_ids)


def dead_jobs(conn: Connection, lease_us: int, seen: Seen) -> Sequence[int]:
    """Jobs that are being done by nobody: their worker is dead, or is this one and does not know them.

    A job that was fetched in this moment may be among them: look twice.
    """
    own = worker_number(seen.owner)
    # Who looks lives, whatever has become of its lock.
    live = [own, *(worker_number(owner) for owner in live_workers(conn, lease_us))]
    found = conn.execute(_DEAD_JOBS, {"task": TASK, "live": live, "own": own, "running": list(seen.jobs)})
    return [row[0] for row in found]


def give_up(tx: Tx, job_ids: Sequence[int]) -> int:
    """Finish dead jobs and ask for their sessions anew; returns how many.

    Never the queue's own retry: it fails when another wake of the session waits, and with it the session
    would stay blocked.
    """
    found = tx.conn.execute(_TAKE_JOBS, {"ids": list(job_ids)}).fetchall()
    if found:
        tx.conn.execute(_FINISH, {"ids": [row[0] for row in found]})
        _insert(tx.conn, [row[1] for row in found])
    return len(found)


def lost_sessions(conn: Connection, lease_us: int, seen: Seen) -> Sequence[str]:
    """Sessions with something to do that nobody runs and no job asks for: look twice, too."""
    live = [seen.owner, *live_workers(conn, lease_us)]
    found = conn.execute(_LOST, {"live": live, "own": seen.owner, "running": list(seen.sessions)})
    return [row[0] for row in found]


def due_without_job(conn: Connection) -> Sequence[str]:
    """Sessions whose time has come, less those that are asked for already."""
    return [row[0] for row in conn.execute(_DUE, {"now": now_us()})]


def prune_queue(tx: Tx, seconds: float) -> int:
    """Remove the queue's own rows of workers that have been silent for so long."""
    return int(tx.conn.execute(_PRUNE, {"seconds": seconds}).scalar_one())


def _insert(conn: Connection, session_ids: Sequence[str]) -> None:
    driver = conn.connection.driver_connection
    assert isinstance(driver, psycopg.Connection)
    # A plain cursor: in a pipeline the statement leaves without a round trip of its own.
    with psycopg.Cursor(driver) as cursor:
        cursor.execute(_ENQUEUE, (sorted(session_ids),))
