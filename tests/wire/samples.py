"""One value of every resource, event and item kind, with our type and the official client's type for it."""

from __future__ import annotations

from typing import Any

from openai.types import beta, webhooks
from openai.types.beta import agents as sdk
from openai.types.beta.agent_output_item import AgentOutputItem
from openai.types.beta.agents import environments, sessions, vaults
from openai.types.beta.agents.automations import AutomationInvocation

from perdure.wire import actions as our_actions
from perdure.wire import (
    agents,
    artifacts,
    automations,
    environment_resources,
    events,
    items,
    pages,
    subagents,
    turns,
    usage,
)
from perdure.wire import sessions as our_sessions
from perdure.wire import vaults as our_vaults
from perdure.wire import webhooks as our_webhooks

USAGE: dict[str, Any] = {
    "input_tokens": 41,
    "input_tokens_details": {"cached_tokens": 32},
    "output_tokens": 9,
    "output_tokens_details": {"reasoning_tokens": 4},
    "total_tokens": 50,
}
FUNCTION: dict[str, Any] = {
    "type": "function",
    "name": "cancel_order",
    "description": "Cancels an order that was not shipped yet.",
    "parameters": {"type": "object", "properties": {"order": {"type": "string"}}, "required": ["order"]},
    "defer_loading": False,
    "async": True,
}
STDIO = {"type": "stdio", "command": "orders-mcp", "args": ["-v"], "cwd": "/srv", "env_vars": ["ORDERS"]}
PLAIN_TOOLS: list[dict[str, Any]] = [
    FUNCTION,
    {"type": "programmatic_tool_calling", "enabled": False},
    {
        "type": "web_search",
        "mode": "cached",
        "context_size": "high",
        "allowed_domains": ["example.org"],
        "location": {"city": "Bergen", "country": "NO", "region": None, "timezone": "Europe/Oslo"},
    },
    {"type": "computer_use", "include_screenshots": True},
    {"type": "automations"},
]


def mcp(transport: dict[str, Any], label: str = "orders", origin: str = "service") -> dict[str, Any]:
    return {
        "type": "mcp",
        "server_label": label,
        "transport": transport,
        "allowed_tools": ["find"],
        "connection_origin": origin,
        "credential_id": None,
        "request_metadata": {"shop": 7},
        "required": True,
    }


OPTIONS: dict[str, Any] = {
    "model": "vendor/large",
    "instructions": "Answer in one line.",
    "multi_agent": {"enabled": True, "max_concurrent_subagents": 3},
    "reasoning": {"effort": "high", "summary": None},
    "service_tier": "priority",
    "text": {"format": {"type": "text"}, "verbosity": "low"},
    "compaction": {"async": True},
    "experimental": {"time_awareness": False},
}
SESSION_AGENT: dict[str, Any] = {
    **OPTIONS,
    "id": "agt_a",
    "name": "clerk",
    "tools": [
        *PLAIN_TOOLS,
        mcp({"type": "http", "server_url": "https://orders.example.org/mcp"}),
        mcp(STDIO, "local", "environment"),
    ],
}
AGENT: dict[str, Any] = {
    **OPTIONS,
    "id": "agt_b",
    "object": "agent",
    "created_at": 1_700_000_000,
    "updated_at": 1_700_000_060,
    "name": None,
    "metadata": {"team": "shop"},
    "text": {
        "format": {"type": "json_schema", "schema": {"type": "object", "properties": {}}},
        "verbosity": "high",
    },
    "tools": [
        *PLAIN_TOOLS,
        {"type": "tool_search"},
        mcp({"type": "http", "server_url": "https://orders.example.org/mcp", "headers": {"X-Shop": "7"}}),
        mcp(STDIO, "local", "environment"),
    ],
}

