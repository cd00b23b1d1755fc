"""What a session's model calls used: each of them, and their sums by model and by agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict
from sqlalchemy import ColumnElement, Connection, Row, Text, and_, case, cast, func, or_, select

from perdure.config.prices import NANO
from perdure.store.pages import PageRequest, Rows, fetch_page
from perdure.store.rows import TurnRow, turn_row
from perdure.store.sessions import find_session
from perdure.store.spending import NOTHING, Tally
from perdure.store.tables import model_calls, subagents, turns
from perdure.wire.jsontext import loads
from perdure.wire.usage import InputTokensDetails, OutputTokensDetails, TokenUsage

_TOKENS = (
    model_calls.c.input_tokens,
    model_calls.c.cached_tokens,
    model_calls.c.cache_write_tokens,
    model_calls.c.output_tokens,
    model_calls.c.reasoning_tokens,
)
# A call that a provider refused before it answered used nothing that could be known.
_IS_UNKNOWN: ColumnElement[bool] = and_(
    model_calls.c.input_tokens.is_(None),
    or_(
        model_calls.c.outcome.in_(("ok", "cancelled", "interrupted")),
        model_calls.c.first_output_us.is_not(None),
    ),
)

_CONSUMED: ColumnElement[bool] = or_(model_calls.c.input_tokens.is_not(None), _IS_UNKNOWN)


class _Shown(BaseModel):
    model_config = ConfigDict(frozen=True)


class Cost(_Shown):
    """An estimate by the prices that were configured at the time of each call.

    `unpriced_calls` are not in it: their price or their usage is not known.
    """

    amount: float
    currency: str
    unpriced_calls: int

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            amount=round(self.amount + other.amount, 9),
            currency=self.currency,
            unpriced_calls=self.unpriced_calls + other.unpriced_calls,
        )


class ModelUsage(_Shown):
    """The calls of one model. `usage` is the sum of what is known; `unknown_calls` are not in it."""

    provider: str | None
    model: str | None
    calls: int
    unknown_calls: int
    usage: TokenUsage | None
    cache_write_tokens: int | None
    costs: list[Cost]


class ModelCallEntry(_Shown):
    """One call of a model. Times in Unix seconds; `purpose` is `step` or `compaction`.

    `outcome` is `ok`, `cancelled`, `interrupted` (its process died) or the code of an error; `is_partial`:
    the usage was told before the answer broke off. `cost` is in units of `currency`.
    """

    id: str
    object: Literal["perdure.model_call"] = "perdure.model_call"
    session_id: str
    turn_id: str
    agent_id: str
    number: int
    purpose: str
    provider: str | None
    model: str | None
    started_at: float | None
    first_output_at: float | None
    ended_at: float
    outcome: str
    usage: TokenUsage | None
    cache_write_tokens: int | None
    is_partial: bool
    cost: float | None
    currency: str | None


@dataclass(frozen=True, slots=True)
class AgentUsed:
    """What one agent's turns have used. `parent_agent_id` and `name` are those of a subagent."""

    agent_id: str
    parent_agent_id: str | None
    name: str | None
    turns: int
    model_calls: int
    tool_calls: int
    active_us: int
    models: Sequence[ModelUsage]


@dataclass(frozen=True, slots=True)
class Used:
    """What a session has used so far, with what its ceilings are made of.

    `agents` are the root agent and, oldest first, the subagents.
    """

    models: Sequence[ModelUsage]
    agents: Sequence[AgentUsed]
    tally: Tally
    turn: TurnRow | None
    metadata: Mapping[str, str]
    limits: Mapping[str, Any] | None


def read_used(conn: Connection, session_id: str, project_id: str) -> Used:
    """A session's usage by model, most calls first, and by agent.

    Raises:
        SessionGone: missing, deleted, or of another project.
    """
    session = find_session(conn, session_id, project_id)
    turn = None
    if session.turn_id is not None:
        found = conn.execute(select(turns).where(turns.c.id == session.turn_id)).first()
        turn = None if found is None else turn_row(found)
    tally = Tally(**session.spent) if session.spent else NOTHING
    calls = _sums(conn, session_id)
    agents = _by_agent(conn, session, calls)
    return Used(_by_model(calls), agents, tally, turn, session.metadata, session.limits)


def list_model_calls(
    conn: Connection,
    session_id: str,
    project_id: str,
    page: PageRequest,
    *,
    turn_id: str | None = None,
    agent_id: str | None = None,
) -> Rows[ModelCallEntry]:
    """A session's calls in the order of their ends, or those of one turn or agent.

    Raises:
        SessionGone: missing, deleted, or of another project.
    """
    find_session(conn, session_id, project_id)
    query = select(model_calls).where(model_calls.c.session_id == session_id)
    if turn_id is not None:
        query = query.where(model_calls.c.turn_id == turn_id)
    if agent_id is not None:
        query = query.where(model_calls.c.agent_id == agent_id)
    return fetch_page(conn, query, (model_calls.c.number,), model_calls.c.id, page, _entry)


def _sums(conn: Connection, session_id: str) -> Sequence[Row[Any]]:
    """The sums of a session's calls by agent, model and currency."""
    # JSON has no equality on every database, its text has.
    name = cast(model_calls.c.model, Text)
    keys = (model_calls.c.agent_id, model_calls.c.provider, name, model_calls.c.currency)
    return conn.execute(
        select(
            model_calls.c.agent_id,
            model_calls.c.provider,
            name.label("name"),
            model_calls.c.currency,
            func.count().label("calls"),
            func.count(model_calls.c.input_tokens).label("known"),
            func.sum(case((_IS_UNKNOWN, 1), else_=0)).label("unknown"),
            *(func.sum(column).label(column.name) for column in _TOKENS),
            func.sum(model_calls.c.cost).label("cost"),
            func.sum(case((and_(model_calls.c.cost.is_(None), _CONSUMED), 1), else_=0)).label("unpriced"),
        )
        .where(model_calls.c.session_id == session_id)
        .group_by(*keys)
    ).fetchall()


