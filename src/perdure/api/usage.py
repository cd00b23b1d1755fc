"""`/perdure/v1/sessions/{session_id}/usage`: what a session's model calls used and cost. An extension."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from fastapi import Query, Response
from pydantic import BaseModel, ConfigDict

from perdure.api.access import UseCaller, UsePage, UseServices, json_response, page_response
from perdure.api.routing import router
from perdure.config.prices import NANO
from perdure.harness.limits import ceilings_of
from perdure.store.spending import Tally
from perdure.store.usage import (
    AgentUsed,
    Cost,
    ModelCallEntry,
    ModelUsage,
    Used,
    list_model_calls,
    read_used,
    sum_usage,
)
from perdure.wire.limits import Source
from perdure.wire.pages import Page
from perdure.wire.usage import TokenUsage

routes = router("/perdure/v1/sessions/{session_id}/usage", "extensions")


class Limit(BaseModel):
    """A ceiling that applies to the session; of one turn, `used` is that of the unfinished one."""

    model_config = ConfigDict(frozen=True)

    name: str
    value: int | float | None
    source: Source
    used: int | float | None


class AgentUsage(BaseModel):
    """What one agent's turns have used. `parent_agent_id` and `name` are null of the root agent."""

    model_config = ConfigDict(frozen=True)

    agent_id: str
    parent_agent_id: str | None
    name: str | None
    turns: int
    model_calls: int
    tool_calls: int
    active_seconds: float
    unknown_calls: int
    usage: TokenUsage | None
    costs: list[Cost]


class SessionUsage(BaseModel):
    """What a session has used. `usage` is the sum of what is known; `unknown_calls` are not in it."""

    model_config = ConfigDict(frozen=True)

    object: Literal["perdure.session_usage"] = "perdure.session_usage"
    session_id: str
    model_calls: int
    tool_calls: int
    active_seconds: float
    unknown_calls: int
    usage: TokenUsage | None
    costs: list[Cost]
    models: list[ModelUsage]
    agents: list[AgentUsage]
    limits: list[Limit]


@routes.get("", response_model=SessionUsage)
async def usage(services: UseServices, caller: UseCaller, session_id: str) -> Response:
    """A session's calls and tokens by model and by agent, with an estimate of their cost, and ceilings."""
    used = await services.store.read(read_used, session_id, caller.project_id)
    ceilings = ceilings_of(services.settings.limits, used.metadata, used.limits)
    limits = []
    for name in sorted(ceilings.of_session):
        ceiling = ceilings[name]
        limits.append(Limit(name=name, value=ceiling.value, source=ceiling.source, used=_used(name, used)))
    return json_response(
        SessionUsage(
            session_id=session_id,
            model_calls=used.tally.model_calls,
            tool_calls=used.tally.tool_calls,
            active_seconds=round(used.tally.active_us / 1e6, 3),
            unknown_calls=sum(model.unknown_calls for model in used.models),
            usage=sum_usage([model.usage for model in used.models]),
            costs=_costs(used.models),
            models=list(used.models),
            agents=[_agent(each) for each in used.agents],
            limits=limits,
        )
    )


@routes.get("/calls", response_model=Page[ModelCallEntry])
async def calls(
    services: UseServices,
    caller: UseCaller,
    page: UsePage,
    session_id: str,
    turn_id: Annotated[str | None, Query(description="Only the calls of this turn.")] = None,
    agent_id: Annotated[
        str | None, Query(description="Only the calls of this agent: the root's, or a subagent's id.")
    ] = None,
) -> Response:
    """Every model call of a session: when, how it ended, what it used and cost."""
    rows = await services.store.read(
        list_model_calls, session_id, caller.project_id, page, turn_id=turn_id, agent_id=agent_id
    )
    return page_response(rows)


def _agent(used: AgentUsed) -> AgentUsage:
    return AgentUsage(
        agent_id=used.agent_id,
        parent_agent_id=used.parent_agent_id,
        name=used.name,
        turns=used.turns,
        model_calls=used.model_calls,
        tool_calls=used.tool_calls,
        active_seconds=round(used.active_us / 1e6, 3),
        unknown_calls=sum(model.unknown_calls for model in used.models),
        usage=sum_usage([model.usage for model in used.models]),
        costs=_costs(used.models),
    )


def _costs(models: Sequence[ModelUsage]) -> list[Cost]:
    """The costs of all models by currency; calls of models without a price are counted in each."""
    amounts: dict[str, float] = {}
    unpriced = 0
    for model in models:
        unpriced += sum(cost.unpriced_calls for cost in model.costs)
        if not model.costs and (model.usage is not None or model.unknown_calls):
            unpriced += model.calls
        for cost in model.costs:
            amounts[cost.currency] = amounts.get(cost.currency, 0.0) + cost.amount
    return [
        Cost(amount=round(amount, 9), currency=currency, unpriced_calls=unpriced)
        for currency, amount in sorted(amounts.items())
    ]


def _used(name: str, used: Used) -> int | float | None:
    kind, _, scope = name.rpartition("_per_")
    if not kind:
        return None
    turn, tally = used.turn, used.tally
    if scope == "turn":
        if turn is None:
            return None
        spent = Tally.of(turn.spent or {})
        counted = {
            "model_calls": turn.model_calls,
            "tool_calls": turn.tool_calls,
            "active_seconds": round(turn.active_us / 1e6, 3),
        }
    else:
        spent = tally
        counted = {
            "model_calls": tally.model_calls,
            "tool_calls": tally.tool_calls,
            "active_seconds": round(tally.active_us / 1e6, 3),
        }
    counted |= {
        "uncached_input_tokens": spent.uncached_input_tokens,
        "total_tokens": spent.total_tokens,
        "spend": round(spent.cost / NANO, 9),
    }
    return counted[kind]
