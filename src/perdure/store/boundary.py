"""Step boundaries: where accepted input meets a running turn, and where turns wait and end.

    queued ──▶ in_progress ──▶ completed | failed | cancelled
                 │     ▲
                 ▼     │ every blocking result is in
                waiting

Every agent of a session has boundaries of its own, the root as its subagents; only the root's turns make the
session's status and wait for the application. A turn that waits for subagents stays in progress.
All of it happens in the transaction of the session's owner that reaches the boundary: a cancel is
looked for first, then results, then messages; so an accepted input is applied exactly once, and an
idle session has none. A crash before the commit leaves the inbox as it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from perdure.store.accept import add_user_item, start_turn
from perdure.store.endings import drop_calls, end_turn, interrupt, take_input
from perdure.store.locked import LockedSession
from perdure.store.policy import DEFAULT, Policy
from perdure.store.reports import REPORT, apply_reports
from perdure.store.rows import TERMINAL, CallRow, Config, ItemRow, SubagentRow, TurnRow
from perdure.store.spending import NOTHING, Tally, reserve
from perdure.store.waits import first_deadline, is_waiting, settle_waits
from perdure.wire import events as wire
from perdure.wire.turns import TurnErrorCode

InboxRow = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to write one session: valid while `epoch` is the session's."""

    session_id: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Failure:
    code: TurnErrorCode
    message: str


Ending = Literal["completed"] | Failure
State = Literal["run", "waiting", "idle"]


@dataclass(frozen=True, slots=True)
class Boundary:
    """What the owner finds after a boundary.

    run: call the model for `turn`. waiting: the application owes results, or subagents are waited for.
    idle: nothing to do. `items` are those of the agent that the transaction added or changed; `turn_config`
    holds the settings pinned at the turn's start, `config` the newest ones, whose functions count. `spent`
    includes the reservation of the call that `run` asks for; `limits` is what is kept of the session's
    ceilings beside its metadata.

    Args:
        agent_id: whose boundary it is; `subagent` is None for the root.
        woken: other agents that have something to look at since; `touched`: those whose items changed;
            `ended`: subagents whose turns the transaction ended.
        is_reserved: whether the call that is asked for counts already.
        children: the agent's own subagents that are not closed.
    """

    state: State
    lease: Lease
    turn: TurnRow | None
    items: tuple[ItemRow, ...]
    turn_config: Config
    config: Config
    metadata: Mapping[str, str] = field(default_factory=dict)
    spent: Tally = NOTHING
    limits: Mapping[str, Any] | None = None
    agent_id: str = ""
    subagent: SubagentRow | None = None
    woken: tuple[str, ...] = ()
    touched: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()
    is_reserved: bool = False
    children: tuple[SubagentRow, ...] = ()


def starting(rows: Sequence[InboxRow], *, reports_wake: bool = False) -> list[InboxRow]:
    """The input that begins a turn of an idle agent: all but reports, unless the settings say so.

    A report of a turn that was interrupted begins none: somebody wanted an end.
    """
    return [row for row in rows if row["kind"] != REPORT or (reports_wake and not row["payload"]["quiet"])]


def pass_boundary(
    session: LockedSession,
    agent_id: str,
    turn: TurnRow | None,
    *,
    ending: Ending | None = None,
    policy: Policy = DEFAULT,
    goes_on: bool = True,
) -> Boundary:
    """Apply what was accepted for an agent, decide how it goes on, and save the session.

    goes_on: whether an owner runs what comes next; otherwise the turn behind a cancelled one stays queued.
    """
    rows = session.inbox(agent_id)
    is_root = agent_id == session.root
    state: State
    cancels = [row["pos"] for row in rows if row["kind"] == "cancel"]
    if cancels:
        before = [row for row in rows if row["pos"] <= cancels[-1]]
        _cancel(session, turn, before)
        rest = [row for row in session.inbox() if row["pos"] > cancels[-1] or row["kind"] == REPORT]
        # Reports of those that the cancel stopped are no reason to begin anew.
        state, turn = _next_turn(session, agent_id, rest, goes_on=goes_on, is_said=True)
    elif not is_root and turn is not None and session.is_cancelling():
        # The root's boundary ends this turn with its own: nothing is begun meanwhile.
        state, goes_on = "waiting", False
    elif turn is None or ending is not None:
        if turn is not None and ending is not None:
            _finish(session, turn, ending)
        wakes = policy.reports_wake
        rows = session.inbox(agent_id)
        state, turn = _next_turn(session, agent_id, rows, reports_wake=wakes and is_root)
        if not is_root and wakes:
            _call_up_root(session)
    else:
        state, turn = _continue(session, turn, rows, policy)
    _set_alarm(session, is_root=is_root)
    is_reserved = state == "run" and goes_on
    if is_reserved:
        reserve(session)
    elif _is_at_rest(session):
        session.row["owner"] = None
    session.save()
    woken = session.woken - {agent_id}
    return Boundary(
        state=state,
        lease=Lease(session.id, session.row["epoch"]),
        turn=turn,
        items=tuple(item for item in session.changed.values() if item.agent_id == agent_id),
        turn_config=session.config(turn.config_version if turn is not None else None),
        config=session.config(),
        metadata=session.row["metadata"],
        spent=Tally.of(session.row),
        limits=session.row["limits"],
        agent_id=agent_id,
        subagent=None if is_root else session.subagent(agent_id),
        woken=tuple(sorted(woken)),
        touched=tuple(sorted({item.agent_id for item in session.changed.values()} - {agent_id})),
        ended=tuple(sorted(session.ended - {agent_id})),
        is_reserved=is_reserved,
        children=tuple(each for each in session.children(agent_id) if each.status == "active"),
    )


