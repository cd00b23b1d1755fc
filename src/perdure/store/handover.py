"""Sessions that change hands without a step: given back by their owner, or settled because none lives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, select

from perdure.store.boundary import pass_boundary
from perdure.store.claims import take_up_torn
from perdure.store.engine import now_us
from perdure.store.locked import LockedSession, SessionGone
from perdure.store.spending import release
from perdure.store.tables import inbox, sessions, turns
from perdure.store.tx import Tx, Woken
from perdure.store.workers import live_workers


def hand_back(tx: Tx, session_id: str, owner: str, unbegun: int = 1) -> bool:
    """Give an unfinished session back, for anybody to go on with; False if another has it, or nobody has to.

    Args:
        unbegun: how many model calls the last boundaries of its agents asked for that were never begun.
    """
    try:
        session = LockedSession.lock(tx, session_id)
    except SessionGone:
        return False
    if session.row["owner"] is None:
        # It came to rest meanwhile: what was asked for before its turns were ended is never begun.
        release(session, unbegun)
        session.save()
        return False
    if session.row["owner"] != owner:
        return False
    session.row["owner"] = None
    release(session, unbegun)
    session.save()
    tx.announcements.append(Woken(session_id))
    return True


def sessions_to_cancel(conn: Connection) -> Sequence[str]:
    """Sessions in whose inbox an accepted cancel waits."""
    found = conn.execute(select(inbox.c.session_id).where(inbox.c.kind == "cancel").distinct())
    return sorted(row[0] for row in found)


def arrivals_among(conn: Connection, session_ids: Sequence[str], now_us: int) -> Sequence[str]:
    """Those of the sessions whose owner may have something to look at beside the steps that it makes.

    That is a cancel, or, while subagents are at work, a turn that begins, input for a root that waits, and a
    time that has come.
    """
    cancelled = select(inbox.c.session_id).where(
        inbox.c.session_id.in_(session_ids), inbox.c.kind == "cancel"
    )
    begun = select(turns.c.id).where(turns.c.id == sessions.c.turn_id, turns.c.status == "queued")
    found = conn.execute(
        select(sessions.c.id).where(
            sessions.c.id.in_(session_ids),
            sessions.c.id.in_(cancelled)
            | (
                (sessions.c.subagents_running > 0)
                & ((sessions.c.inbox_count > 0) | (sessions.c.wake_at <= now_us) | begun.exists())
            ),
        )
    )
    return [row[0] for row in found]


@dataclass(frozen=True, slots=True)
class Arrivals:
    """What was accepted for a session whose owner looks: `inbox_pos` grows with everything.

    cancelled: an accepted cancel waits in the inbox. is_due: a time that the session waits for has come.
    """

    inbox_pos: int
    turn_id: str | None
    cancelled: bool
    is_due: bool


def read_arrivals(conn: Connection, session_id: str) -> Arrivals:
    """Look at what has arrived.

    Raises:
        SessionGone: the session was deleted.
    """
    found = conn.execute(
        select(sessions.c.inbox_pos, sessions.c.turn_id, sessions.c.inbox_count, sessions.c.wake_at).where(
            sessions.c.id == session_id, sessions.c.deleted_us.is_(None)
        )
    ).first()
    if found is None:
        raise SessionGone(session_id)
    waiting = select(inbox.c.pos).where(inbox.c.session_id == session_id, inbox.c.kind == "cancel").limit(1)
    cancelled = bool(found.inbox_count) and conn.execute(waiting).first() is not None
    is_due = found.wake_at is not None and found.wake_at <= now_us()
    return Arrivals(found.inbox_pos, found.turn_id, cancelled, is_due)


def settle_cancel(tx: Tx, session_id: str, lease_us: int) -> bool:
    """End the cancelled turn of a session that nobody can run; False while somebody can.

    What was accepted behind the cancel begins a turn that waits for a worker. A worker that was only
    silent finds that the session has another epoch, and stops.
    """
    try:
        session = LockedSession.lock(tx, session_id)
    except SessionGone:
        return True
    if not session.is_cancelling():
        return True
    # Under the lock: a worker that comes to life meanwhile finds the turn ended.
    if live_workers(tx.conn, lease_us):
        return False
    session.row["epoch"] += 1
    session.row["owner"] = None
    take_up_torn(session)
    pass_boundary(session, session.root, session.turn(), goes_on=False)
    if session.row["turn_id"] is not None:
        tx.announcements.append(Woken(session_id))
    return True