FUNCTION_ACTION = {
    "type": "function_call",
    "turn_id": "turn_a",
    "call_id": "call_a",
    "name": "cancel_order",
    "arguments": {"order": "A-1042"},
}
SIGN_IN = {
    "type": "browser_authentication",
    "fields": [{"id": "mail", "label": "E-mail", "required": True, "type": "email"}],
    "options": [{"id": "password", "label": "Password", "field_ids": ["mail"]}],
    "credential_origin": "https://shop.example.org",
    "reason": "To read the order.",
}
ACTIONS: list[dict[str, Any]] = [
    FUNCTION_ACTION,
    {
        "type": "mcp_approval_request",
        "turn_id": "turn_a",
        "request_id": "req_a",
        "request": {
            "type": "mcp_tool_call",
            "server_label": "orders",
            "name": None,
            "arguments": None,
            "message": "Allow it?",
        },
    },
    {
        "type": "computer_use_approval_request",
        "turn_id": "turn_a",
        "request_id": "req_b",
        "request": SIGN_IN,
    },
    {
        "type": "computer_use_approval_request",
        "turn_id": "turn_a",
        "request_id": "req_c",
        "request": {"type": "browser_origin_access", "origin": "https://a.example.org", "reason": None},
    },
    {"type": "environment_connection", "environment_id": "env_a"},
]

HOSTED: dict[str, Any] = {
    "type": "openai_hosted",
    "id": "env_a",
    "files": [
        {"id": "file_a", "type": "inline", "path": "/workspace/in.csv", "size_bytes": 12},
        {"id": "file_b", "type": "file_id", "file_id": "file-1", "path": "/workspace/b", "size_bytes": 1},
    ],
    "skills": [
        {"type": "inline", "name": "report", "description": "Writes reports."},
        {
            "type": "skill_reference",
            "skill_id": "skill_a",
            "name": "chart",
            "description": "Draws.",
            "version": "3",
        },
    ],
    "plugins": [{"type": "inline", "name": "lint", "description": "Lints."}],
    "packages": {"npm": ["zx"], "python": ["polars"], "system": []},
    "network": {"access": "restricted", "allowed_domains": ["pypi.org"]},
    "capability_directories": ["/opt/skills"],
    "container_size": "large",
    "desktop": {"enabled": True},
}
SELF_HOSTED = {
    "type": "self_hosted",
    "id": "env_b",
    "remote_url": "https://agents.example.org/v1/agents/api/connect/rt_a",
    "workspace_directory": "/home/me/shop",
    "capability_directories": [],
}
ENVIRONMENTS: list[dict[str, Any]] = [{"type": "none"}, HOSTED, SELF_HOSTED]
TEMPLATE: dict[str, Any] = {
    "id": "envtmpl_a",
    "object": "agent.environment.template",
    "name": "reports",
    "created_at": 5,
    "updated_at": 6,
    "files": [
        {"type": "inline", "path": "/workspace/in.csv", "size_bytes": 12},
        {"type": "file_id", "file_id": "file-1", "path": "/workspace/b"},
    ],
    "network": {"access": "disabled", "allowed_domains": []},
    "packages": {"npm": [], "python": [], "system": ["jq"]},
    "plugins": [{"type": "inline", "name": "lint", "description": "Lints."}],
    "skills": [
        {"type": "skill_reference", "skill_id": "skill_a", "version": "latest"},
        {"type": "inline", "name": "report", "description": "Writes reports."},
    ],
    "capability_directories": ["/opt/skills"],
    "desktop": None,
}

