"""Taking a session over: what whoever was there before left is closed and counted, and its agents go on.

A claim raises the session's epoch, so that the owner before writes nothing any more, and passes the root's
boundary. The boundaries of the subagents are passed one by one, by `look`.
"""

from __future__ import annotations

from perdure.store.boundary import Boundary, Lease, pass_boundary, starting
from perdure.store.endings import close_torn_items
from perdure.store.locked import LockedSession
from perdure.store.policy import DEFAULT, Policy
from perdure.store.reports import REPORT
from perdure.store.spending import count_interrupted, release
from perdure.store.tx import TurnRecovered, Tx
from perdure.store.waits import is_waiting


def claim(tx: Tx, session_id: str, *, owner: str, policy: Policy = DEFAULT) -> Boundary | None:
    """Become the session's owner and pass the root's first boundary; None when no agent has anything to do.

    Whoever accepts input holds the session's lock until its commit, which the wake is part of. So a claim
    that a wake leads to sees the input, however early the wake was heard of. `woken` names the subagents
    that have an unfinished turn.

    Args:
        owner: the worker that the session names from now on, until it waits or is idle.

    Raises:
        SessionGone: it was deleted meanwhile.
    """
    session = LockedSession.lock(tx, session_id)
    if session.status == "failed":
        return None
    turn = session.turn()
    due = session.row["wake_at"] is not None and session.row["wake_at"] <= tx.now_us
    if not session.row["subagents_running"]:
        if turn is None and not starting(session.inbox()):
            return None
        # Messages to a waiting turn are applied behind its results.
        waiting = turn is not None and turn.status == "waiting" and not due
        if waiting and all(row["kind"] in ("message", REPORT) for row in session.inbox()):
            return None
    session.row["epoch"] += 1
    session.row["owner"] = owner
    if turn is not None and turn.status == "queued":
        # What the API recorded with the turn is new to its owner.
        session.note_items(turn)
    running = [each for each in session.subagents() if each.turn_id is not None]
    take_up_torn(session)
    turn = session.turn()
    session.woken.update(each.id for each in running)
    return pass_boundary(session, session.root, turn, policy=policy)


def take_up_torn(session: LockedSession) -> None:
    """Close what the owner before left in the middle of a step, and count the calls that it broke off.

    A call that it had reserved is counted with its turn, so that the repeated step is told apart from it and
    a server that dies again and again has a ceiling. Who hands a session back has reserved none.
    """
    agents = [session.root, *(each.id for each in session.subagents() if each.turn_id is not None)]
    turns = [turn for agent in agents if (turn := session.turn(agent)) is not None]
    torn = [turn for turn in turns if turn.status == "in_progress" and not is_waiting(session, turn)]
    broken_off = count_interrupted(session, torn or turns[:1])
    for number, turn in enumerate(torn):
        close_torn_items(session, turn)
        session.tx.announcements.append(TurnRecovered(session.id, turn.id))
        if number < broken_off:
            turn = session.turn(turn.agent_id) or turn
            session.update_turn(turn, model_calls=turn.model_calls + 1)


def look(
    tx: Tx,
    lease: Lease,
    agent_id: str,
    *,
    policy: Policy = DEFAULT,
    unbegun: int = 0,
    owner: str | None = None,
) -> Boundary:
    """Pass a boundary of an agent that makes no step now, because something happened that concerns it.

    Args:
        unbegun: how many calls the agent's last boundary asked for that were never begun.
        owner: who looks: the session may have come to rest before, and its owner has not left yet.

    Raises:
        Fenced, SessionGone: the lease is no longer good.
    """
    session = LockedSession.lock(tx, lease.session_id, epoch=lease.epoch)
    if session.row["owner"] is None:
        session.row["owner"] = owner
    release(session, unbegun)
    turn = session.turn(agent_id)
    if turn is not None and turn.status == "queued":
        session.note_items(turn)
    return pass_boundary(session, agent_id, turn, policy=policy)