def _set_alarm(session: LockedSession, *, is_root: bool) -> None:
    """Let the session be looked at when the first wait of any of its agents has to end."""
    first = first_deadline(session)
    if not is_root and session.status != "requires_action":
        # Nothing else is timed.
        session.row["wake_at"] = first
    elif first is not None:
        known = session.row["wake_at"]
        session.row["wake_at"] = first if known is None else min(first, known)


def _is_at_rest(session: LockedSession) -> bool:
    """Whether no agent of the session has anything to do."""
    if session.row["subagents_running"]:
        return False
    return session.row["turn_id"] is None or session.status == "requires_action"


def _continue(
    session: LockedSession, turn: TurnRow, rows: Sequence[InboxRow], policy: Policy
) -> tuple[State, TurnRow]:
    """Results first; while calls are open or subagents are waited for, messages stay in the inbox."""
    results = [row for row in rows if row["kind"] == "result"]
    _apply_results(session, turn, results)
    settle_waits(session, turn, rows)
    owed = []
    if turn.subagent_id is None:
        owed = [call for call in session.calls("open") if not call.is_async and call.turn_id == turn.id]
    if owed:
        timeout_us = policy.call_timeout_us
        deadline = None if timeout_us is None else owed[0].created_us + timeout_us
        if deadline is not None and deadline <= session.tx.now_us:
            seconds = (timeout_us or 0) // 1_000_000
            _finish(
                session,
                turn,
                Failure("request_timeout", f"A function call got no result within {seconds} seconds."),
            )
            rest = [row for row in session.inbox() if row["kind"] != "result"]
            state, following = _next_turn(session, turn.agent_id, rest)
            return state, following or turn
        changed = session.status != "requires_action" or bool(results)
        turn = session.update_turn(turn, status="waiting") if turn.status != "waiting" else turn
        session.row["status"] = "requires_action"
        session.row["wake_at"] = deadline
        if changed:
            session.say_session(wire.SessionRequiresAction)
        return "waiting", turn
    if is_waiting(session, turn):
        return "waiting", _set_running(session, turn)
    _apply_messages(session, turn, rows)
    return "run", _set_running(session, turn)


def _set_running(session: LockedSession, turn: TurnRow) -> TurnRow:
    if turn.subagent_id is None:
        session.row["wake_at"] = None
    if turn.status == "in_progress":
        return turn
    if turn.status == "waiting":
        session.row["status"] = "in_progress"
        session.say_session(wire.SessionInProgress)
        return session.update_turn(turn, status="in_progress")
    session.touch()
    turn = session.update_turn(turn, status="in_progress", started_us=session.tx.now_us)
    session.say_turn(wire.TurnInProgress, turn)
    return turn


def _next_turn(
    session: LockedSession,
    agent_id: str,
    rows: Sequence[InboxRow],
    *,
    goes_on: bool = True,
    is_said: bool = False,
    reports_wake: bool = False,
) -> tuple[State, TurnRow | None]:
    """Start the next turn with everything accepted since, without an idle in between; else go idle.

    is_said: say that the session is idle, though it may have been.
    """
    if not starting(rows, reports_wake=reports_wake):
        rows = ()
    if agent_id != session.root:
        return _next_turn_of_subagent(session, agent_id, rows)
    session.row["wake_at"] = None
    if not rows:
        was_idle = session.status == "idle"
        session.row["status"] = "idle"
        changed = any(item.agent_id == agent_id for item in session.changed.values())
        if not was_idle or changed or is_said:
            session.say_session(wire.SessionIdle)
        return "idle", None
    turn = session.insert_turn()
    session.say_turn(wire.TurnCreated, turn)
    _apply_results(session, turn, [row for row in rows if row["kind"] == "result"])
    _apply_messages(session, turn, rows)
    _say_in_progress(session)
    return "run", _set_running(session, turn) if goes_on else turn


