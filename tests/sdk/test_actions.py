"""Approvals and other actions as typed objects, and the input events that answer them."""

from __future__ import annotations

from typing import Any

import pytest
from openai.types.beta.agent_session import RequiredAction
from pydantic import TypeAdapter

from perdure import (
    Action,
    Approve,
    BrowserOrigin,
    BrowserSignIn,
    Deny,
    Dismiss,
    EnvironmentConnection,
    FunctionCall,
    McpApproval,
    OtherAction,
    SignIn,
)
from perdure.sdk.actions import Decision, answer_event, typed_action

MCP = {
    "type": "mcp_approval_request",
    "turn_id": "turn_1",
    "request_id": "req_1",
    "request": {
        "type": "mcp_tool_call",
        "server_label": "shop",
        "name": "refund",
        "arguments": {"order_id": "A-1042"},
        "message": "Refund?",
    },
}
ORIGIN = {
    "type": "computer_use_approval_request",
    "turn_id": "turn_1",
    "request_id": "req_2",
    "request": {"type": "browser_origin_access", "origin": "https://shop.example", "reason": None},
}
SIGN_IN = {
    "type": "computer_use_approval_request",
    "turn_id": "turn_1",
    "request_id": "req_3",
    "request": {
        "type": "browser_authentication",
        "credential_origin": "https://shop.example",
        "fields": [{"id": "f1", "label": "Password", "required": True, "type": "password"}],
        "options": [{"id": "o1", "label": "With a password", "field_ids": ["f1"]}],
        "reason": "To see the order.",
    },
}


def read(data: dict[str, Any]) -> Action:
    return typed_action(TypeAdapter(RequiredAction).validate_python(data))


def test_a_function_call() -> None:
    data = {"type": "function_call", "turn_id": "t", "call_id": "c", "name": "f", "arguments": {"a": 1}}
    assert read(data) == FunctionCall("t", "c", "f", {"a": 1})


def test_an_approval_of_a_tool() -> None:
    action = read(MCP)
    assert action == McpApproval("turn_1", "req_1", "shop", "refund", {"order_id": "A-1042"}, "Refund?")
    assert "shop.refund" in action.summary


def test_a_sign_in() -> None:
    action = read(SIGN_IN)
    assert isinstance(action, BrowserSignIn)
    assert [(each.id, each.type) for each in action.fields] == [("f1", "password")]
    assert action.options[0].field_ids == ("f1",)


def test_an_origin_and_a_connection() -> None:
    assert isinstance(read(ORIGIN), BrowserOrigin)
    connection = {"type": "environment_connection", "environment_id": "env_1"}
    assert read(connection) == EnvironmentConnection("env_1")


def test_an_action_of_the_future_is_kept_whole() -> None:
    from openai._models import construct_type

    data = {"type": "retina_scan", "turn_id": "t"}
    action: Any = construct_type(type_=RequiredAction, value=data)
    told = typed_action(action)
    assert isinstance(told, OtherAction)
    assert (told.type, told.data["turn_id"]) == ("retina_scan", "t")


@pytest.mark.parametrize(
    ("data", "decision", "response"),
    [
        (MCP, Approve(), {"type": "mcp_tool_call", "decision": "approve"}),
        (MCP, Deny(), {"type": "mcp_tool_call", "decision": "deny"}),
        (MCP, Dismiss(), {"type": "mcp_tool_call", "decision": "cancel"}),
        (ORIGIN, Approve(), {"type": "browser_origin_access", "decision": "approve"}),
        (SIGN_IN, Dismiss(), {"type": "browser_authentication", "action": "cancel"}),
        (
            SIGN_IN,
            SignIn({"f1": "SECRET-VALUE"}, option="o1"),
            {
                "type": "browser_authentication",
                "action": "submit",
                "fields": [{"field_id": "f1", "value": "SECRET-VALUE"}],
                "selected_option": "o1",
            },
        ),
    ],
)
def test_a_decision_becomes_an_input_event(
    data: dict[str, Any], decision: Decision, response: dict[str, Any]
) -> None:
    event = answer_event(read(data), decision)
    assert event["request_id"] == data["request_id"]
    assert event["response"] == response
    assert event["type"] == f"agent.session.input.{data['type']}_result"


def test_what_was_typed_into_a_form_is_not_shown() -> None:
    assert "SECRET-VALUE" not in repr(SignIn({"f1": "SECRET-VALUE"}))


@pytest.mark.parametrize(
    ("data", "decision"), [(MCP, SignIn({})), (SIGN_IN, Approve()), (SIGN_IN, Deny()), (ORIGIN, SignIn({}))]
)
def test_a_decision_that_does_not_fit_is_refused(data: dict[str, Any], decision: Decision) -> None:
    with pytest.raises(TypeError, match="does not answer"):
        answer_event(read(data), decision)