TURN: dict[str, Any] = {
    "id": "turn_a",
    "object": "agent.session.turn",
    "session_id": "sess_a",
    "agent_id": "agt_a",
    "subagent_id": None,
    "status": "failed",
    "created_at": 10,
    "started_at": 11,
    "completed_at": 12,
    "error": {"code": "rate_limit_exceeded", "message": "Too many requests."},
    "usage": USAGE,
    "prompt_cache_options": {"ttl": "12h"},
}
SESSION: dict[str, Any] = {
    "id": "sess_a",
    "object": "agent.session",
    "created_at": 10,
    "last_active_at": 14,
    "status": "requires_action",
    "error": None,
    "metadata": {"customer": "42"},
    "vault_ids": ["vlt_a"],
    "agent": SESSION_AGENT,
    "environment": {"type": "none"},
    "required_actions": ACTIONS,
    "usage": USAGE,
    "prompt_cache_options": {"ttl": "30m"},
    "review": "auto_review",
}
SUBAGENT: dict[str, Any] = {
    "id": "sub_a",
    "object": "agent.session.subagent",
    "session_id": "sess_a",
    "parent_agent_id": "agt_a",
    "name": "scout",
    "instructions": [
        {"type": "output_text", "text": "Find it."},
        {"type": "encrypted_content", "encrypted_content": "AAEC"},
    ],
    "status": "closed",
    "opened_at": 20,
    "closed_at": 30,
}

_ITEM = {"turn_id": "turn_a"}
_CALL = {"turn_id": "turn_a", "status": "in_progress"}
_TEXT = [{"type": "output_text", "text": "Look."}]
ITEMS: list[dict[str, Any]] = [
    {
        **_ITEM,
        "id": "msg_a",
        "type": "message",
        "role": "user",
        "status": "completed",
        "phase": None,
        "content": [
            {"type": "input_text", "text": "Cancel\u0000 it."},
            {"type": "input_image", "image_url": "https://img.example.org/a.png"},
        ],
    },
    {
        **_ITEM,
        "id": "msg_b",
        "type": "message",
        "role": "assistant",
        "status": "incomplete",
        "phase": "commentary",
        "content": _TEXT,
    },
    {
        **_ITEM,
        "id": "rs_a",
        "type": "reasoning",
        "status": None,
        "summary": [{"type": "summary_text", "text": "Hm."}],
    },
    {
        **_CALL,
        "id": "fc_a",
        "type": "function_call",
        "call_id": "call_a",
        "name": "cancel_order",
        "arguments": ["any", {"json": None}],
    },
    {
        **_CALL,
        "id": "fco_a",
        "type": "function_call_output",
        "call_id": "call_a",
        "output": "done",
        "error": None,
    },
    {
        **_CALL,
        "id": "fco_b",
        "type": "function_call_output",
        "call_id": "call_b",
        "output": [{"type": "input_text", "text": "seen"}],
        "error": "half",
    },
    {
        **_CALL,
        "id": "mcp_a",
        "type": "mcp_call",
        "server_label": "orders",
        "name": "find",
        "arguments": {},
        "output": [1],
        "error": None,
    },
    *(
        {**_CALL, "id": f"ws_{index}", "type": "web_search_call", "action": action}
        for index, action in enumerate(
            [
                None,
                {"type": "search", "query": "shops", "queries": ["a", "b"]},
                {"type": "open_page", "url": "https://example.org"},
                {"type": "find_in_page", "url": None, "pattern": "price"},
                {"type": "other"},
            ]
        )
    ),
    {
        **_CALL,
        "id": "cmd_a",
        "type": "command_execution",
        "command": "make",
        "cwd": "/workspace",
        "output": "ok\n",
        "exit_code": 0,
        "duration_ms": 17,
    },
    {
        **_CALL,
        "id": "cu_a",
        "type": "computer_use_call",
        "title": "Open shop",
        "output": {"type": "computer_screenshot", "image_url": "data:image/png;base64,AA=="},
    },
    {
        **_ITEM,
        "id": "car_a",
        "type": "computer_use_approval_request",
        "request_id": "req_b",
        "request": SIGN_IN,
    },
    {
        **_ITEM,
        "id": "cao_a",
        "type": "computer_use_approval_request_result",
        "request_id": "req_b",
        "response": {"type": "browser_authentication", "action": "submit", "selected_option": "password"},
    },
    {
        **_ITEM,
        "id": "cao_b",
        "type": "computer_use_approval_request_result",
        "request_id": "req_b",
        "response": {"type": "browser_authentication", "action": "cancel"},
    },
    {
        **_ITEM,
        "id": "am_a",
        "type": "agent_message",
        "sender_agent_id": "sub_a",
        "recipient_agent_id": "agt_a",
        "content": _TEXT,
    },
    {
        **_CALL,
        "id": "cs_a",
        "type": "create_subagent_call",
        "agent_id": "agt_a",
        "content": _TEXT,
        "model": "vendor/small",
        "reasoning_effort": "low",
    },
    {
        **_CALL,
        "id": "ss_a",
        "type": "send_subagent_input_call",
        "sender_agent_id": "agt_a",
        "recipient_agent_id": "sub_a",
        "content": _TEXT,
    },
    {
        **_CALL,
        "id": "wt_a",
        "type": "wait_for_subagents_call",
        "sender_agent_id": "agt_a",
        "recipient_agent_ids": ["sub_a", "sub_b"],
    },
    *(
        {
            **_CALL,
            "id": f"{kind[:2]}_a",
            "type": f"{kind}_subagent_call",
            "sender_agent_id": "agt_a",
            "recipient_agent_id": "sub_a",
        }
        for kind in ("interrupt", "resume", "close")
    ),
]
NOT_OUTPUT = {"function_call_output", "agent_message", "computer_use_approval_request_result"}
OUTPUT_ITEMS = [item for item in ITEMS if item["type"] not in NOT_OUTPUT and item.get("role") != "user"]

