"""Bodies as guides and users write them by hand, without the client's help, work as they stand."""

from __future__ import annotations

import json

import httpx2
import pytest
from tests.server import ServerProcess, scripted_config

ORDER_DESK = r"""
[[rule]]
when = { after_result_of = "lookup_order" }
answer = [{ text = "A-1042 is {result.status|unknown}." }]

[[rule]]
when = { user_matches = '(?P<order_id>[A-Z]-\d{4})', has_tool = "lookup_order" }
answer = [{ call = "lookup_order", arguments = { order_id = "{order_id}" } }]

[otherwise]
answer = [{ text = "Noted." }]
"""

ORDER_TOOL = {
    "type": "function",
    "name": "lookup_order",
    "parameters": {
        "type": "object",
        "properties": {"order_id": {"type": "string", "pattern": r"^[A-Z]-\d{4}$"}},
        "required": ["order_id"],
        "additionalProperties": False,
    },
}


def by_hand(text: str, instructions: str) -> dict[str, object]:
    """A creation as written into a curl command: no description of the tool, no type of the message."""
    return {
        "agent": {
            "model": "gpt-order-desk",
            "instructions": instructions,
            "tools": [ORDER_TOOL],
            "multi_agent": {"enabled": True, "max_concurrent_subagents": 3},
        },
        "environment": {"type": "none"},
        "input": [{"role": "user", "content": [{"type": "input_text", "text": text}]}],
    }


@pytest.fixture
def http(tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    home = tmp_path_factory.mktemp("desk")
    config = scripted_config(home, {"gpt-order-desk": ORDER_DESK})
    with ServerProcess(config, home / "data") as server:
        headers = {"Authorization": f"Bearer {server.api_key}", "OpenAI-Beta": "agents=v1"}
        with httpx2.Client(base_url=server.url, headers=headers, timeout=30) as client:
            yield client


@pytest.mark.parametrize(
    ("text", "instructions"),
    [
        ("Look up A-1042.", "Look up orders. Confirm before any refund."),
        (
            "Look up A-1042 and keep the case open.",
            "Look up orders. Confirm before any refund. Delegate independent lookups to subagents.",
        ),
    ],
)
def test_a_session_written_by_hand_runs_to_its_answer(
    http: httpx2.Client, text: str, instructions: str
) -> None:
    body = by_hand(text, instructions)
    session = http.post("/v1/agents/sessions", json=body).raise_for_status().json()
    assert session["agent"]["multi_agent"] == {"enabled": True, "max_concurrent_subagents": 3}
    assert session["agent"]["tools"][0]["description"] == ""
    path = f"/v1/agents/sessions/{session['id']}"
    with http.stream("GET", f"{path}/events?stream=true") as events:
        for line in events.iter_lines():
            if line.startswith("event: agent.session.requires_action"):
                break
    (action,) = http.get(path).json()["required_actions"]
    assert action["arguments"] == {"order_id": "A-1042"}
    result = {
        "type": "agent.session.input.tool_result",
        "turn_id": action["turn_id"],
        "call_id": action["call_id"],
        "success": True,
        "output": json.dumps({"order_id": "A-1042", "status": "packed"}),
    }
    assert http.post(f"{path}/events", json={"events": [result]}).status_code == 202
    message = {
        "events": [
            {
                "type": "agent.session.input.message",
                "input": [
                    {
                        "role": "user",
                        "content": [{"type": "input_text", "text": "The warehouse packed it. Continue."}],
                    }
                ],
            }
        ]
    }
    with http.stream("GET", f"{path}/events") as events:
        for line in events.iter_lines():
            if line.startswith("event: agent.session.idle"):
                break
    assert http.post(f"{path}/events", json=message).status_code == 202
    with http.stream("GET", f"{path}/events") as events:
        for line in events.iter_lines():
            if line.startswith("event: agent.session.idle"):
                break
    items = http.get(f"{path}/items?order=asc").json()["data"]
    said = [item["content"][0]["text"] for item in items if item.get("role") == "assistant"]
    assert said == ["A-1042 is packed.", "Noted."]


def test_multi_agent_is_said_to_be_active(http: httpx2.Client) -> None:
    features = http.get("/perdure/v1/capabilities").json()["features"]
    assert features["multi_agent"]["active"] is True
    assert features["multi_agent"]["note"]
