"""A call with arguments that break the tool's schema never reaches the application."""

from __future__ import annotations

from openai import OpenAI
from openai.lib.beta.agents import pydantic_function_tool

from story.orders import LookupOrder, find_order
from story.stage import Stage


def refuse_a_bad_argument(client: OpenAI, stage: Stage, session_id: str) -> None:
    """Let the model get an order number wrong, and show who notices."""
    seen: list[LookupOrder] = []

    def watched(arguments: LookupOrder) -> dict[str, str]:
        seen.append(arguments)
        return find_order(arguments)

    tool = pydantic_function_tool(LookupOrder, handler=watched, name="lookup_order")

    with client.beta.agents.sessions.stream(
        session_id, input="Show me a bad argument.", tool_handlers={tool.name: tool}
    ) as stream:
        result = stream.get_final_result()

    items = list(
        client.beta.agents.sessions.turns.items.list(result.turn_id, session_id=session_id, order="asc")
    )
    stage.tell("What the turn has saved:")
    stage.items(items)
    calls = [item for item in items if item.type == "function_call"]
    results = {item.call_id: item for item in items if item.type == "function_call_output"}
    stage.check("The model called its tool twice.", len(calls) == 2)
    refused, repaired = calls
    reason = results[refused.call_id].error or ""
    stage.check(
        "The server refused order_id A1042 and said why.",
        refused.arguments == {"order_id": "A1042"} and refused.status == "failed" and "order_id" in reason,
    )
    stage.check(
        "The model read the reason and repaired its call.",
        repaired.arguments == {"order_id": "A-1042"} and repaired.status == "completed",
    )
    stage.check(
        "The application ran its tool once, for the good call.",
        [arguments.order_id for arguments in seen] == ["A-1042"],
    )