_IN_TURN = {"session_id": "sess_a", "turn_id": "turn_a"}
_PART = {**_IN_TURN, "item_id": "msg_b", "output_index": 2}
_STATE = {"id": "env_a", "type": "openai_hosted", "status": "ready", "error": None}
_FAILED = {
    **_STATE,
    "status": "failed",
    "error": {"type": "server_error", "code": "sandbox_error", "message": "No."},
}
_OUT, _SUMMARY = {"type": "output_text", "text": "Yes"}, {"type": "summary_text", "text": "Hm"}
EVENTS: list[dict[str, Any]] = [
    {"event_id": f"evt_{index}", **event}
    for index, event in enumerate(
        [
            *(
                {"type": f"agent.session.{status}", "session": SESSION}
                for status in ("created", "in_progress", "idle", "requires_action", "failed")
            ),
            {
                "type": "error",
                "session_id": "sess_a",
                "error": {
                    "type": "server_error",
                    "code": "connection_failed",
                    "message": "Gone.",
                    "param": None,
                },
            },
            *(
                {"type": f"agent.session.turn.{status}", **_IN_TURN, "turn": TURN}
                for status in ("created", "in_progress")
            ),
            *(
                {"type": f"agent.session.turn.{status}", **_IN_TURN, "turn": TURN, "usage": spent}
                for status, spent in (("completed", USAGE), ("failed", None), ("cancelled", None))
            ),
            *(
                {"type": "agent.session.turn.item.added", **_IN_TURN, "item": item, "output_index": None}
                for item in ITEMS
            ),
            *(
                {"type": "agent.session.turn.item.done", **_IN_TURN, "item": item, "output_index": 4}
                for item in OUTPUT_ITEMS
            ),
            {"type": "agent.session.turn.content_part.added", **_PART, "content_index": 0, "part": _OUT},
            {"type": "agent.session.turn.content_part.done", **_PART, "content_index": 0, "part": _OUT},
            {"type": "agent.session.turn.output_text.delta", **_PART, "content_index": 0, "delta": "Y"},
            {"type": "agent.session.turn.output_text.done", **_PART, "content_index": 0, "text": "Yes"},
            {
                "type": "agent.session.turn.reasoning_summary_part.added",
                **_PART,
                "summary_index": 0,
                "part": _SUMMARY,
            },
            {
                "type": "agent.session.turn.reasoning_summary_part.done",
                **_PART,
                "summary_index": 0,
                "part": _SUMMARY,
                "status": "incomplete",
            },
            {
                "type": "agent.session.turn.reasoning_summary_text.delta",
                **_PART,
                "summary_index": 0,
                "delta": "H",
            },
            {
                "type": "agent.session.turn.reasoning_summary_text.done",
                **_PART,
                "summary_index": 0,
                "text": "Hm",
            },
            {"type": "agent.output.command_execution_output.delta", **_PART, "delta": "ok\n"},
            *(
                {"type": f"agent.session.subagent.{status}", "subagent": SUBAGENT}
                for status in ("created", "active", "closed")
            ),
            *(
                {"type": f"agent.session.environment.{status}", **_IN_TURN, "environment": _STATE}
                for status in ("pending", "ready", "connected", "disconnected", "suspended", "expired")
            ),
            {"type": "agent.session.environment.failed", **_IN_TURN, "environment": _FAILED},
            {
                "type": "agent.session.environment.reset",
                "session_id": "sess_a",
                "turn_id": None,
                "environment_id": "env_a",
                "reset_count": 2,
            },
        ]
    )
]
EVENTS.append({**EVENTS[2], "obfuscation": "x7Qa"})

