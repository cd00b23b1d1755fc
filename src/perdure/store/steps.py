"""A step's rows: items in progress while the model streams, then everything at once.

A step is one model call with its outputs. While it streams, a message or reasoning item is listed as
in progress; when the call ends, `commit_step` writes all its items and calls, passes the boundary
behind it, and only that commit makes the calls visible. A step that fails leaves its text as
`incomplete` items and nothing that is owed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from perdure.store.boundary import Boundary, Ending, Failure, Lease, pass_boundary
from perdure.store.coordination import Coordination, write_coordination
from perdure.store.endings import close_torn_items
from perdure.store.locked import LockedSession
from perdure.store.parts import close_item, open_parts, say_whole_text
from perdure.store.policy import DEFAULT, Policy
from perdure.store.rows import CallRow, ItemRow, TurnRow
from perdure.store.spending import ModelCall, Tally, count_after_turn, release, settle
from perdure.store.tx import Tx
from perdure.wire.ids import new_id
from perdure.wire.usage import TokenUsage


class TurnOver(Exception):
    """Another agent, or a cancel, ended the turn of a subagent while its step was under way."""


EMPTY: Mapping[str, Mapping[str, Any]] = {
    "message": {"role": "assistant", "content": [], "phase": None},
    "reasoning": {"summary": []},
}


@dataclass(frozen=True, slots=True)
class Text:
    """A finished message or reasoning item; `opened` is its row when it was listed while streaming."""

    kind: Literal["message", "reasoning"]
    data: Mapping[str, Any]
    opened: ItemRow | None = None
    private: Mapping[str, Any] | None = None
    status: Literal["completed", "incomplete"] = "completed"


@dataclass(frozen=True, slots=True)
class Call:
    """A finished function call. `refusal` or `answer` is the server's own result, when it gives one.

    `counts` is False of a call that a ceiling refused: it was not made.
    """

    name: str
    arguments: Any
    is_async: bool = False
    refusal: str | None = None
    private: Mapping[str, Any] | None = None
    answer: str | None = None
    counts: bool = True

    @property
    def is_owed(self) -> bool:
        """Whether the application has to give the result."""
        return self.refusal is None and self.answer is None


Output = Text | Call | Coordination


@dataclass(frozen=True, slots=True)
class Spent:
    """What a step cost: `usage` is None when the provider did not tell; times in microseconds.

    `calls` are those of the model calls that are to be listed.
    """

    usage: TokenUsage | None
    active_us: int
    model_calls: int = 1
    calls: tuple[ModelCall, ...] = ()

    def __add__(self, other: Spent) -> Spent:
        used = [usage for usage in (self.usage, other.usage) if usage is not None]
        total = used[0] + used[1] if len(used) == 2 else used[0] if used else None
        return Spent(
            total,
            self.active_us + other.active_us,
            self.model_calls + other.model_calls,
            self.calls + other.calls,
        )


@dataclass(frozen=True, slots=True)
class Opened:
    """`seq` is that of the last event that announced the item."""

    turn: TurnRow
    item: ItemRow
    seq: int


def open_item(
    tx: Tx, lease: Lease, turn_id: str, kind: str, step: int, agent_id: str | None = None
) -> Opened:
    """List a message or reasoning item as in progress, and say so.

    Raises:
        Fenced, SessionGone: the lease is no longer good.
        TurnOver: somebody ended the turn.
    """
    session, turn = lock_turn(tx, lease, turn_id, agent_id)
    item = session.insert_item(
        turn, kind, EMPTY[kind], status="in_progress", output_index=turn.outputs, step=step
    )
    turn = session.update_turn(turn, outputs=turn.outputs + 1)
    session.say_item_added(item)
    open_parts(session, item)
    session.save()
    return Opened(turn, item, session.row["seq"])


def checkpoint_item(tx: Tx, lease: Lease, item: ItemRow, data: Mapping[str, Any]) -> None:
    """Save the text so far of an item in progress; nothing is said.

    Raises:
        Fenced, SessionGone: the lease is no longer good.
        TurnOver: somebody ended the turn, and with it the item.
    """
    session, _ = lock_turn(tx, lease, item.turn_id, item.agent_id)
    session.update_item(item, data=data)


def commit_step(
    tx: Tx,
    lease: Lease,
    turn_id: str,
    step: int,
    outputs: Sequence[Output],
    spent: Spent,
    *,
    ending: Ending | None,
    policy: Policy = DEFAULT,
    agent_id: str | None = None,
) -> Boundary:
    """Write a finished step whole and pass the boundary behind it; `ending` says if the turn ends there.

    Items are said in order: texts end, refused calls are listed as failed, calls are announced with
    their full arguments once they are registered, and calls that concern subagents are made.

    Args:
        agent_id: whose turn it is (default: the root's).
    """
    try:
        session, turn = lock_turn(tx, lease, turn_id, agent_id)
    except TurnOver:
        return _pass_over(tx, lease, turn_id, agent_id, spent, policy)
    made = 0
    for output in outputs:
        match output:
            case Text():
                turn = _write_text(session, turn, step, output)
            case Call():
                turn = _write_call(session, turn, step, output)
                made += output.counts
            case Coordination():
                turn = write_coordination(session, turn, step, output, policy)
                made += output.counts
    turn = charge(session, turn, spent, tool_calls=made)
    release(session)
    if spent.usage is None:
        turn = session.update_turn(turn, usage=None, usage_unknown=True)
    return pass_boundary(session, turn.agent_id, turn, ending=ending, policy=policy)


def abandon_step(
    tx: Tx,
    lease: Lease,
    turn_id: str,
    partial: Sequence[Text],
    spent: Spent,
    *,
    failure: Failure | None,
    policy: Policy = DEFAULT,
    agent_id: str | None = None,
    goes_on: bool = True,
) -> Boundary:
    """Close what a broken or cancelled step had shown; with `failure` the turn ends.

    Args:
        agent_id: whose turn it is (default: the root's).
        goes_on: whether the agent's owner goes on with the step that comes next.
    """
    try:
        session, turn = lock_turn(tx, lease, turn_id, agent_id)
    except TurnOver:
        return _pass_over(tx, lease, turn_id, agent_id, spent, policy)
    for text in partial:
        assert text.opened is not None
        close_item(session, text.opened, text.data, status="incomplete", private=text.private)
    # An item whose opening was still under way when the step broke off.
    close_torn_items(session, turn)
    turn = charge(session, turn, spent, tool_calls=0)
    release(session)
    return pass_boundary(session, turn.agent_id, turn, ending=failure, policy=policy, goes_on=goes_on)


def _pass_over(
    tx: Tx, lease: Lease, turn_id: str, agent_id: str | None, spent: Spent, policy: Policy
) -> Boundary:
    """Somebody ended the turn while its step was under way: what that cost is counted all the same."""
    session = LockedSession.lock(tx, lease.session_id, epoch=lease.epoch)
    count_after_turn(session, turn_id, spent.calls, spent.active_us, agent_id)
    release(session)
    agent_id = agent_id or session.root
    turn = session.turn(agent_id)
    if turn is not None and turn.status == "queued":
        # Whoever ended the turn began this one, and its items are new to the agent.
        session.note_items(turn)
    return pass_boundary(session, agent_id, turn, policy=policy)


def charge_call(
    tx: Tx, lease: Lease, turn_id: str, spent: Spent, agent_id: str | None = None
) -> tuple[TurnRow, Tally]:
    """Charge the running turn with a call that showed nothing and is made again.

    Raises:
        Fenced, SessionGone: the lease is no longer good.
        TurnOver: somebody ended the turn.
    """
    session, turn = lock_turn(tx, lease, turn_id, agent_id)
    turn = charge(session, turn, spent, tool_calls=0)
    session.save()
    return turn, Tally.of(session.row)


def lock_turn(
    tx: Tx, lease: Lease, turn_id: str, agent_id: str | None = None
) -> tuple[LockedSession, TurnRow]:
    """The lease's session under its lock, with the running turn of an agent (default: the root).

    Raises:
        Fenced, SessionGone: the lease is no longer good.
        TurnOver: the turn has ended.
    """
    session = LockedSession.lock(tx, lease.session_id, epoch=lease.epoch)
    turn = session.turn(agent_id)
    if turn is None or turn.id != turn_id:
        raise TurnOver(turn_id)
    return session, turn


def charge(session: LockedSession, turn: TurnRow, spent: Spent, *, tool_calls: int) -> TurnRow:
    """Add what a step used; what a broken-off call used is not known and not guessed."""
    changes: dict[str, Any] = {
        "active_us": turn.active_us + spent.active_us,
        "model_calls": turn.model_calls + spent.model_calls,
        "tool_calls": turn.tool_calls + tool_calls,
    }
    if spent.usage is not None and not turn.usage_unknown:
        total = spent.usage
        if turn.usage is not None:
            total = TokenUsage.model_validate(turn.usage) + total
        changes["usage"] = total.model_dump()
    turn = settle(
        session,
        turn,
        spent.calls,
        model_calls=spent.model_calls,
        tool_calls=tool_calls,
        active_us=spent.active_us,
    )
    return session.update_turn(turn, **changes)


def _write_text(session: LockedSession, turn: TurnRow, step: int, text: Text) -> TurnRow:
    item = text.opened
    if item is None:
        item = session.insert_item(
            turn, text.kind, EMPTY[text.kind], status="in_progress", output_index=turn.outputs, step=step
        )
        turn = session.update_turn(turn, outputs=turn.outputs + 1)
        session.say_item_added(item)
        open_parts(session, item)
        say_whole_text(session, item, text.data)
    close_item(session, item, text.data, status=text.status, private=text.private)
    return turn


def _write_call(session: LockedSession, turn: TurnRow, step: int, call: Call) -> TurnRow:
    call_id = new_id("call")
    status = "failed" if call.answer is None else "completed"
    item = session.insert_item(
        turn,
        "function_call",
        {"call_id": call_id, "name": call.name, "arguments": call.arguments},
        status="in_progress" if call.is_owed else status,
        output_index=turn.outputs,
        step=step,
        private=call.private,
    )
    session.insert_call(
        CallRow(
            session_id=session.id,
            call_id=call_id,
            turn_id=turn.id,
            agent_id=turn.agent_id,
            item_id=item.id,
            pos=item.pos,
            name=call.name,
            arguments=call.arguments,
            is_async=call.is_async,
            state="open" if call.is_owed else "refused",
            result=None,
            created_us=session.tx.now_us,
        )
    )
    if not call.is_owed:
        # Never `item.added`: the official client would run its handler for a call that is answered.
        session.say_item_done(item)
        output = {"call_id": call_id, "output": call.answer, "error": call.refusal}
        session.say_item_added(
            session.insert_item(
                turn, "function_call_output", output, status=status, private={"refusal": True}
            )
        )
    else:
        session.say_item_added(item)
        if call.is_async:
            session.say_item_done(session.update_item(item, status="completed"))
    return session.update_turn(turn, outputs=turn.outputs + 1)
