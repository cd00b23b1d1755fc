"""The processes that run sessions: who they are, and which of them live.

A worker on PostgreSQL has a number from the job queue's own table. Its id is `worker_<number>`, and it
holds the session-level advisory lock (`LOCK_CLASS`, number) for as long as its process lives: the server
gives the lock back in the moment the process dies. A process that is stopped, or cut off, keeps the lock
for a while; its heartbeat tells. So a worker lives if its lock is held and its heartbeat is younger than
the lease. SQLite belongs to one process, and that one lives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, delete, insert, literal, literal_column, select, text, update

from perdure.store.engine import now_us
from perdure.store.tables import sessions, workers
from perdure.store.tx import Tx

PREFIX = "worker_"
# Names our locks among the other advisory locks of the database.
LOCK_CLASS = 0x70657264

_LIVE = text(
    f"""
    SELECT w.id FROM workers w
    JOIN pg_locks l ON l.locktype = 'advisory' AND l.objsubid = 2 AND l.granted
        AND l.classid::bigint = {LOCK_CLASS} AND l.objid::text = substr(w.id, {len(PREFIX) + 1})
        AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    WHERE w.heartbeat_us > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - :lease_us
    """
)
_TRY_LOCK = text(f"SELECT pg_try_advisory_lock({LOCK_CLASS}, :number)")


def worker_id(number: int) -> str:
    """The id of the worker that the queue knows by this number."""
    return f"{PREFIX}{number}"


def worker_number(owner: str) -> int:
    """The queue's number of a worker on PostgreSQL."""
    return int(owner.removeprefix(PREFIX))


def register_worker(conn: Connection, owner: str, host: str, pid: int) -> None:
    """Add a worker; on SQLite it takes the place of whoever was there before."""
    if conn.dialect.name == "sqlite":
        conn.execute(delete(workers))
    clock = _clock(conn)
    conn.execute(insert(workers).values(id=owner, host=host, pid=pid, started_us=clock, heartbeat_us=clock))


def add_worker(tx: Tx, owner: str, host: str, pid: int) -> None:
    """`register_worker` as an operation of the store."""
    register_worker(tx.conn, owner, host, pid)


def hold_lock(conn: Connection, owner: str) -> bool:
    """Take the lock that stands for a worker, unless it is still held by an earlier connection."""
    return bool(conn.execute(_TRY_LOCK, {"number": worker_number(owner)}).scalar_one())


def beat(conn: Connection, owner: str) -> bool:
    """Renew a worker's heartbeat; False if the others have given the worker up."""
    renewed = conn.execute(update(workers).where(workers.c.id == owner).values(heartbeat_us=_clock(conn)))
    return renewed.rowcount != 0


def remove_worker(conn: Connection, owner: str) -> None:
    """A worker ends; what it still owns is anybody's."""
    conn.execute(delete(workers).where(workers.c.id == owner))


def live_workers(conn: Connection, lease_us: int) -> Sequence[str]:
    """The ids of the workers that live."""
    if conn.dialect.name == "sqlite":
        return [row[0] for row in conn.execute(select(workers.c.id))]
    return [row[0] for row in conn.execute(_LIVE, {"lease_us": lease_us})]


def forget_workers(tx: Tx, lease_us: int, age_us: int) -> int:
    """Remove workers that are dead and have been silent for `age_us`; they own nothing."""
    live = live_workers(tx.conn, lease_us)
    owns = select(sessions.c.id).where(sessions.c.owner == workers.c.id).exists()
    gone = tx.conn.execute(
        delete(workers).where(
            workers.c.id.not_in(live), workers.c.heartbeat_us < _clock(tx.conn) - age_us, ~owns
        )
    )
    return gone.rowcount


def _clock(conn: Connection) -> Any:
    """The database's own time in microseconds: the only clock that all workers share."""
    if conn.dialect.name == "sqlite":
        return literal(now_us())
    return literal_column("(extract(epoch FROM clock_timestamp()) * 1000000)::bigint")
