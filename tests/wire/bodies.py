"""Request bodies that are accepted, to start from."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, TypeAdapter

from perdure.wire import agents, automations, environments, inputs, sessions, vaults, webhooks

NONE: dict[str, Any] = {"type": "none"}
HOSTED: dict[str, Any] = {"type": "openai_hosted"}
SELF_HOSTED: dict[str, Any] = {"type": "self_hosted", "workspace_directory": "/srv/shop"}
FUNCTION: dict[str, Any] = {
    "type": "function",
    "name": "ship",
    "description": "",
    "parameters": {"type": "object", "properties": {"order": {"type": "string"}}},
}
HTTP: dict[str, Any] = {"type": "http", "server_url": "https://orders.example.org/mcp"}
STDIO: dict[str, Any] = {"type": "stdio", "command": "orders", "cwd": "/srv"}
ZIP = {"type": "base64", "media_type": "application/zip", "data": "UEsFBg=="}
TEXT = {"type": "input_text", "text": "Hi"}
MESSAGE: dict[str, Any] = {"role": "user", "content": [TEXT]}


def mcp(transport: dict[str, Any], **members: Any) -> dict[str, Any]:
    return {"type": "mcp", "server_label": "orders", "transport": transport, **members}


def session(*tools: Any, **members: Any) -> dict[str, Any]:
    """A session's creation with these tools; members replace."""
    agent: dict[str, Any] = {"model": "m"}
    if tools:
        agent["tools"] = list(tools)
    return {"agent": agent, "environment": NONE, "input": "Hi", **members}


def hosted(**members: Any) -> dict[str, Any]:
    return {**HOSTED, **members}


def result(**members: Any) -> dict[str, Any]:
    """A batch with one tool result."""
    base = {
        "type": "agent.session.input.tool_result",
        "turn_id": "turn_a",
        "call_id": "call_a",
        "success": True,
    }
    return {"events": [{**base, **members}]}


def messages(*input: Any) -> dict[str, Any]:
    return {"events": [{"type": "agent.session.input.message", "input": list(input)}]}


def browser(**response: Any) -> dict[str, Any]:
    kind = "agent.session.input.computer_use_approval_request_result"
    return {"events": [{"type": kind, "request_id": "req_a", "response": response}]}


def credential(**auth: Any) -> dict[str, Any]:
    return {"name": "orders", "auth": auth}


VARIABLE: dict[str, Any] = {
    "type": "environment_variable",
    "secret_name": "SHOP_KEY",
    "secret_value": "s",
    "networking": {"type": "limited", "allowed_hosts": ["Shop.example.org", "10.0.0.7"]},
}
OAUTH: dict[str, Any] = {
    "type": "mcp_oauth",
    "access_token": "t",
    "mcp_server_url": "https://orders.example.org/mcp",
    "expires_at": "2030-01-31T12:00:00Z",
    "refresh": {
        "client_id": "c",
        "refresh_token": "r",
        "token_endpoint": "https://id.example.org/token",
        "token_endpoint_auth": {"type": "client_secret_post", "client_secret": "s"},
        "resource": None,
        "scope": "read",
    },
}
PERIODIC: dict[str, Any] = {
    "type": "periodic",
    "name": "weekly",
    "expression": "15 7 * * MON-FRI",
    "timezone": "Europe/Oslo",
    "target": {"type": "existing_session", "session_id": "sess_a", "instructions": "Report."},
}
ONCE: dict[str, Any] = {
    "type": "once",
    "name": "later",
    "run_at": 1_900_000_000,
    "target": {"type": "new_session", "environment": NONE, "input": [MESSAGE], "agent_id": "agt_a"},
}