_CREDENTIAL: dict[str, Any] = {
    "id": "cred_a",
    "object": "vault.credential",
    "vault_id": "vlt_a",
    "name": "orders",
    "metadata": {},
    "created_at": 1,
    "updated_at": 2,
}
CREDENTIALS: list[dict[str, Any]] = [
    {**_CREDENTIAL, "auth": auth}
    for auth in (
        {
            "type": "mcp_oauth",
            "mcp_server_url": "https://orders.example.org/mcp",
            "expires_at": "2030-01-31T12:00:00Z",
            "refresh": {
                "client_id": "shop",
                "token_endpoint": "https://id.example.org/token",
                "token_endpoint_auth": {"type": "none"},
                "resource": None,
                "scope": "read",
            },
        },
        {"type": "static_bearer", "mcp_server_url": "https://orders.example.org/mcp"},
        {
            "type": "environment_variable",
            "secret_name": "SHOP_KEY",
            "networking": {"type": "limited", "allowed_hosts": ["shop.example.org"]},
        },
        {
            "type": "environment_variable",
            "secret_name": "SHOP_KEY",
            "networking": {"type": "unrestricted"},
        },
    )
]

_AUTOMATION: dict[str, Any] = {
    "id": "auto_a",
    "object": "agent.automation",
    "name": "weekly",
    "pause_reason": "target_session_failed",
    "metadata": {},
    "created_at": 3,
}
_INLINE_AGENT = {key: value for key, value in SESSION_AGENT.items() if key not in ("id", "name")}
_HOSTED_TARGET = {
    "type": "openai_hosted",
    "environment_id": None,
    "environment_template_id": "envtmpl_a",
    "container_size": "small",
    "files": TEMPLATE["files"],
    "network": None,
    "packages": None,
    "skills": TEMPLATE["skills"],
    "plugins": None,
    "capability_directories": None,
    "desktop": {"enabled": False},
}
AUTOMATIONS: list[dict[str, Any]] = [
    {
        **_AUTOMATION,
        "type": "periodic",
        "status": "paused",
        "expression": "15 7 * * MON",
        "timezone": "Europe/Oslo",
        "created_by": {"type": "agent", "session_id": "sess_a", "tool_call_id": "call_a"},
        "target": {"type": "existing_session", "session_id": "sess_a", "instructions": "Report."},
    },
    *(
        {
            **_AUTOMATION,
            "type": "once",
            "status": "completed",
            "run_at": 1_900_000_000,
            "created_by": {"type": "developer"},
            "target": {
                "type": "new_session",
                "agent": agent,
                "agent_id": agent_id,
                "environment": environment,
                "input": [
                    {
                        "type": "message",
                        "role": "user",
                        "content": [{"type": "input_text", "text": "Report."}],
                    }
                ],
                "metadata": {},
                "vault_ids": [],
            },
        }
        for agent, agent_id, environment in (
            (None, "agt_b", {"type": "none"}),
            (_INLINE_AGENT, None, _HOSTED_TARGET),
            (
                None,
                "agt_b",
                {
                    "type": "self_hosted",
                    "environment_id": None,
                    "workspace_directory": "/srv",
                    "capability_directories": [],
                },
            ),
        )
    ),
]
_INVOCATION: dict[str, Any] = {
    "id": "inv_a",
    "object": "agent.automation.invocation",
    "automation_id": "auto_a",
    "created_at": 4,
    "scheduled_at": 4,
    "session_id": None,
}
INVOCATIONS: list[dict[str, Any]] = [
    {
        **_INVOCATION,
        "status": "failed",
        "error": {"code": "not_found_error", "message": "The agent is gone."},
        "skip_reason": None,
        "source": {"type": "manual"},
    },
    {
        **_INVOCATION,
        "status": "skipped",
        "error": None,
        "skip_reason": "pending_delivery",
        "source": {"type": "automation", "automation": AUTOMATIONS[0]},
    },
]

