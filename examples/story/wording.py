"""Items and events in one line each, as the demo prints them."""

from __future__ import annotations

import json
from collections.abc import Sequence

from openai.types.beta.agent_content import AgentContent
from openai.types.beta.agent_output_item import AgentOutputItem
from openai.types.beta.agent_session_assistant_message import AgentSessionAssistantMessage
from openai.types.beta.agent_session_event import AgentSessionEvent
from openai.types.beta.agent_session_item import AgentSessionItem
from openai.types.beta.agent_session_message import AgentSessionMessage

Item = AgentSessionItem | AgentOutputItem


def text_of(message: AgentSessionMessage | AgentSessionAssistantMessage) -> str:
    """The text of a message, without its images."""
    return "".join(part.text for part in message.content if part.type != "input_image")


def describe_item(item: Item) -> str:
    """An item in one line."""
    match item.type:
        case "message":
            torn = " (incomplete)" if item.status == "incomplete" else ""
            return f"{item.role}{torn}: {text_of(item)}".rstrip()
        case "function_call":
            return f"function_call ({item.status}) {item.name} {json.dumps(item.arguments)}"
        case "function_call_output":
            return f"function_call_output ({item.status}) {item.error or item.output}"
        case "create_subagent_call":
            return f"create_subagent_call ({item.status}) {_said(item.content)}"
        case "agent_message":
            return f"agent_message from {item.sender_agent_id}: {_said(item.content)}"
        case _:
            return item.type


def _said(content: Sequence[AgentContent]) -> str:
    return "".join(part.text for part in content if part.type == "output_text")


def describe_event(event: AgentSessionEvent) -> str | None:
    """An event in one line, or None for those that only frame a text."""
    name = event.type.removeprefix("agent.session.")
    match event.type:
        case "agent.session.created" | "agent.session.in_progress" | "agent.session.idle":
            return f"{name} {event.session.id}"
        case "agent.session.requires_action":
            owed = [action for action in event.session.required_actions if action.type == "function_call"]
            return name + "".join(f"\n      {call.turn_id} {call.call_id}" for call in owed)
        case "agent.session.turn.item.added" | "agent.session.turn.item.done":
            if event.item.type == "message" and event.item.role == "assistant":
                return f"{name} assistant {event.item.id}"  # its text comes in deltas
            return f"{name} {describe_item(event.item)}"
        case "agent.session.turn.created" | "agent.session.turn.in_progress" | "agent.session.turn.completed":
            return f"{name} {event.turn_id}"
        case "agent.session.turn.failed" | "agent.session.turn.cancelled" | "agent.session.failed" | "error":
            return f"{name} {event.to_json(indent=None)}"
        case "agent.session.subagent.created":
            return f"{name} {event.subagent.id} '{event.subagent.name}'"
        case _:
            return None
