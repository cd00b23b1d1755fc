"""The order desk in two schema libraries: the agents of one application, and what they recorded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypedDict

import marshmallow as mm
import msgspec

from perdure import Agent, AgentTool, Handoff, ToolContext, from_marshmallow, handoff, tool

NonEmpty = Annotated[str, msgspec.Meta(min_length=1)]


@dataclass
class Desk:
    """One application: a support agent, that agent as a tool, and a handoff to billing."""

    support: Agent[Any]
    support_tool: AgentTool[Any]
    to_billing: Handoff[Any]
    billing: Agent[Any]
    looked_up: list[Any] = field(default_factory=list)
    escalations: list[tuple[str, str]] = field(default_factory=list)
    contexts: list[ToolContext[Any]] = field(default_factory=list)


class LookupOrder(msgspec.Struct):
    order_id: NonEmpty
    include_history: bool = False


class Resolution(msgspec.Struct):
    order_id: str
    message: str


class Escalation(msgspec.Struct):
    reason: NonEmpty
    priority: Literal["normal", "urgent"] = "normal"


class LookupOrderFields(mm.Schema):
    order_id = mm.fields.Str(required=True, validate=mm.validate.Length(min=1))
    include_history = mm.fields.Bool(load_default=False)


class ResolutionFields(mm.Schema):
    order_id = mm.fields.Str(required=True)
    message = mm.fields.Str(required=True)


class EscalationFields(mm.Schema):
    reason = mm.fields.Str(required=True, validate=mm.validate.Length(min=1))
    priority = mm.fields.Str(load_default="normal", validate=mm.validate.OneOf(["normal", "urgent"]))


class LookupOrderDict(TypedDict):
    order_id: str
    include_history: bool


class EscalationDict(TypedDict):
    reason: str
    priority: str


class ResolutionDict(TypedDict):
    order_id: str
    message: str


def msgspec_desk() -> Desk:
    @tool(parameters=LookupOrder)
    async def lookup_order(order: LookupOrder) -> dict[str, Any]:
        """Look up an order by ID."""
        desk.looked_up.append(order)
        history = ["placed", "shipped"] if order.include_history else None
        return {"order_id": order.order_id, "status": "shipped", "history": history}

    def record(context: ToolContext, details: Escalation) -> None:
        desk.contexts.append(context)
        desk.escalations.append((details.reason, details.priority))

    support = Agent(
        name="Order support",
        model="order-desk",
        instructions="Resolve order questions and return a structured summary.",
        tools=[lookup_order],
        output_type=Resolution,
    )
    billing = Agent(name="Billing specialist", model="order-desk", instructions="Resolve billing questions.")
    desk = Desk(
        support,
        support.as_tool(
            name="resolve_order",
            description="Resolve an order question with the support specialist.",
            parameters=LookupOrder,
            input_builder=lambda order: (
                f"Resolve {order.order_id}. Include history: {order.include_history}."
            ),
        ),
        handoff(billing, input_type=Escalation, on_handoff=record),
        billing,
    )
    return desk


def marshmallow_desk() -> Desk:
    parameters = from_marshmallow(LookupOrderFields, LookupOrderDict)

    @tool(parameters=parameters)
    def lookup_order(order: LookupOrderDict) -> dict[str, Any]:
        """Look up an order by ID."""
        desk.looked_up.append(order)
        history = ["placed", "shipped"] if order["include_history"] else None
        return {"order_id": order["order_id"], "status": "shipped", "history": history}

    async def record(context: ToolContext, details: EscalationDict) -> None:
        desk.contexts.append(context)
        desk.escalations.append((details["reason"], details["priority"]))

    support = Agent(
        name="Order support",
        model="order-desk",
        instructions="Resolve order questions and return a structured summary.",
        tools=[lookup_order],
        output_type=from_marshmallow(ResolutionFields, ResolutionDict),
    )
    billing = Agent(name="Billing specialist", model="order-desk", instructions="Resolve billing questions.")
    desk = Desk(
        support,
        support.as_tool(
            name="resolve_order",
            description="Resolve an order question with the support specialist.",
            parameters=parameters,
            input_builder=lambda order: (
                f"Resolve {order['order_id']}. Include history: {order['include_history']}."
            ),
        ),
        handoff(billing, input_type=from_marshmallow(EscalationFields, EscalationDict), on_handoff=record),
        billing,
    )
    return desk


DESKS = {"msgspec": msgspec_desk, "marshmallow": marshmallow_desk}
