"""How turns end: whatever the reason, nothing is left open behind them, and whoever has to know is told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import select

from perdure.store.blobs import item_rows
from perdure.store.locked import LockedSession
from perdure.store.parts import close_item
from perdure.store.reports import apply_reports, leave_report
from perdure.store.rows import CallRow, SubagentRow, TurnRow
from perdure.store.tables import items
from perdure.store.tx import TurnEnded
from perdure.store.waits import break_waits
from perdure.wire import events as wire
from perdure.wire.turns import TurnStatus
from perdure.wire.usage import TokenUsage

_KINDS: dict[str, type[wire.TurnStateEvent]] = {
    "completed": wire.TurnCompleted,
    "failed": wire.TurnFailed,
    "cancelled": wire.TurnCancelled,
}


def end_turn(
    session: LockedSession,
    turn: TurnRow,
    status: TurnStatus,
    error: dict[str, Any] | None = None,
    *,
    is_reported: bool = True,
) -> TurnRow:
    """End a turn, say how, and add what it used to the session's total (null once unknown).

    Args:
        is_reported: whether the parent of a subagent gets a report; otherwise it is told at once.
    """
    break_waits(session, turn)
    turn = session.update_turn(turn, status=status, completed_us=session.tx.now_us, error=error)
    session.close_turn(turn)
    row = session.row
    row["usage_unknown"] = row["usage_unknown"] or turn.usage_unknown
    if row["usage_unknown"]:
        row["usage"] = None
    elif turn.usage is not None:
        total = TokenUsage.model_validate(turn.usage)
        if row["usage"] is not None:
            total = TokenUsage.model_validate(row["usage"]) + total
        row["usage"] = total.model_dump()
    session.touch()
    session.say_turn(_KINDS[status], turn)
    code = None if error is None else error["code"]
    session.tx.announcements.append(TurnEnded(session.id, status, code, turn.active_us, turn))
    if turn.subagent_id is not None and is_reported:
        leave_report(session, turn)
    return turn


def interrupt(session: LockedSession, subagent: SubagentRow, *, is_reported: bool) -> TurnRow | None:
    """End the turn of a subagent, and of those that work for it; None if it had none.

    What it had written is kept as far as it was saved. Input that it had not seen yet is part of the
    turn's history, so that it is not lost when the subagent goes on.
    """
    for child in session.children(subagent.id):
        interrupt(session, child, is_reported=True)
    turn = session.turn(subagent.id)
    if turn is None:
        return None
    close_torn_items(session, turn)
    take_input(session, turn, session.inbox(subagent.id))
    return end_turn(session, turn, "cancelled", is_reported=is_reported)


def take_input(session: LockedSession, turn: TurnRow, rows: Sequence[Any]) -> None:
    """Make what another agent said to a subagent, and reports to it, items of its turn."""
    apply_reports(session, turn, rows)
    messages = [row for row in rows if row["kind"] == "message"]
    for row in messages:
        add_agent_input(session, turn, row["payload"])
    session.drop_inbox([row["pos"] for row in messages])


def add_agent_input(session: LockedSession, turn: TurnRow, payload: Any) -> None:
    """Record what an agent said to the subagent whose turn this is."""
    data = {
        "sender_agent_id": payload["sender"],
        "recipient_agent_id": turn.agent_id,
        "content": payload["content"],
    }
    session.insert_item(turn, "agent_message", data, status=None, private={"input": True})


def drop_calls(session: LockedSession, calls: Sequence[CallRow]) -> None:
    """Calls whose results can no longer be used: their turn is over, or they were given up."""
    for call in calls:
        session.update_call(call, state="dropped")
        item = session.item(call.item_id)
        if item.status == "in_progress":
            session.say_item_done(session.update_item(item, status="incomplete"))
        else:
            session.changed[item.id] = item


def close_torn_items(session: LockedSession, turn: TurnRow) -> None:
    """Close text that a step left in progress, as far as it was checkpointed."""
    torn = (
        select(items)
        .where(
            items.c.turn_id == turn.id,
            items.c.status == "in_progress",
            items.c.type.in_(("message", "reasoning")),
        )
        .order_by(items.c.pos)
    )
    for item in item_rows(session.tx.conn, torn):
        close_item(session, item, item.data, status="incomplete")
