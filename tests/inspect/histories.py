"""Sessions written by hand: small JSON objects as a server shows them, right until a test changes one."""

from __future__ import annotations

import json
from typing import Any

from perdure.inspect import Export, Thread

Json = dict[str, Any]

LOOKUP: Json = {
    "type": "function",
    "name": "lookup_order",
    "description": "Looks up an order.",
    "parameters": {
        "type": "object",
        "properties": {"order_id": {"type": "string", "pattern": "^[A-Z]-\\d{4}$"}},
        "required": ["order_id"],
        "additionalProperties": False,
    },
    "defer_loading": False,
    "async": False,
}


def session(**changes: Any) -> Json:
    return {
        "id": "sess_8f21",
        "object": "agent.session",
        "created_at": 1_760_000_000,
        "last_active_at": 1_760_000_009,
        "status": "idle",
        "error": None,
        "metadata": {},
        "vault_ids": [],
        "agent": {
            "id": "agt_main",
            "name": None,
            "model": "some-model",
            "instructions": None,
            "tools": [LOOKUP],
        },
        "environment": {"type": "none"},
        "required_actions": [],
        "usage": None,
        **changes,
    }


def turn(number: int = 1, **changes: Any) -> Json:
    return {
        "id": f"turn_{number}",
        "object": "agent.session.turn",
        "session_id": "sess_8f21",
        "agent_id": "agt_main",
        "subagent_id": None,
        "status": "completed",
        "created_at": 1_760_000_000 + number,
        "started_at": 1_760_000_000 + number,
        "completed_at": 1_760_000_005 + number,
        "error": None,
        "usage": None,
        **changes,
    }


def user(text: str = "Look up A-1042.", **changes: Any) -> Json:
    content = [{"type": "input_text", "text": text}]
    item = {"id": "msg_1", "turn_id": "turn_1", "type": "message", "role": "user", "status": "completed"}
    return {**item, "phase": None, "content": content, **changes}


def answer(text: str = "It is paid.", **changes: Any) -> Json:
    content = [{"type": "output_text", "text": text}]
    item = {"id": "msg_2", "turn_id": "turn_1", "type": "message", "role": "assistant", "status": "completed"}
    return {**item, "phase": "final_answer", "content": content, **changes}


def call(order_id: str = "A-1042", **changes: Any) -> Json:
    return {
        "id": "fc_1",
        "turn_id": "turn_1",
        "type": "function_call",
        "call_id": "call_3c91",
        "name": "lookup_order",
        "arguments": {"order_id": order_id},
        "status": "completed",
        **changes,
    }


def result(order_id: str = "A-1042", **changes: Any) -> Json:
    return {
        "id": "fco_1",
        "turn_id": "turn_1",
        "type": "function_call_output",
        "call_id": "call_3c91",
        "status": "completed",
        "output": json.dumps({"order_id": order_id, "status": "paid"}),
        "error": None,
        **changes,
    }


def action(**changes: Any) -> Json:
    """A function call that is owed."""
    return {
        "type": "function_call",
        "turn_id": "turn_1",
        "call_id": "call_3c91",
        "name": "lookup_order",
        "arguments": {"order_id": "A-1042"},
        **changes,
    }


def sent(**changes: Any) -> Json:
    """A result as an application sends it."""
    return {
        "type": "agent.session.input.tool_result",
        "turn_id": "turn_1",
        "call_id": "call_3c91",
        "success": True,
        "output": '{"order_id":"A-1042","status":"paid"}',
        **changes,
    }


def subagent(**changes: Any) -> Json:
    return {
        "id": "sub_7a12",
        "object": "agent.session.subagent",
        "session_id": "sess_8f21",
        "parent_agent_id": "agt_main",
        "name": "scout",
        "instructions": [{"type": "output_text", "text": "Compare the invoice."}],
        "status": "active",
        "opened_at": 1_760_000_002,
        "closed_at": None,
        **changes,
    }


def creation(**changes: Any) -> Json:
    return {
        "id": "cs_1",
        "turn_id": "turn_1",
        "type": "create_subagent_call",
        "agent_id": "agt_main",
        "content": [{"type": "output_text", "text": "Compare the invoice."}],
        "model": None,
        "reasoning_effort": None,
        "status": "completed",
        **changes,
    }


def export(*items: Json, **members: Any) -> Export:
    """An export of one turn with these items, or with the default ones: a call that was answered."""
    members.setdefault("session", session())
    members.setdefault("turns", (turn(),))
    return Export(items=items or (user(), call(), result(), answer()), **members)


def with_subagent(*items: Json, of_subagent: tuple[Json, ...] = (), **changes: Any) -> Export:
    """An export whose main agent created a subagent, which has a turn with `of_subagent`."""
    own_turn = turn(9, agent_id="sub_7a12", subagent_id="sub_7a12")
    part = Thread((own_turn,), of_subagent, subagent(**changes))
    return export(*(items or (user("Hello."), creation(), answer())), subagents=(part,))