def _say_in_progress(session: LockedSession) -> None:
    if session.status != "in_progress":
        session.row["status"] = "in_progress"
        session.say_session(wire.SessionInProgress)


def _next_turn_of_subagent(
    session: LockedSession, agent_id: str, rows: Sequence[InboxRow]
) -> tuple[State, TurnRow | None]:
    """The same for a subagent, whose turns are no matter of the session's status."""
    subagent = session.subagent(agent_id)
    if subagent is None or subagent.status == "closed" or not rows:
        return "idle", None
    turn = session.insert_turn(subagent)
    _apply_messages(session, turn, rows)
    return "run", _set_running(session, turn)


def _call_up_root(session: LockedSession) -> None:
    """Begin a turn of an idle root that has reports to read."""
    if session.row["turn_id"] is None and starting(session.inbox(), reports_wake=True):
        start_turn(session, ())


def _apply_results(session: LockedSession, turn: TurnRow, rows: Sequence[InboxRow]) -> None:
    for row in rows:
        call = session.call(row["payload"]["call_id"])
        assert call is not None
        assert call.result is not None
        _apply_result(session, turn, call, call.result)
    session.drop_inbox([row["pos"] for row in rows])


def _apply_result(session: LockedSession, turn: TurnRow, call: CallRow, result: Mapping[str, Any]) -> None:
    status = "completed" if result["success"] else "failed"
    output = {"call_id": call.call_id, "output": result["output"], "error": result["error"]}
    private = {"late": True} if call.is_async else None
    session.say_item_added(
        session.insert_item(turn, "function_call_output", output, status=status, private=private)
    )
    session.update_call(call, state="applied")
    if not call.is_async:
        session.say_item_done(session.update_item(session.item(call.item_id), status=status))
    session.touch()


def _apply_messages(session: LockedSession, turn: TurnRow, rows: Sequence[InboxRow]) -> None:
    """What others said to the agent, and what its subagents report, which was first."""
    if turn.subagent_id is not None:
        take_input(session, turn, rows)
        return
    apply_reports(session, turn, rows)
    messages = [row for row in rows if row["kind"] == "message"]
    for row in messages:
        add_user_item(session, turn, row["payload"])
    session.drop_inbox([row["pos"] for row in messages])


def _cancel(session: LockedSession, turn: TurnRow | None, rows: Sequence[InboxRow]) -> None:
    """A cancel leaves nothing owed and nobody at work; what was accepted before it is history of the turn."""
    for subagent in session.children(session.root):
        interrupt(session, subagent, is_reported=True)
    session.drop_inbox([row["pos"] for row in rows if row["kind"] == "cancel"])
    begins = turn is None and any(row["kind"] == "message" for row in rows)
    if begins:
        # Said to an idle root behind one cancel and before the next, which ends the turn that it begins.
        turn = session.insert_turn()
        session.say_turn(wire.TurnCreated, turn)
    if turn is not None:
        _apply_results(session, turn, [row for row in rows if row["kind"] == "result"])
        _apply_messages(session, turn, rows)
    if begins:
        _say_in_progress(session)
    drop_calls(session, session.calls("open"))
    if turn is None:
        session.touch()
        return
    if turn.status == "waiting":
        # The last answer changed the status without an event: a next turn has to say in_progress.
        session.row["status"] = "requires_action"
    if turn.status not in TERMINAL:
        end_turn(session, turn, "cancelled")


def _finish(session: LockedSession, turn: TurnRow, ending: Ending) -> None:
    if isinstance(ending, Failure):
        if turn.subagent_id is None:
            # Asynchronous calls outlive their turn: a late result starts the next one.
            owed = [call for call in session.calls("open") if call.turn_id == turn.id and not call.is_async]
            drop_calls(session, owed)
            session.say_error(ending.code, ending.message)
        end_turn(session, turn, "failed", {"code": ending.code, "message": ending.message})
    else:
        end_turn(session, turn, "completed")
