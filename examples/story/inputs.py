"""What an application sends to a session: messages, and results of the calls it owes."""

from __future__ import annotations

import json

from openai import OpenAI
from openai.types.beta.agent_session import (
    RequiredActionSessionRequiredActionResourceFunctionCall as FunctionCall,
)

from story.orders import LookupOrder, find_order


def send_message(client: OpenAI, session_id: str, text: str) -> None:
    """Add a user message: it starts a turn, or steers the one that runs."""
    client.beta.agents.sessions.events.create(
        session_id,
        events=[
            {
                "type": "agent.session.input.message",
                "input": [{"role": "user", "content": [{"type": "input_text", "text": text}]}],
            }
        ],
    )


def answer_call(client: OpenAI, session_id: str, call: FunctionCall) -> str:
    """Look up the order a call asks for and submit the result; returns the result."""
    output = json.dumps(find_order(LookupOrder.model_validate(call.arguments)))
    client.beta.agents.sessions.events.create(
        session_id,
        events=[
            {
                "type": "agent.session.input.tool_result",
                "turn_id": call.turn_id,
                "call_id": call.call_id,
                "success": True,
                "output": output,
            }
        ],
        # One key for one call: submitting again after a lost response changes nothing.
        idempotency_key=f"{call.turn_id}:{call.call_id}",
    )
    return output