_ENDPOINT: dict[str, Any] = {
    "id": "we_a",
    "object": "webhook_endpoint",
    "name": "shop",
    "url": "https://shop.example.org/hook",
    "event_types": ["agent.session.idle"],
    "created_at": 1,
    "updated_at": None,
    "signing_secret_hint": "…x4",
}
WEBHOOK_EVENTS: list[tuple[Any, dict[str, Any]]] = [
    (
        kind,
        {
            "id": "evt_w",
            "object": "event",
            "created_at": 1,
            "type": name,
            "data": data,
        },
    )
    for kind, name, data in (
        (
            webhooks.AgentSessionCreatedWebhookEvent,
            "agent.session.created",
            {
                "id": "sess_a",
                "environment_type": "self_hosted",
                "environment_id": "env_b",
                "connect": {"remote_url": "https://agents.example.org/connect/rt_a"},
            },
        ),
        (
            webhooks.AgentSessionInProgressWebhookEvent,
            "agent.session.in_progress",
            {"id": "sess_a", "environment_type": "none", "environment_id": None},
        ),
        (
            webhooks.AgentSessionIdleWebhookEvent,
            "agent.session.idle",
            {"id": "sess_a", "environment_type": "none", "environment_id": None},
        ),
        (
            webhooks.AgentSessionFailedWebhookEvent,
            "agent.session.failed",
            {"id": "sess_a", "environment_type": "none", "environment_id": None},
        ),
        (
            webhooks.AgentSessionActionRequiredWebhookEvent,
            "agent.session.action_required",
            {"id": "sess_a", "required_action": {"type": "environment_connection"}},
        ),
        (webhooks.AgentEnvironmentReadyWebhookEvent, "agent.environment.ready", {"id": "env_a"}),
        (webhooks.AgentEnvironmentFailedWebhookEvent, "agent.environment.failed", {"id": "env_a"}),
        (webhooks.AgentEnvironmentSuspendedWebhookEvent, "agent.environment.suspended", {"id": "env_a"}),
        (webhooks.AgentEnvironmentExpiredWebhookEvent, "agent.environment.expired", {"id": "env_a"}),
    )
]


def _deleted(name: str) -> dict[str, Any]:
    return {"id": "x_1", "object": name, "deleted": True}


ARTIFACT = {
    "id": "art_a",
    "object": "agent.session.artifact",
    "session_id": "sess_a",
    "turn_id": "turn_a",
    "environment_id": "env_a",
    "path": "/workspace/outputs/a.md",
    "size_bytes": 3,
    "created_at": 12,
}

