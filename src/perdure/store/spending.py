"""What model calls use: a row for each, and the sums that ceilings are held against.

A call is reserved in the transaction that leads to it and settled in the one that ends it. A reservation
that is still there when the next owner claims the session is a call that its owner broke off by dying: it
counts as made. So the counters of a session never miss a call, and of calls that are about to begin at the
same time each sees those of the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from sqlalchemy import Connection, select, update

from perdure.store import hot
from perdure.store.locked import LockedSession, SessionGone
from perdure.store.rows import TurnRow, turn_row
from perdure.store.tables import model_calls, sessions, turns
from perdure.wire.ids import new_id
from perdure.wire.usage import TokenUsage

INTERRUPTED = "interrupted"
Purpose = Literal["step", "compaction"]


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One call of a model that has ended; times in microseconds since 1970.

    Args:
        outcome: `ok`, `cancelled` or the code of an error.
        usage: what the provider told, None when it told nothing; `is_partial`: before the end.
        assumed: what counts against ceilings in place of an unknown usage.
        cost: billionths of `currency`; None when usage or price are not known.
        assumed_cost: the same of what counts against ceilings.
    """

    provider: str
    model: str
    outcome: str
    started_us: int
    ended_us: int
    first_output_us: int | None = None
    usage: TokenUsage | None = None
    cache_write_tokens: int | None = None
    is_partial: bool = False
    assumed: TokenUsage | None = None
    cost: int | None = None
    assumed_cost: int | None = None
    currency: str | None = None
    purpose: Purpose = "step"


@dataclass(frozen=True, slots=True)
class Tally:
    """What a turn or a session has spent. Of a turn, only tokens and cost are counted here.

    Tokens and cost include what was assumed of calls whose provider told nothing. `reserved` calls of steps
    are about to begin or under way, and so are those `beside` the steps, by their ids; `calls` are the rows
    of the session's calls, `unpriced` those of them of whose cost nothing is known.
    """

    model_calls: int = 0
    reserved: int = 0
    tool_calls: int = 0
    active_us: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    cost: int = 0
    calls: int = 0
    unpriced: int = 0
    beside: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Tally:
        """The tally of a session's row or of a turn's `spent` column."""
        spent = row.get("spent", row)
        return cls(**spent) if spent else NOTHING

    def stored(self) -> dict[str, Any]:
        """As the column holds it: what is not zero."""
        return {name: value for name in _NAMES if (value := getattr(self, name))}

    @property
    def under_way(self) -> int:
        """Calls that are about to begin or under way."""
        return self.reserved + len(self.beside)

    def beside_turn(self, turn_id: str) -> int:
        """Those of them that are beside the steps of a turn."""
        return sum(call["turn_id"] == turn_id for call in self.beside.values())

    @property
    def uncached_input_tokens(self) -> int:
        return self.input_tokens - self.cached_tokens

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def with_call(self, call: ModelCall) -> Tally:
        """The tally with what an ended call used."""
        used = call.usage or call.assumed
        cost = call.cost if call.cost is not None else call.assumed_cost
        changed = replace(self, calls=self.calls + 1, unpriced=self.unpriced + (call.cost is None))
        if cost is not None:
            changed = replace(changed, cost=changed.cost + cost)
        if used is None:
            return changed
        return replace(
            changed,
            input_tokens=changed.input_tokens + used.input_tokens,
            cached_tokens=changed.cached_tokens + used.input_tokens_details.cached_tokens,
            output_tokens=changed.output_tokens + used.output_tokens,
        )


_NAMES = tuple(each.name for each in fields(Tally))
NOTHING = Tally()


def reserve(session: LockedSession) -> Tally:
    """Count a call that is about to begin; the tally with it."""
    tally = Tally.of(session.row)
    return _set(session, replace(tally, reserved=tally.reserved + 1))


def release(session: LockedSession, calls: int = 1) -> None:
    """Take reservations back: the calls have ended, or never began."""
    tally = Tally.of(session.row)
    if tally.reserved:
        _set(session, replace(tally, reserved=max(0, tally.reserved - calls)))


