"""What a process reads that follows sessions for its readers, whoever writes them and wherever."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, select

from perdure.store.replay import Replayed, read_stretch
from perdure.store.tables import sessions

SESSIONS = 500
"""How many sessions one statement names."""


@dataclass(frozen=True, slots=True)
class SessionState:
    """How far a session has come."""

    session_id: str
    seq: int
    deleted: bool


def read_after(conn: Connection, session_id: str, after: int, limit: int) -> Replayed | None:
    """Events behind `after`, oldest first, about `limit` of them; None when there is no such session.

    Of a session that was just deleted too, as long as its events are kept.

    Raises:
        InvalidRequest: events behind `after` are no longer kept.
    """
    session = conn.execute(select(sessions).where(sessions.c.id == session_id)).first()
    if session is None:
        return None
    if after >= session.seq:
        return Replayed((), after, False)
    return read_stretch(conn, session, after, session.seq, limit)


def read_states(conn: Connection, session_ids: Sequence[str]) -> list[SessionState]:
    """How far these sessions have come; those that do not exist (yet) are left out."""
    found: list[SessionState] = []
    for start in range(0, len(session_ids), SESSIONS):
        some = session_ids[start : start + SESSIONS]
        rows = conn.execute(
            select(sessions.c.id, sessions.c.seq, sessions.c.deleted_us).where(sessions.c.id.in_(some))
        )
        found.extend(SessionState(row.id, row.seq, row.deleted_us is not None) for row in rows)
    return found