SAMPLES: list[tuple[Any, Any, dict[str, Any]]] = [
    (usage.TokenUsage, beta.TokenUsage, USAGE),
    (agents.Agent, beta.Agent, AGENT),
    (agents.AgentDeleted, beta.AgentDeleted, _deleted("agent.deleted")),
    (our_sessions.Session, beta.AgentSession, SESSION),
    *(
        (our_sessions.Session, beta.AgentSession, {**SESSION, "environment": environment, "error": "x: y"})
        for environment in ENVIRONMENTS
    ),
    (our_sessions.SessionDeleted, beta.AgentSessionDeleted, _deleted("agent.session.deleted")),
    (turns.Turn, sessions.Turn, TURN),
    (subagents.Subagent, beta.Subagent, SUBAGENT),
    *((our_actions.RequiredAction, None, action) for action in ACTIONS),
    *((items.Item, beta.AgentSessionItem, item) for item in ITEMS),
    *((items.OutputItem, AgentOutputItem, item) for item in OUTPUT_ITEMS),
    *((events.SessionEvent, beta.AgentSessionEvent, event) for event in EVENTS),
    *((environment_resources.Environment, beta.Environment, one) for one in ENVIRONMENTS),
    (
        environment_resources.EnvironmentInfo,
        sdk.EnvironmentInfo,
        {
            "id": "env_a",
            "object": "agent.environment",
            "type": "openai_hosted",
            "status": "suspended",
            "files": HOSTED["files"],
            "plugins": HOSTED["plugins"],
            "skills": HOSTED["skills"],
        },
    ),
    (
        environment_resources.EnvironmentFile,
        environments.EnvironmentFile,
        {
            "object": "agent.environment.file",
            "environment_id": "env_a",
            "path": "/workspace/a",
            "size_bytes": 0,
        },
    ),
    (environment_resources.EnvironmentTemplate, environments.EnvironmentTemplate, TEMPLATE),
    (
        environment_resources.EnvironmentTemplateDeleted,
        environments.EnvironmentTemplateDeleted,
        _deleted("agent.environment.template.deleted"),
    ),
    (artifacts.Artifact, sessions.SessionArtifact, ARTIFACT),
    (
        artifacts.ArtifactDeleted,
        sessions.SessionArtifactDeleted,
        _deleted("agent.session.artifact.deleted"),
    ),
    (
        artifacts.Trace,
        sessions.SessionTrace,
        {
            "id": "turn_a",
            "object": "agent.session.trace",
            "session_id": "sess_a",
            "created_at": 10,
            "otlp": {"resourceSpans": []},
        },
    ),
    (
        our_vaults.Vault,
        sdk.Vault,
        {"id": "vlt_a", "object": "vault", "name": None, "metadata": {"a": "b"}, "created_at": 1},
    ),
    (our_vaults.VaultDeleted, sdk.VaultDeleted, _deleted("vault.deleted")),
    *((our_vaults.Credential, vaults.Credential, credential) for credential in CREDENTIALS),
    (our_vaults.CredentialDeleted, vaults.CredentialDeleted, _deleted("vault.credential.deleted")),
    *((automations.Automation, sdk.Automation, automation) for automation in AUTOMATIONS),
    (automations.AutomationDeleted, sdk.AutomationDeleted, _deleted("agent.automation.deleted")),
    *((automations.Invocation, AutomationInvocation, invocation) for invocation in INVOCATIONS),
    (our_webhooks.WebhookEndpoint, webhooks.WebhookEndpoint, _ENDPOINT),
    (
        our_webhooks.WebhookEndpointWithSecret,
        webhooks.WebhookEndpointWithSecret,
        {**_ENDPOINT, "signing_secret": "whsec_x4"},
    ),
    (
        our_webhooks.WebhookEndpointDeleted,
        webhooks.DeletedWebhookEndpoint,
        _deleted("webhook_endpoint.deleted"),
    ),
    (
        our_webhooks.WebhookTestResult,
        webhooks.WebhookEndpointTestResult,
        {
            "object": "webhook_endpoint.test",
            "webhook_endpoint_id": "we_a",
            "event_type": "agent.session.idle",
            "status_code": 204,
            "success": True,
        },
    ),
    *((our_webhooks.WebhookEvent, kind, event) for kind, event in WEBHOOK_EVENTS),
    (
        pages.Page[artifacts.Artifact],
        None,
        {
            "object": "list",
            "data": [ARTIFACT],
            "first_id": "art_a",
            "last_id": "art_a",
            "has_more": False,
        },
    ),
]
