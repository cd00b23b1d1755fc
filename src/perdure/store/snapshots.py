"""What a new stream reader must know of a session, read in one transaction."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, select

from perdure.store.blobs import item_rows
from perdure.store.rows import ItemRow
from perdure.store.sessions import find_session, session_of
from perdure.store.tables import calls, items
from perdure.wire.sessions import Session

# Items that are seen in progress: texts that are being written, and waits. Function calls are told by what
# they still need.
_LASTING = ("message", "reasoning", "wait_for_subagents_call")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The session at event sequence `seq`.

    messages: the unfinished turn's user messages, while it runs. unfinished: its items in progress,
    and calls that still need a result.
    """

    seq: int
    session: Session
    messages: tuple[ItemRow, ...] = ()
    unfinished: tuple[ItemRow, ...] = ()


def read_snapshot(conn: Connection, session_id: str, project_id: str) -> Snapshot:
    """Read the snapshot.

    Raises:
        SessionGone: missing, deleted, or of another project.
    """
    row = find_session(conn, session_id, project_id)
    session = session_of(conn, row)
    if session.status not in ("in_progress", "requires_action"):
        return Snapshot(row.seq, session)
    writing = select(items).where(
        items.c.turn_id == row.turn_id,
        items.c.status == "in_progress",
        items.c.type.in_(_LASTING),
    )
    owed = (
        select(items)
        .join(calls, items.c.id == calls.c.item_id)
        .where(calls.c.session_id == session_id, calls.c.state == "open")
    )
    unfinished = (*item_rows(conn, writing), *item_rows(conn, owed))
    found = tuple(sorted(unfinished, key=lambda item: item.pos))
    if session.status == "requires_action":
        return Snapshot(row.seq, session, (), found)
    messages = (
        select(items)
        .where(items.c.turn_id == row.turn_id, items.c.type == "message", items.c.step.is_(None))
        .order_by(items.c.pos)
    )
    return Snapshot(row.seq, session, tuple(item_rows(conn, messages)), found)
