"""Calls beside the steps of a turn, such as summaries: counted before they begin, settled when they end.

    reserve ─▶ call ─▶ charge
       ╰─ its process is gone: the session's next owner counts it as interrupted

Such a call may outlive its turn, and the session may have another owner meanwhile. So it is counted under
its own id, by which it is told apart from those that no process has under way any more.
"""

from __future__ import annotations

from sqlalchemy import select

from perdure.store.locked import LockedSession, SessionGone
from perdure.store.rows import TurnRow, turn_row
from perdure.store.spending import (
    Spending,
    Tally,
    amend_interrupted,
    count_after_turn,
    release_beside,
)
from perdure.store.spending import reserve_beside as reserve
from perdure.store.steps import Spent, charge
from perdure.store.tables import turns
from perdure.store.tx import Tx


def reserve_beside(
    tx: Tx, session_id: str, turn_id: str, call_id: str, *, owner: str, provider: str, model: str
) -> Spending:
    """Count a call that is about to begin; what is spent and under way then, this call included.

    Args:
        call_id: names the call, here and in `charge_beside`; it becomes the id of its row.
        owner: the worker that makes the call.

    Raises:
        SessionGone: there is no such session or turn.
    """
    session = LockedSession.lock(tx, session_id)
    turn = _find_turn(session, turn_id)
    reserve(session, call_id, turn, {"owner": owner, "provider": provider, "model": model})
    session.save()
    return Spending(turn, Tally.of(session.row), session.row["metadata"], session.row["limits"])


def charge_beside(
    tx: Tx, session_id: str, turn_id: str, spent: Spent, call_id: str, agent_id: str | None = None
) -> bool:
    """Charge a session with a call that was made beside its steps; False when it is gone.

    Nothing is asked of the caller's lease: what was spent is counted, whoever owns the session now.

    Args:
        spent: of a call that never began, nothing.
        call_id: with which the call was reserved.
        agent_id: whose turn it is (default: the root's).
    """
    try:
        session = LockedSession.lock(tx, session_id)
    except SessionGone:
        return False
    if not release_beside(session, call_id):
        for call in spent.calls:
            amend_interrupted(session, call_id, call, spent.active_us)
        session.save()
        return True
    turn = session.turn(agent_id)
    if not spent.calls:
        pass
    elif turn is not None and turn.id == turn_id:
        turn = charge(session, turn, spent, tool_calls=0)
        if any(call.outcome == "ok" and call.usage is None for call in spent.calls):
            session.update_turn(turn, usage=None, usage_unknown=True)
    else:
        count_after_turn(session, turn_id, spent.calls, spent.active_us, agent_id)
    session.save()
    return True


def _find_turn(session: LockedSession, turn_id: str) -> TurnRow:
    found = session.tx.conn.execute(select(turns).where(turns.c.id == turn_id)).first()
    if found is None:
        raise SessionGone(session.id)
    return turn_row(found)