ACCEPTED: list[tuple[type[BaseModel] | TypeAdapter[Any], Any]] = [
    (agents.AgentCreate, {"model": "m"}),
    (
        agents.AgentCreate,
        {
            "model": "m",
            "name": "clerk",
            "instructions": "Be\u0000brief.",
            "metadata": {"k" * 64: "v" * 512},
            "multi_agent": {"enabled": True, "max_concurrent_subagents": 4_294_967_295},
            "reasoning": {"effort": "max", "summary": None},
            "service_tier": "ultrafast",
            "text": {"format": {"type": "json_schema", "schema": {"type": "object"}}, "verbosity": None},
            "compaction": {"async": None},
            "experimental": {"time_awareness": True},
            "tools": [
                {**FUNCTION, "async": True, "defer_loading": True},
                {"type": "tool_search"},
                {"type": "programmatic_tool_calling"},
                {"type": "computer_use"},
                {"type": "automations"},
                {"type": "web_search", "allowed_domains": None, "location": {"city": None}},
                mcp({**HTTP, "headers": {"X-Shop": "7"}}, connection_origin="environment"),
                mcp({**STDIO, "env_vars": ["ORDERS"]}, server_label="local", connection_origin=None),
            ],
        },
    ),
    (agents.AgentCreate, dict.fromkeys(("name", "metadata", "text", "tools")) | {"model": "m"}),
    (agents.AgentUpdate, {}),
    (agents.AgentUpdate, {"reasoning": None, "text": None, "multi_agent": None, "compaction": {}}),
    (sessions.SessionCreate, session()),
    (sessions.SessionCreate, session(input=[MESSAGE, {**MESSAGE, "type": "message"}], review="auto_review")),
    (
        sessions.SessionCreate,
        session(
            {
                **FUNCTION,
                "parameters": {"$ref": "#/$defs/Order", "$defs": {"Order": {"type": "object"}}},
            },
            mcp({**HTTP, "authorization": "Bearer x", "headers": {"X-Shop": "7"}}),
            agent_id="agt_a",
            stream=True,
            stream_options={},
            vault_ids=["vlt_a", "vlt_a"],
            prompt_cache_options={},
        ),
    ),
    (
        sessions.SessionCreate,
        session(
            {"type": "computer_use", "include_screenshots": True},
            mcp({**STDIO, "env": {"KEY": "v"}}),
            environment=hosted(desktop={"enabled": True}),
            input=None,
        ),
    ),
    (
        sessions.SessionCreate,
        {
            "agent": {"model": "m"},
            "environment": hosted(
                environment_template_id="envtmpl_a",
                container_size="small",
                env={"MODE": "test"},
                network={"access": "restricted", "blocked_domains": ["ads.example.org"]},
                packages={"npm": None, "python": ["polars"]},
                setup_commands=[{"command": "make"}, {"command": "make", "cwd": "/workspace/a"}],
                files=[
                    {"type": "inline", "data": "YWJj", "path": "/workspace/a.txt"},
                    {"type": "file_id", "file_id": "file-1", "path": "/workspace/outputs/b"},
                ],
                skills=[
                    {"type": "skill_reference", "skill_id": "skill_a", "version": "latest"},
                    {"type": "inline", "name": "report", "description": "", "source": ZIP},
                ],
                plugins=[{"type": "inline", "name": "lint", "description": "", "source": ZIP}],
                capability_directories=["/opt/skills"],
            ),
        },
    ),
    (sessions.SessionCreate, {"agent_id": "agt_a", "environment": hosted(environment_id="env_a")}),
    (sessions.SessionCreate, {"agent": {"model": "m"}, "environment": SELF_HOSTED, "stream": True}),
    (sessions.SessionUpdate, {}),
    (
        sessions.SessionUpdate,
        {
            "agent": {
                "model": "m2",
                "reasoning": {"effort": None},
                "service_tier": None,
                "tools": [FUNCTION],
            },
            "metadata": None,
            "prompt_cache_options": {"ttl": "12h"},
            "review": "none",
        },
    ),
    (inputs.EventBatch, {"events": []}),
    (inputs.EventBatch, messages(MESSAGE, {**MESSAGE, "content": [{**TEXT, "text": ""}, TEXT]})),
    (
        inputs.EventBatch,
        messages(
            {**MESSAGE, "content": [{"type": "input_image", "image_url": "https://img.example.org/a.png"}]},
            {**MESSAGE, "content": [{"type": "input_image", "image_url": "data:image/png;base64,AA=="}]},
        ),
    ),
    (inputs.EventBatch, {"events": [{"type": "agent.session.input.cancel"}] * 64}),
    (inputs.EventBatch, result(output="a\u0000b")),
    (inputs.EventBatch, result(output=None, error=None)),
    (inputs.EventBatch, result(success=False, error="No.")),
    (inputs.EventBatch, result(output=[])),
    (inputs.EventBatch, result(output=[{**TEXT, "text": ""}, {**TEXT, "text": "x" * (2 << 20)}])),
    (
        inputs.EventBatch,
        {
            "events": [
                {
                    "type": "agent.session.input.mcp_approval_request_result",
                    "request_id": "req_a",
                    "response": {"type": "mcp_tool_call", "decision": "cancel"},
                }
            ]
        },
    ),
    (inputs.EventBatch, browser(type="browser_origin_access", decision="deny")),
    (inputs.EventBatch, browser(type="browser_authentication", action="cancel")),
    (
        inputs.EventBatch,
        browser(
            type="browser_authentication",
            action="submit",
            selected_option=None,
            fields=[{"field_id": f"f{index}", "value": "v" * 16_384} for index in range(6)],
        ),
    ),
    (environments.FileParamsAdapter, {"type": "inline", "data": "", "path": "/workspace/.env"}),
    (environments.EnvironmentCreate, {"environment": HOSTED, "vault_ids": None}),
    (environments.TemplateCreate, {"name": "py", "network": {"access": "disabled"}}),
    (environments.TemplateUpdate, {"name": None, "network": None, "desktop": None}),
    (vaults.VaultCreate, {"name": " team "}),
    (vaults.VaultUpdate, {"name": None, "metadata": {}}),
    (vaults.CredentialCreate, credential(**OAUTH)),
    (
        vaults.CredentialCreate,
        credential(type="static_bearer", token="t", mcp_server_url="https://a.example.org"),
    ),
    (vaults.CredentialCreate, credential(**VARIABLE)),
    (vaults.CredentialCreate, credential(**{**VARIABLE, "networking": {"type": "unrestricted"}})),
    (vaults.CredentialUpdate, {"auth": {"type": "static_bearer", "token": "t2"}}),
    (vaults.CredentialUpdate, {"auth": {"type": "environment_variable", "secret_value": "s2"}}),
    (
        vaults.CredentialUpdate,
        {
            "auth": {
                "type": "mcp_oauth",
                "expires_at": None,
                "refresh": {"scope": None, "token_endpoint_auth": {"type": "client_secret_basic"}},
            }
        },
    ),
    (automations.AutomationCreateAdapter, PERIODIC),
    (automations.AutomationCreateAdapter, ONCE),
    (automations.AutomationUpdate, {"name": "new", "run_at": 1_900_000_001}),
    (
        webhooks.WebhookEndpointCreate,
        {"name": "a", "url": "https://a.example.org/hook", "event_types": ["agent.session.idle"]},
    ),
    (webhooks.WebhookEndpointUpdate, {"event_types": ["agent.session.idle", "batch.completed"]}),
    (webhooks.WebhookSecretRotation, {}),
    (webhooks.WebhookTest, {"event_type": "agent.session.failed"}),
]
