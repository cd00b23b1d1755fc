"""One session, one tool, one answer, on a running server.

perdure serve
PERDURE_API_KEY=$(cat ~/.local/share/perdure/api-key) python examples/order_lookup.py A-1042
"""

from __future__ import annotations

import os
import sys

from openai import OpenAI
from openai.lib.beta.agents import pydantic_function_tool
from pydantic import BaseModel, Field


class LookupOrder(BaseModel):
    """Look up the status of an order."""

    order_id: str = Field(pattern=r"^[A-Z]-\d{4}$")


def find_order(arguments: LookupOrder) -> dict[str, str]:
    return {"order_id": arguments.order_id, "status": "shipped"}


lookup_order = pydantic_function_tool(LookupOrder, handler=find_order, name="lookup_order")
client = OpenAI(
    base_url=os.environ.get("PERDURE_URL", "http://127.0.0.1:8700") + "/v1",
    api_key=os.environ["PERDURE_API_KEY"],
)
stream = client.beta.agents.sessions.create(
    agent={"model": os.environ.get("PERDURE_MODEL", "scripted"), "tools": [lookup_order.definition]},
    environment={"type": "none"},
    input=f"Where is my order {sys.argv[1] if len(sys.argv) > 1 else 'A-1042'}?",
    stream=True,
    tool_handlers={lookup_order.name: lookup_order},
)
print(stream.get_final_result().output_text)
