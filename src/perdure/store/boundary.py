"""Step boundaries: where accepted input meets a running turn, and where turns wait and end.

    queued ──▶ in_progress ──▶ completed | failed | cancelled
                 │     ▲
                 ▼     │ every blocking result is in
                waiting

All of it happens in the transaction of the session's owner that reaches the boundary: a cancel is
looked for first, then results, then messages; so an accepted input is applied exactly once, and an
idle session has none. A crash before the commit leaves the inbox as it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from sqlalchemy import select

from perdure.store.accept import add_user_item, drop_calls
from perdure.store.locked import LockedSession
from perdure.store.parts import close_item
from perdure.store.rows import TERMINAL, CallRow, Config, ItemRow, TurnRow, item_row
from perdure.store.spending import NOTHING, Tally, count_interrupted, reserve
from perdure.store.tables import items
from perdure.store.tx import TurnEnded, TurnRecovered, Tx
from perdure.wire import events as wire
from perdure.wire.turns import TurnErrorCode
from perdure.wire.usage import TokenUsage

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


@dataclass(frozen=True, slots=True)
class Boundary:
    """What the owner finds after a boundary.

    run: call the model for `turn`. waiting: the application owes results. idle: nothing to do.
    `items` are those added or changed by the transaction; `turn_config` holds the settings pinned at
    the turn's start, `config` the newest ones, whose functions count. `spent` includes the reservation
    of the call that `run` asks for; `limits` is what is kept of the session's ceilings beside its metadata.
    """

    state: Literal["run", "waiting", "idle"]
    lease: Lease
    turn: TurnRow | None
    items: tuple[ItemRow, ...]
    turn_config: Config
    config: Config
    metadata: Mapping[str, str] = field(default_factory=dict)
    spent: Tally = NOTHING
    limits: Mapping[str, Any] | None = None


def claim(tx: Tx, session_id: str, *, owner: str, call_timeout_us: int | None = None) -> Boundary | None:
    """Become the session's owner and pass its first boundary; None when it has nothing to do.

    Whoever accepts input holds the session's lock until its commit, which the wake is part of. So a claim
    that a wake leads to sees the input, however early the wake was heard of.

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
    if turn is None and not session.row["inbox_count"]:
        return None
    # Messages to a waiting turn are applied behind its results.
    waiting = turn is not None and turn.status == "waiting" and not due
    if waiting and all(row["kind"] == "message" for row in session.inbox()):
        return None
    session.row["epoch"] += 1
    session.row["owner"] = owner
    count_interrupted(session, turn)
    if turn is not None and turn.status == "queued":
        # What the API recorded with the turn is new to its owner.
        session.note_items(turn)
    if turn is not None and turn.status == "in_progress":
        close_torn_items(session, turn)
        tx.announcements.append(TurnRecovered(session_id))
        # The owner before us broke off a model call, or was about to make one: it is counted, so that
        # the repeated step is told apart from it and a server that dies again and again has a ceiling.
        turn = session.update_turn(turn, model_calls=turn.model_calls + 1)
    return pass_boundary(session, turn, call_timeout_us=call_timeout_us)


def pass_boundary(
    session: LockedSession,
    turn: TurnRow | None,
    *,
    ending: Ending | None = None,
    call_timeout_us: int | None = None,
    goes_on: bool = True,
) -> Boundary:
    """Apply what was accepted, decide how the session goes on, and save it.

    goes_on: whether an owner runs what comes next; otherwise the turn behind a cancelled one stays queued.
    """
    rows = session.inbox()
    state: Literal["run", "waiting", "idle"]
    cancels = [row["pos"] for row in rows if row["kind"] == "cancel"]
    if cancels and turn is not None:
        before = [row for row in rows if row["pos"] <= cancels[-1]]
        _cancel(session, turn, before)
        rest = [row for row in rows if row["pos"] > cancels[-1]]
        state, turn = _next_turn(session, rest, goes_on=goes_on)
    elif turn is None or ending is not None:
        if turn is not None and ending is not None:
            _finish(session, turn, ending)
        state, turn = _next_turn(session, rows)
    else:
        state, turn = _continue(session, turn, rows, call_timeout_us)
    if state == "run" and goes_on:
        reserve(session)
    else:
        session.row["owner"] = None
    session.save()
    return Boundary(
        state=state,
        lease=Lease(session.id, session.row["epoch"]),
        turn=turn,
        items=tuple(session.changed.values()),
        turn_config=session.config(turn.config_version if turn is not None else None),
        config=session.config(),
        metadata=session.row["metadata"],
        spent=Tally.of(session.row),
        limits=session.row["limits"],
    )


