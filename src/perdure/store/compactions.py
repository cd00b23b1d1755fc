"""Compactions: what the model is shown in place of an agent's oldest items.

A compaction is one row, written by the session's owner at a step boundary. Until it is committed the
model's view is the old one; from then on it is the new one, also for whoever takes the session over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from sqlalchemy import Connection, func, select

from perdure.store import hot
from perdure.store.blobs import call_rows, item_rows, whole
from perdure.store.boundary import Lease
from perdure.store.rows import CallRow, ItemRow, TurnRow
from perdure.store.steps import Spent, charge, lock_turn
from perdure.store.tables import calls, compactions, items, turns
from perdure.store.tx import Tx

Method = Literal["native", "summary", "trim"]


@dataclass(frozen=True, slots=True)
class Compaction:
    """One compaction of an agent's history.

    Args:
        through_pos: position of the last item it stands for.
        data: what the note says: `summary`, `requests`, `earlier`, `open`, and the positions of items
            that are `carried`: shown behind the note although it covers them. `native` is what the
            provider itself made, for its own model; `summary` is what others are told then.
        pins: facts restated word for word.
        tokens: `before` and `after`, estimated; `reported`, what the provider counted last, or None.
        model: `provider` and `model` of the summary, or None.
        dropped: how many `items`, `turns` and `results` left the model's view with this one, with the ids
            of the `first_item` and the `last_item`.
    """

    number: int
    through_pos: int
    method: Method
    data: Mapping[str, Any]
    pins: Sequence[Mapping[str, Any]]
    tokens: Mapping[str, Any]
    model: Mapping[str, str] | None
    dropped: Mapping[str, Any]
    created_us: int = 0


@dataclass(frozen=True, slots=True)
class History:
    """An agent's newest compaction, and the items that the model is shown besides, in order."""

    compaction: Compaction | None
    items: tuple[ItemRow, ...]


def record_compaction(
    tx: Tx,
    lease: Lease,
    turn_id: str,
    compaction: Compaction,
    spent: Spent,
    *,
    usage_known: bool = True,
    agent_id: str | None = None,
) -> tuple[TurnRow, Compaction]:
    """Compact the history of the running turn's agent, and charge the turn with what that cost.

    usage_known: whether the provider told what every finished call of the summary used.

    Raises:
        Fenced, SessionGone: the lease is no longer good.
        TurnOver: somebody ended the turn.
    """
    session, turn = lock_turn(tx, lease, turn_id, agent_id)
    here = (compactions.c.session_id == session.id, compactions.c.agent_id == turn.agent_id)
    found = tx.conn.execute(
        select(func.max(compactions.c.number), func.max(compactions.c.through_pos)).where(*here)
    ).one()
    number, through = found[0] or 0, found[1] or 0
    assert compaction.through_pos > through, "a compaction covers more than the one before it"
    values = {field.name: getattr(compaction, field.name) for field in fields(compaction)}
    values |= {"number": number + 1, "created_us": tx.now_us}
    tx.conn.execute(
        compactions.insert().values(session_id=session.id, agent_id=turn.agent_id, **_plain(values))
    )
    turn = charge(session, turn, spent, tool_calls=0)
    if not usage_known:
        turn = session.update_turn(turn, usage=None, usage_unknown=True)
    session.save()
    return turn, Compaction(**values)


def load_history(conn: Connection, session_id: str, agent_id: str) -> History:
    """What an agent's context is built from; what is compacted is not read."""
    found = list_compactions(conn, session_id, agent_id, limit=1)
    newest = found[0] if found else None
    rows: list[Mapping[str, Any]] = []
    through = -1
    if newest is not None:
        carried = [int(pos) for pos in newest.data["carried"]]
        if carried:
            here = (items.c.session_id == session_id, items.c.agent_id == agent_id, items.c.pos.in_(carried))
            rows += map(dict, conn.execute(select(items).where(*here).order_by(items.c.pos)).mappings())
        through = newest.through_pos
    rows += hot.ITEMS_BEHIND.fetch(conn, {"session_id": session_id, "agent_id": agent_id, "pos": through})
    return History(newest, tuple(ItemRow(**row) for row in whole(conn, rows, "data")))


def list_compactions(
    conn: Connection, session_id: str, agent_id: str, *, limit: int = 100
) -> list[Compaction]:
    """An agent's newest compactions, newest first."""
    names = [field.name for field in fields(Compaction)]
    found = hot.COMPACTIONS.fetch(conn, {"session_id": session_id, "agent_id": agent_id, "limit": limit})
    return [Compaction(**{name: row[name] for name in names}) for row in found]


def read_standing(
    conn: Connection, session_id: str, agent_id: str, turn_ids: Sequence[str]
) -> tuple[dict[str, str], list[CallRow]]:
    """The status of each turn by its id, and the agent's calls that have no result."""
    ends: dict[str, str] = {}
    for start in range(0, len(turn_ids), 500):
        part = turn_ids[start : start + 500]
        found = conn.execute(select(turns.c.id, turns.c.status).where(turns.c.id.in_(part)))
        ends |= {row[0]: row[1] for row in found}
    owed = (
        select(calls)
        .where(calls.c.session_id == session_id, calls.c.agent_id == agent_id, calls.c.state == "open")
        .order_by(calls.c.pos)
    )
    return ends, call_rows(conn, owed)


def read_call(conn: Connection, session_id: str, agent_id: str, call_id: str) -> CallRow | None:
    """One of an agent's calls with its result, whole."""
    here = (calls.c.session_id == session_id, calls.c.call_id == call_id, calls.c.agent_id == agent_id)
    found = call_rows(conn, select(calls).where(*here))
    return found[0] if found else None


def read_item(conn: Connection, session_id: str, agent_id: str, item_id: str) -> ItemRow | None:
    """One of an agent's items, whole."""
    here = (items.c.session_id == session_id, items.c.id == item_id, items.c.agent_id == agent_id)
    found = item_rows(conn, select(items).where(*here))
    return found[0] if found else None


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """Values as JSON columns take them."""
    return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}
