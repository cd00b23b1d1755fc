"""Waiting for subagents: a row says for whom and until when, and no task, timer or connection is held.

    begun ──▶ over: they rest, the time has come, or the user said something ──▶ completed
       ╰────▶ its turn ends first ──▶ incomplete

The turn stays in progress meanwhile, without a model call. Whatever ends a subagent's turn wakes its parent,
whose next boundary sees that the wait is over; a deadline is the session's `wake_at`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perdure.store import hot
from perdure.store.locked import LockedSession
from perdure.store.reports import last_turn, outcome_of
from perdure.store.rows import ItemRow, TurnRow
from perdure.wire.jsontext import dumps

BROKEN_OFF = "The turn ended before the wait was over."
SHOWN_TEXT = 2000
"""Characters of what a running subagent has written that a wait tells at its end."""


def begin_wait(
    session: LockedSession, turn: TurnRow, item: ItemRow, targets: Sequence[str], for_any: bool, wait_us: int
) -> None:
    """Let the turn wait from its next boundary on."""
    known = _all_waits(session)
    wait = {
        "session_id": session.id,
        "item_id": item.id,
        "agent_id": turn.agent_id,
        "targets": list(targets),
        "for_any": for_any,
        "deadline_us": session.tx.now_us + wait_us,
    }
    hot.INSERT_WAIT.execute(session.tx.conn, wait)
    session.waits = [*known, wait]


def settle_waits(session: LockedSession, turn: TurnRow, rows: Sequence[Mapping[str, Any]]) -> None:
    """End the waits of a turn that are over.

    Args:
        rows: the agent's inbox. What the user, or the agent above, says ends a wait: it would be unheard.
    """
    heard = any(row["kind"] == "message" for row in rows)
    for wait in _waits(session, turn.agent_id):
        resting = [_rests(session, target) for target in wait["targets"]]
        over = any(resting) if wait["for_any"] else all(resting)
        timed_out = not over and wait["deadline_us"] <= session.tx.now_us
        if not (over or timed_out or heard):
            continue
        told: dict[str, Any] = {"timed_out": timed_out, "subagents": states(session, wait["targets"])}
        if heard and not over and not timed_out:
            told["note"] = "The wait ended early, because a new message for you has come."
        elif not timed_out:
            told["note"] = "Reports of those that have ended follow as messages, unless they came before."
        _end(session, wait["item_id"], "completed", dumps(told).decode())


def break_waits(session: LockedSession, turn: TurnRow) -> None:
    """The turn has ended: it waits for nobody any more."""
    for wait in _waits(session, turn.agent_id):
        _end(session, wait["item_id"], "incomplete", BROKEN_OFF)


def is_waiting(session: LockedSession, turn: TurnRow) -> bool:
    """Whether a turn waits for subagents, so that it has no model call under way."""
    return bool(_waits(session, turn.agent_id))


def first_deadline(session: LockedSession) -> int | None:
    """When the first wait of any agent of the session has to end; None while nobody waits."""
    return min((wait["deadline_us"] for wait in _all_waits(session)), default=None)


def states(session: LockedSession, targets: Sequence[str]) -> list[dict[str, Any]]:
    """What subagents are doing, as a model is told it."""
    told = []
    for target in targets:
        subagent = session.subagent(target)
        assert subagent is not None
        state: dict[str, Any] = {"agent_id": subagent.id, "name": subagent.name, "status": subagent.state}
        turn = last_turn(session, subagent)
        if turn is not None and subagent.turn_id is None:
            state["last_turn"] = turn.status
        if turn is not None and subagent.turn_id is not None:
            text = outcome_of(session, turn).text
            state["text_so_far"] = text if len(text) <= SHOWN_TEXT else "…" + text[-SHOWN_TEXT:]
        told.append(state)
    return told


def _rests(session: LockedSession, target: str) -> bool:
    subagent = session.subagent(target)
    return subagent is None or subagent.turn_id is None


def _waits(session: LockedSession, agent_id: str) -> list[dict[str, Any]]:
    return [wait for wait in _all_waits(session) if wait["agent_id"] == agent_id]


def _all_waits(session: LockedSession) -> list[dict[str, Any]]:
    """Read once a transaction: the session's lock keeps others from changing them."""
    if not session.row["subagents"]:
        return []
    if session.waits is None:
        session.waits = hot.WAITS.fetch(session.tx.conn, {"session_id": session.id})
    return session.waits


def _end(session: LockedSession, item_id: str, status: str, result: str) -> None:
    item = session.item(item_id)
    private = {**(item.private or {}), "result": result}
    session.say_item_done(session.update_item(item, status=status, private=private))
    hot.DELETE_WAIT.execute(session.tx.conn, {"session_id": session.id, "item_id": item_id})
    session.waits = [wait for wait in _all_waits(session) if wait["item_id"] != item_id]