def _by_agent(conn: Connection, session: Row[Any], calls: Sequence[Row[Any]]) -> list[AgentUsed]:
    found = conn.execute(
        select(
            turns.c.agent_id,
            func.count().label("turns"),
            func.sum(turns.c.model_calls).label("model_calls"),
            func.sum(turns.c.tool_calls).label("tool_calls"),
            func.sum(turns.c.active_us).label("active_us"),
        )
        .where(turns.c.session_id == session.id)
        .group_by(turns.c.agent_id)
    )
    worked = {row.agent_id: row for row in found}
    names = (subagents.c.id, subagents.c.parent_agent_id, subagents.c.name)
    created = conn.execute(
        select(*names).where(subagents.c.session_id == session.id).order_by(subagents.c.pos)
    )
    agents: list[tuple[str, str | None, str | None]] = [(session.agent_id, None, None)]
    agents += [(row.id, row.parent_agent_id, row.name) for row in created]
    used = []
    for agent_id, parent, name in agents:
        work = worked.get(agent_id)
        used.append(
            AgentUsed(
                agent_id,
                parent,
                name,
                turns=0 if work is None else work.turns,
                model_calls=0 if work is None else int(work.model_calls),
                tool_calls=0 if work is None else int(work.tool_calls),
                active_us=0 if work is None else int(work.active_us),
                models=_by_model([row for row in calls if row.agent_id == agent_id]),
            )
        )
    return used


def _by_model(calls: Sequence[Row[Any]]) -> list[ModelUsage]:
    models: dict[tuple[str | None, str | None], ModelUsage] = {}
    for row in calls:
        key = (row.provider, row.name)
        known = models.get(key)
        part = _model_usage(row)
        models[key] = part if known is None else _merged(known, part)
    return sorted(models.values(), key=lambda each: (-each.calls, each.provider or "", each.model or ""))


def _model_usage(row: Row[Any]) -> ModelUsage:
    costs = []
    if row.currency is not None:
        amount = int(row.cost or 0) / NANO
        costs.append(Cost(amount=amount, currency=row.currency, unpriced_calls=int(row.unpriced or 0)))
    usage = None
    if row.known:
        usage = _usage(row.input_tokens, row.cached_tokens, row.output_tokens, row.reasoning_tokens)
    return ModelUsage(
        provider=row.provider,
        model=None if row.name is None else loads(row.name),
        calls=row.calls,
        unknown_calls=int(row.unknown or 0),
        usage=usage,
        cache_write_tokens=None if row.cache_write_tokens is None else int(row.cache_write_tokens),
        costs=costs,
    )


def _merged(one: ModelUsage, other: ModelUsage) -> ModelUsage:
    """The calls of a model by several agents, with and without a price, or in two currencies."""
    costs: dict[str, Cost] = {}
    for cost in (*one.costs, *other.costs):
        known = costs.get(cost.currency)
        costs[cost.currency] = cost if known is None else known + cost
    return ModelUsage(
        provider=one.provider,
        model=one.model,
        calls=one.calls + other.calls,
        unknown_calls=one.unknown_calls + other.unknown_calls,
        usage=sum_usage([one.usage, other.usage]),
        cache_write_tokens=_sum([one.cache_write_tokens, other.cache_write_tokens]),
        costs=list(costs.values()),
    )


def sum_usage(parts: Sequence[TokenUsage | None]) -> TokenUsage | None:
    """The sum of what is known; None when nothing is."""
    total: TokenUsage | None = None
    for part in parts:
        if part is not None:
            total = part if total is None else total + part
    return total


def _sum(parts: Sequence[int | None]) -> int | None:
    known = [part for part in parts if part is not None]
    return sum(known) if known else None


def _usage(read: Any, cached: Any, written: Any, thought: Any) -> TokenUsage:
    return TokenUsage(
        input_tokens=int(read),
        input_tokens_details=InputTokensDetails(cached_tokens=int(cached or 0)),
        output_tokens=int(written),
        output_tokens_details=OutputTokensDetails(reasoning_tokens=int(thought or 0)),
        total_tokens=int(read) + int(written),
    )


def _entry(row: Row[Any]) -> ModelCallEntry:
    usage = None
    if row.input_tokens is not None:
        usage = _usage(row.input_tokens, row.cached_tokens, row.output_tokens, row.reasoning_tokens)
    return ModelCallEntry(
        id=row.id,
        session_id=row.session_id,
        turn_id=row.turn_id,
        agent_id=row.agent_id,
        number=row.number,
        purpose=row.purpose,
        provider=row.provider,
        model=row.model,
        started_at=_seconds(row.started_us),
        first_output_at=_seconds(row.first_output_us),
        ended_at=row.ended_us / 1e6,
        outcome=row.outcome,
        usage=usage,
        cache_write_tokens=row.cache_write_tokens,
        is_partial=row.is_partial,
        cost=None if row.cost is None else row.cost / NANO,
        currency=row.currency,
    )


def _seconds(us: int | None) -> float | None:
    return None if us is None else us / 1e6