def _continue(
    session: LockedSession, turn: TurnRow, rows: Sequence[InboxRow], call_timeout_us: int | None
) -> tuple[Literal["run", "waiting", "idle"], TurnRow]:
    """Results first; while blocking calls are open the messages stay in the inbox."""
    results = [row for row in rows if row["kind"] == "result"]
    _apply_results(session, turn, results)
    owed = [call for call in session.calls("open") if not call.is_async and call.turn_id == turn.id]
    if owed:
        deadline = None if call_timeout_us is None else owed[0].created_us + call_timeout_us
        if deadline is not None and deadline <= session.tx.now_us:
            seconds = (call_timeout_us or 0) // 1_000_000
            _finish(
                session,
                turn,
                Failure("request_timeout", f"A function call got no result within {seconds} seconds."),
            )
            state, following = _next_turn(session, [row for row in rows if row["kind"] != "result"])
            return state, following or turn
        changed = session.status != "requires_action" or bool(results)
        turn = session.update_turn(turn, status="waiting") if turn.status != "waiting" else turn
        session.row["status"] = "requires_action"
        session.row["wake_at"] = deadline
        if changed:
            session.say_session(wire.SessionRequiresAction)
        return "waiting", turn
    _apply_messages(session, turn, [row for row in rows if row["kind"] == "message"])
    return "run", _set_running(session, turn)


def _set_running(session: LockedSession, turn: TurnRow) -> TurnRow:
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
    session: LockedSession, rows: Sequence[InboxRow], *, goes_on: bool = True
) -> tuple[Literal["run", "idle"], TurnRow | None]:
    """Start the next turn with everything accepted since, without an idle in between; else go idle."""
    session.row["wake_at"] = None
    if not rows:
        was_idle = session.status == "idle"
        session.row["status"] = "idle"
        if not was_idle or session.changed:
            session.say_session(wire.SessionIdle)
        return "idle", None
    turn = session.insert_turn()
    session.say_turn(wire.TurnCreated, turn)
    _apply_results(session, turn, [row for row in rows if row["kind"] == "result"])
    _apply_messages(session, turn, [row for row in rows if row["kind"] == "message"])
    if session.status != "in_progress":
        session.row["status"] = "in_progress"
        session.say_session(wire.SessionInProgress)
    return "run", _set_running(session, turn) if goes_on else turn


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
    for row in rows:
        add_user_item(session, turn, row["payload"])
    session.drop_inbox([row["pos"] for row in rows])


def _cancel(session: LockedSession, turn: TurnRow, rows: Sequence[InboxRow]) -> None:
    """A cancel leaves nothing owed; what was accepted before it becomes history of the turn."""
    _apply_results(session, turn, [row for row in rows if row["kind"] == "result"])
    _apply_messages(session, turn, [row for row in rows if row["kind"] == "message"])
    session.drop_inbox([row["pos"] for row in rows if row["kind"] == "cancel"])
    drop_calls(session, session.calls("open"))
    if turn.status == "waiting":
        # The last answer changed the status without an event: a next turn has to say in_progress.
        session.row["status"] = "requires_action"
    if turn.status not in TERMINAL:
        _end(session, session.update_turn(turn, status="cancelled", completed_us=session.tx.now_us))


def _finish(session: LockedSession, turn: TurnRow, ending: Ending) -> None:
    if isinstance(ending, Failure):
        # Asynchronous calls outlive their turn: a late result starts the next one.
        owed = [call for call in session.calls("open") if call.turn_id == turn.id and not call.is_async]
        drop_calls(session, owed)
        session.say_error(ending.code, ending.message)
        turn = session.update_turn(
            turn,
            status="failed",
            completed_us=session.tx.now_us,
            error={"code": ending.code, "message": ending.message},
        )
    else:
        turn = session.update_turn(turn, status="completed", completed_us=session.tx.now_us)
    _end(session, turn)


def _end(session: LockedSession, turn: TurnRow) -> None:
    """Say how the turn ended, and add what it used to the session's total (null once unknown)."""
    session.row["turn_id"] = None
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
    kinds: dict[str, type[wire.TurnStateEvent]] = {
        "completed": wire.TurnCompleted,
        "failed": wire.TurnFailed,
        "cancelled": wire.TurnCancelled,
    }
    session.say_turn(kinds[turn.status], turn)
    code = None if turn.error is None else turn.error["code"]
    session.tx.announcements.append(TurnEnded(session.id, turn.status, code, turn.active_us))


def close_torn_items(session: LockedSession, turn: TurnRow) -> None:
    """Close text that a step left in progress, as far as it was checkpointed."""
    torn = session.tx.conn.execute(
        select(items)
        .where(
            items.c.turn_id == turn.id,
            items.c.status == "in_progress",
            items.c.type.in_(("message", "reasoning")),
        )
        .order_by(items.c.pos)
    )
    for row in torn.fetchall():
        item = item_row(row)
        close_item(session, item, item.data, status="incomplete")
