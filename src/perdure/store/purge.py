"""Removing the rows of deleted sessions, little by little: a large one never stops the writers."""

from __future__ import annotations

from sqlalchemy import Column, Table, select

from perdure.store.tables import (
    blobs,
    calls,
    compactions,
    deletions,
    events,
    idempotency,
    inbox,
    items,
    model_calls,
    session_configs,
    session_metadata,
    subagents,
    turns,
    waits,
)
from perdure.store.tx import Tx

# What tells the rows of one session apart, table by table.
_ROWS: tuple[tuple[Table, Column[object]], ...] = (
    (items, items.c.pos),
    (events, events.c.seq),
    (calls, calls.c.call_id),
    (turns, turns.c.id),
    (inbox, inbox.c.pos),
    (subagents, subagents.c.pos),
    (waits, waits.c.item_id),
    (blobs, blobs.c.digest),
    (compactions, compactions.c.number),
    (model_calls, model_calls.c.number),
    (idempotency, idempotency.c.key_digest),
    (session_configs, session_configs.c.version),
    (session_metadata, session_metadata.c.key_digest),
)


def purge_deleted(tx: Tx, limit: int) -> int:
    """Remove up to `limit` rows of deleted sessions; returns how many (0: nothing is left)."""
    removed = 0
    for (session_id,) in tx.conn.execute(select(deletions.c.session_id).limit(16)).fetchall():
        for table, key in _ROWS:
            here = select(key).where(table.c.session_id == session_id).limit(limit - removed)
            rows = [row[0] for row in tx.conn.execute(here)]
            for start in range(0, len(rows), 500):
                part = rows[start : start + 500]
                tx.conn.execute(table.delete().where(table.c.session_id == session_id, key.in_(part)))
            removed += len(rows)
            if removed >= limit:
                return removed
        tx.conn.execute(deletions.delete().where(deletions.c.session_id == session_id))
        removed += 1
        if removed >= limit:
            return removed
    return removed
