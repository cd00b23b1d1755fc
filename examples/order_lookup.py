"""An order desk: one schema contract for a tool, an answer, an agent as a tool, and a handoff.

    python examples/order_lookup.py

runs in this process, with a script in place of a model. Against a server, with its key in PERDURE_API_KEY:

    python examples/order_lookup.py http://127.0.0.1:8700 MODEL
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from perdure import Agent, HandoffNote, Sessions, ToolContext, ToolError, handoff, tool

NonEmpty = Annotated[str, msgspec.Meta(min_length=1)]
ORDERS = {"A-1042": "shipped"}


class LookupOrder(msgspec.Struct):
    order_id: NonEmpty
    include_history: bool = False


class Resolution(msgspec.Struct):
    order_id: str
    message: str


class Escalation(msgspec.Struct):
    reason: NonEmpty
    priority: Literal["normal", "urgent"] = "normal"


@tool(parameters=LookupOrder)
def lookup_order(order: LookupOrder) -> dict[str, Any]:
    """Look up an order by its number."""
    # Validated: the number is there, and the history is False although the model sent null.
    if order.order_id not in ORDERS:
        raise ToolError(f"There is no order {order.order_id}.")
    history = ["placed", "shipped"] if order.include_history else None
    return {"order_id": order.order_id, "status": ORDERS[order.order_id], "history": history}


def record_escalation(context: ToolContext, details: Escalation) -> HandoffNote:
    print(f"escalated, {details.priority}: {details.reason} (call {context.call_id})")
    return HandoffNote(intent="Correct the invoice.", ids={"order_id": "A-1042"})


def agents(model: str) -> tuple[Agent[Any], Agent[Any]]:
    """The support agent, and a front desk that has it as a tool."""
    billing = Agent(name="Billing", model=model, instructions="Resolve billing questions.")
    support = Agent(
        name="Order support",
        model=model,
        instructions="Resolve order questions; hand questions about invoices over.",
        tools=[lookup_order],
        handoffs=[handoff(billing, input_type=Escalation, on_handoff=record_escalation)],
        output_type=Resolution,
    )
    resolve_order = support.as_tool(
        name="resolve_order",
        description="Resolve an order question with the support specialist.",
        parameters=LookupOrder,
        input_builder=lambda order: f"Resolve {order.order_id}. Include history: {order.include_history}.",
    )
    return support, Agent(name="Front desk", model=model, tools=[resolve_order])


async def main(url: str | None = None, model: str = "order-desk") -> None:
    support, front_desk = agents(model)
    with tempfile.TemporaryDirectory() as home:
        settings = Path(__file__).with_name("order_settings.toml")
        place = {"embedded": True, "config": settings, "data_dir": home} if url is None else {"base_url": url}
        async with Sessions(**place) as sessions:  # type: ignore[arg-type]
            session = sessions.start(support)
            result = await session.run("Look up A-1042.")
            print(result.final_output)

            # Another process would need the id, and the agent.
            again = await sessions.resume(session.id, support)
            print(again.final_output == result.final_output)

            print((await sessions.start(front_desk).run("What about A-1042?")).final_output)

            handed = await session.run("The invoice for A-1042 is wrong.")
            print(f"{handed.agent.name}: {handed.final_output}")
            print(handed.handoffs[0].as_json())


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:3]))
