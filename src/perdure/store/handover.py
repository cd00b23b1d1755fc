"""Sessions that change hands without a step: given back by their owner, or settled because none lives."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, select

from perdure.store.boundary import close_torn_items, pass_boundary
from perdure.store.locked import LockedSession, SessionGone
from perdure.store.spending import count_interrupted, release
from perdure.store.tables import inbox
from perdure.store.tx import Tx, Woken
from perdure.store.workers import live_workers


def hand_back(tx: Tx, session_id: str, owner: str) -> bool:
    """Give an unfinished session back, for anybody to go on with; False if another has it already."""
    try:
        session = LockedSession.lock(tx, session_id)
    except SessionGone:
        return False
    if session.row["owner"] != owner:
        return False
    session.row["owner"] = None
    # The call that the last boundary asked for was never begun.
    release(session)
    session.save()
    tx.announcements.append(Woken(session_id))
    return True


def sessions_to_cancel(conn: Connection) -> Sequence[str]:
    """Sessions in whose inbox an accepted cancel waits."""
    found = conn.execute(select(inbox.c.session_id).where(inbox.c.kind == "cancel").distinct())
    return sorted(row[0] for row in found)


def cancels_among(conn: Connection, session_ids: Sequence[str]) -> Sequence[str]:
    """Those of the sessions in whose inbox an accepted cancel waits."""
    found = conn.execute(
        select(inbox.c.session_id).where(inbox.c.session_id.in_(session_ids), inbox.c.kind == "cancel")
    )
    return [row[0] for row in found]


def settle_cancel(tx: Tx, session_id: str, lease_us: int) -> bool:
    """End the cancelled turn of a session that nobody can run; False while somebody can.

    What was accepted behind the cancel begins a turn that waits for a worker. A worker that was only
    silent finds that the session has another epoch, and stops.
    """
    try:
        session = LockedSession.lock(tx, session_id)
    except SessionGone:
        return True
    turn = session.turn()
    if turn is None or not any(row["kind"] == "cancel" for row in session.inbox()):
        return True
    # Under the lock: a worker that comes to life meanwhile finds the turn ended.
    if live_workers(tx.conn, lease_us):
        return False
    session.row["epoch"] += 1
    count_interrupted(session, turn)
    if turn.status == "in_progress":
        close_torn_items(session, turn)
        turn = session.update_turn(turn, model_calls=turn.model_calls + 1)
    pass_boundary(session, turn, goes_on=False)
    if session.row["turn_id"] is not None:
        tx.announcements.append(Woken(session_id))
    return True
