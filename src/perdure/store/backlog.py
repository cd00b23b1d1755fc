"""What waits in the database, counted at a bounded cost: a sign of whether anybody works."""

from __future__ import annotations

from sqlalchemy import Connection, func, select

from perdure.config.metrics import Backlog
from perdure.store.tables import inbox, sessions, turns

# Counts stop here: on an ordinary machine 100,000 turns take a third of a second.
MOST_COUNTED = 100_000


def read_backlog(conn: Connection, now_us: int) -> Backlog:
    """Unfinished turns and unapplied inputs of all projects, up to `MOST_COUNTED` of each."""
    unfinished = (
        select(sessions.c.turn_id).where(sessions.c.turn_id.is_not(None)).limit(MOST_COUNTED).subquery()
    )
    by_status = conn.execute(
        select(turns.c.status, func.count(), func.min(turns.c.created_us))
        .join(unfinished, unfinished.c.turn_id == turns.c.id)
        .group_by(turns.c.status)
    ).all()
    counts = {status: count for status, count, _ in by_status}
    queued = [created_us for status, _, created_us in by_status if status == "queued"]
    accepted = select(inbox.c.session_id, inbox.c.kind, inbox.c.accepted_us).limit(MOST_COUNTED).subquery()
    inputs = conn.execute(select(func.count()).select_from(accepted)).scalar_one()
    # Messages to a turn that waits stay behind its results, for as long as the application takes.
    oldest = conn.execute(
        select(func.min(accepted.c.accepted_us))
        .join(sessions, sessions.c.id == accepted.c.session_id)
        .where((accepted.c.kind != "message") | (sessions.c.status != "requires_action"))
    ).scalar_one()
    return Backlog(
        turns=counts,
        oldest_queued=_age(queued[0] if queued else None, now_us),
        inputs=inputs,
        oldest_input=_age(oldest, now_us),
    )


def _age(since_us: int | None, now_us: int) -> float:
    return 0.0 if since_us is None else max(0, now_us - since_us) / 1e6
