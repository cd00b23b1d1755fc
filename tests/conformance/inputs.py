"""Requests as the tests send them: input events, function tools, agent configurations."""

from __future__ import annotations

from typing import Any

NONE: Any = {"type": "none"}

WEATHER: Any = {
    "type": "function",
    "name": "weather",
    "description": "The weather in a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "minLength": 1}},
        "required": ["city"],
        "additionalProperties": False,
    },
}

CLOCK: Any = {
    "type": "function",
    "name": "clock",
    "description": "The time in a zone.",
    "parameters": {
        "type": "object",
        "properties": {"zone": {"type": "string"}},
        "required": ["zone"],
        "additionalProperties": False,
    },
}


def user_message(*texts: str) -> Any:
    """One user message with one text part for each text."""
    return {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_text", "text": text} for text in texts],
    }


def message(*texts: str) -> Any:
    """An input event with one user message for each text."""
    return {"type": "agent.session.input.message", "input": [user_message(text) for text in texts]}


def cancel() -> Any:
    return {"type": "agent.session.input.cancel"}


def tool_result(call: Any, output: Any = "7 °C", **changes: Any) -> Any:
    """A successful result of a call that has `turn_id` and `call_id` (an action or an item)."""
    event = {
        "type": "agent.session.input.tool_result",
        "turn_id": call.turn_id,
        "call_id": call.call_id,
        "success": True,
        "output": output,
    }
    return {**event, **changes}


def tool_failure(call: Any, error: str = "Tool handler failed.") -> Any:
    return {
        "type": "agent.session.input.tool_result",
        "turn_id": call.turn_id,
        "call_id": call.call_id,
        "success": False,
        "error": error,
    }