def reserve_beside(session: LockedSession, call_id: str, turn: TurnRow, begun: Mapping[str, Any]) -> None:
    """Count a call beside the steps of a turn that is about to begin.

    Args:
        begun: who makes it (`owner`), and of whom it is made (`provider`, `model`).
    """
    tally = Tally.of(session.row)
    place = {"turn_id": turn.id, "agent_id": turn.agent_id, "begun_us": session.tx.now_us}
    _set(session, replace(tally, beside={**tally.beside, call_id: {**place, **begun}}))


def release_beside(session: LockedSession, call_id: str) -> bool:
    """Take such a reservation back; False if it was counted as interrupted before."""
    tally = Tally.of(session.row)
    rest = {known: begun for known, begun in tally.beside.items() if known != call_id}
    _set(session, replace(tally, beside=rest))
    return len(rest) < len(tally.beside)


def count_interrupted(session: LockedSession, turns: Sequence[TurnRow]) -> int:
    """Count the calls under way of an owner that is gone, and return how many were those of steps.

    Nobody knows what they used. Each agent has had one step at most, so those are listed with the turns in
    this order. The session names its new owner already: what that one has under way beside the steps goes on.
    """
    tally = Tally.of(session.row)
    for number in range(tally.reserved):
        turn = turns[min(number, len(turns) - 1)] if turns else None
        tally = replace(tally, model_calls=tally.model_calls + 1)
        if turn is not None:
            tally = replace(tally, calls=tally.calls + 1, unpriced=tally.unpriced + 1)
            _insert(session, turn, tally.calls, {"outcome": INTERRUPTED, "purpose": "step"})
    beside = dict(tally.beside)
    for call_id, begun in tally.beside.items():
        if begun["owner"] == session.row["owner"]:
            continue
        del beside[call_id]
        tally = replace(
            tally, model_calls=tally.model_calls + 1, calls=tally.calls + 1, unpriced=tally.unpriced + 1
        )
        known = {name: begun[name] for name in ("turn_id", "agent_id", "provider", "model")}
        known |= {"started_us": begun["begun_us"], "outcome": INTERRUPTED, "purpose": "compaction"}
        _insert(session, None, tally.calls, {"id": call_id, **known})
        turn = session.turn(begun["agent_id"])
        if turn is not None and turn.id == begun["turn_id"]:
            session.update_turn(turn, model_calls=turn.model_calls + 1)
    reserved = tally.reserved
    if reserved or len(beside) < len(tally.beside):
        _set(session, replace(tally, reserved=0, beside=beside))
    return reserved


def settle(
    session: LockedSession,
    turn: TurnRow,
    ended: tuple[ModelCall, ...],
    *,
    model_calls: int,
    tool_calls: int,
    active_us: int,
) -> TurnRow:
    """Add what ended calls used to the turn and its session, and list them."""
    tally = Tally.of(session.row)
    of_turn = Tally.of(turn.spent or {})
    for call in ended:
        tally, of_turn = tally.with_call(call), of_turn.with_call(call)
        _insert(session, turn, tally.calls, _values(call))
    _set(
        session,
        replace(
            tally,
            model_calls=tally.model_calls + model_calls,
            tool_calls=tally.tool_calls + tool_calls,
            active_us=tally.active_us + active_us,
        ),
    )
    return session.update_turn(turn, spent=of_turn.stored()) if ended else turn


def count_after_turn(
    session: LockedSession,
    turn_id: str,
    ended: tuple[ModelCall, ...],
    active_us: int,
    agent_id: str | None = None,
) -> None:
    """Add what calls beside a turn used that ended after it: the turn stays as it was reported."""
    tally = Tally.of(session.row)
    for call in ended:
        tally = replace(tally.with_call(call), model_calls=tally.model_calls + 1)
        values = {**_values(call), "agent_id": agent_id or session.root, "turn_id": turn_id}
        _insert(session, None, tally.calls, values)
        _add_usage(session, call)
    _set(session, replace(tally, active_us=tally.active_us + active_us))


