"""The application's side: a tool with a schema, and the answer to a call the agent made."""

from __future__ import annotations

from openai import OpenAI
from openai.lib.beta.agents import pydantic_function_tool
from openai.types.beta.agent_session import RequiredActionFunctionCall
from pydantic import BaseModel, Field

STATUS = {"A-1042": "shipped", "B-2077": "waiting for payment", "C-3001": "delivered"}


class LookupOrder(BaseModel):
    """Look up the status of an order."""

    order_id: str = Field(pattern=r"^[A-Z]-\d{4}$", description="Order number such as A-1042.")


def find_order(arguments: LookupOrder) -> dict[str, str]:
    """What a real application would ask its database."""
    return {"order_id": arguments.order_id, "status": STATUS.get(arguments.order_id, "unknown")}


# `definition` goes to the server, which checks every call against it; calling the object runs `find_order`.
lookup_order = pydantic_function_tool(LookupOrder, handler=find_order, name="lookup_order")


def answer_call(client: OpenAI, session_id: str, action: RequiredActionFunctionCall) -> str:
    """Run the tool for one required action and hand its result in; returns the result."""
    output = lookup_order(action.arguments)
    assert isinstance(output, str)
    client.beta.agents.sessions.events.create(
        session_id,
        events=[
            {
                "type": "agent.session.input.tool_result",
                "turn_id": action.turn_id,
                "call_id": action.call_id,
                "success": True,
                "output": output,
            }
        ],
        # The same key for the same call: sending the result again after a lost response changes nothing.
        idempotency_key=f"{action.turn_id}:{action.call_id}",
    )
    return output
