"""The application's side: a tool whose arguments have a schema."""

from __future__ import annotations

from openai.lib.beta.agents import pydantic_function_tool
from pydantic import BaseModel, Field

STATUS = {"A-1042": "shipped", "B-2077": "waiting for payment", "C-3001": "delivered"}


class LookupOrder(BaseModel):
    """Look up the status of an order."""

    order_id: str = Field(pattern=r"^[A-Z]-\d{4}$", description="Order number such as A-1042.")


def find_order(arguments: LookupOrder) -> dict[str, str]:
    """What a real application would ask its database."""
    return {"order_id": arguments.order_id, "status": STATUS.get(arguments.order_id, "unknown")}


# Its `definition` goes into the agent: the server holds every call against it. The object is the handler.
lookup_order = pydantic_function_tool(LookupOrder, handler=find_order, name="lookup_order")