def amend_interrupted(session: LockedSession, call_id: str, call: ModelCall, active_us: int) -> bool:
    """Say of a call that was counted as interrupted how it ended after all; False if there is none.

    Its session has another owner since, so the call was counted; what it used comes to it now.
    """
    mine = (model_calls.c.session_id == session.id, model_calls.c.id == call_id)
    changed = session.tx.conn.execute(
        update(model_calls).where(*mine, model_calls.c.outcome == INTERRUPTED).values(_values(call))
    )
    if not changed.rowcount:
        return False
    tally = Tally.of(session.row)
    unpriced = tally.unpriced - (call.cost is not None)
    counted = replace(tally.with_call(call), calls=tally.calls, unpriced=unpriced)
    _add_usage(session, call)
    _set(session, replace(counted, active_us=tally.active_us + active_us))
    return True


def _add_usage(session: LockedSession, call: ModelCall) -> None:
    """Add what a call used that no turn is charged with to the usage of the session."""
    row = session.row
    if call.usage is None:
        if call.outcome == "ok":
            row["usage_unknown"], row["usage"] = True, None
    elif not row["usage_unknown"]:
        known = row["usage"]
        total = call.usage if known is None else TokenUsage.model_validate(known) + call.usage
        row["usage"] = total.model_dump()


def _set(session: LockedSession, tally: Tally) -> Tally:
    session.row["spent"] = tally.stored()
    return tally


def _values(call: ModelCall) -> dict[str, Any]:
    usage = call.usage
    values: dict[str, Any] = {
        "outcome": call.outcome,
        "purpose": call.purpose,
        "provider": call.provider,
        "model": call.model,
        "started_us": call.started_us,
        "first_output_us": call.first_output_us,
        "ended_us": call.ended_us,
        "is_partial": call.is_partial,
        "cost": call.cost,
        "currency": call.currency,
    }
    if usage is not None:
        values |= {
            "input_tokens": usage.input_tokens,
            "cached_tokens": usage.input_tokens_details.cached_tokens,
            "cache_write_tokens": call.cache_write_tokens or 0,
            "output_tokens": usage.output_tokens,
            "reasoning_tokens": usage.output_tokens_details.reasoning_tokens,
        }
    return values


@dataclass(frozen=True, slots=True)
class Spending:
    """What a turn and its session have spent, and what sets the session's ceilings."""

    turn: TurnRow
    tally: Tally
    metadata: Mapping[str, str]
    limits: Mapping[str, Any] | None


def read_spending(conn: Connection, session_id: str, turn_id: str) -> Spending:
    """What has been spent up to now.

    Raises:
        SessionGone: there is no such session or turn.
    """
    session = conn.execute(
        select(sessions.c.spent, sessions.c.metadata, sessions.c.limits).where(
            sessions.c.id == session_id, sessions.c.deleted_us.is_(None)
        )
    ).first()
    turn = conn.execute(select(turns).where(turns.c.id == turn_id)).first()
    if session is None or turn is None:
        raise SessionGone(session_id)
    tally = Tally(**session.spent) if session.spent else NOTHING
    return Spending(turn_row(turn), tally, session.metadata, session.limits)


_EMPTY: dict[str, Any] = dict.fromkeys(
    (
        "provider",
        "model",
        "started_us",
        "first_output_us",
        "input_tokens",
        "cached_tokens",
        "cache_write_tokens",
        "output_tokens",
        "reasoning_tokens",
        "cost",
        "currency",
    )
)


def _insert(session: LockedSession, turn: TurnRow | None, number: int, values: Mapping[str, Any]) -> None:
    of_turn = {} if turn is None else {"turn_id": turn.id, "agent_id": turn.agent_id}
    hot.INSERT_MODEL_CALL.execute(
        session.tx.conn,
        {
            **_EMPTY,
            "session_id": session.id,
            "number": number,
            "id": new_id("mcl"),
            **of_turn,
            "ended_us": session.tx.now_us,
            "is_partial": False,
            **values,
        },
    )
