from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter

from perdure.wire.agents import AgentCreate, AgentUpdate
from perdure.wire.automations import AutomationCreateAdapter, AutomationUpdate
from perdure.wire.combinations import check_combination
from perdure.wire.environments import (
    EnvironmentCreate,
    EnvironmentParams,
    FileParamsAdapter,
    TemplateCreate,
)
from perdure.wire.errors import InvalidRequest
from perdure.wire.inputs import EventBatch
from perdure.wire.sessions import SessionCreate, SessionUpdate
from perdure.wire.tool_lists import ToolList
from perdure.wire.validation import validate_as
from perdure.wire.vaults import CredentialCreate, CredentialUpdate, VaultCreate, VaultUpdate
from perdure.wire.webhooks import WebhookEndpointCreate, WebhookEndpointUpdate

from .bodies import (
    FUNCTION,
    HOSTED,
    HTTP,
    MESSAGE,
    NONE,
    OAUTH,
    ONCE,
    PERIODIC,
    SELF_HOSTED,
    STDIO,
    TEXT,
    VARIABLE,
    ZIP,
    browser,
    credential,
    hosted,
    mcp,
    messages,
    result,
    session,
)

Case = tuple[Any, Any, str | None]


def agent(**members: Any) -> dict[str, Any]:
    return {"model": "m", **members}


def image(url: str) -> dict[str, Any]:
    return {"type": "input_image", "image_url": url}


def schema(root: Any) -> dict[str, Any]:
    return agent(text={"format": {"type": "json_schema", "schema": root}})


def parameters(root: Any) -> dict[str, Any]:
    return agent(tools=[{**FUNCTION, "parameters": root}])


def file(path: str, **members: Any) -> dict[str, Any]:
    return {"type": "inline", "data": "", "path": path, **members}


def sandbox(**members: Any) -> dict[str, Any]:
    return session(environment=hosted(**members))


AGENTS: list[Case] = [
    (AgentCreate, {}, "model"),
    (AgentCreate, agent(model=""), "model"),
    (AgentCreate, agent(model=None), "model"),
    (AgentCreate, agent(name="n" * 129), "name"),
    (AgentCreate, agent(experimental=None), "experimental"),
    (AgentCreate, agent(metadata={"": "v"}), "metadata"),
    (AgentCreate, agent(metadata={"k" * 65: "v"}), "metadata"),
    (AgentCreate, agent(metadata={"k": "v" * 513}), "metadata.k"),
    (AgentCreate, agent(metadata={"k": None}), "metadata.k"),
    (AgentCreate, agent(metadata={f"k{n}": "" for n in range(17)}), "metadata"),
    (AgentCreate, agent(reasoning={"effort": "huge"}), "reasoning.effort"),
    (AgentCreate, agent(service_tier="gold"), "service_tier"),
    (AgentCreate, agent(text={"verbosity": 1}), "text.verbosity"),
    (AgentCreate, agent(text={"format": {"type": "json_object"}}), "text.format.type"),
    (AgentCreate, agent(text={"format": {"type": "json_schema"}}), "text.format.schema"),
    (
        AgentCreate,
        agent(text={"format": {"type": "text", "schema": {}}}),
        "text.format.schema",
    ),
    (AgentCreate, schema({"type": "array"}), "text.format.schema"),
    (AgentCreate, schema({}), "text.format.schema"),
    *(
        (AgentCreate, schema({"type": "object", word: []}), "text.format.schema")
        for word in ("oneOf", "anyOf", "allOf", "enum", "not")
    ),
    (AgentCreate, schema({"$ref": "#/$defs/A", "$defs": {"A": {"type": "string"}}}), "text.format.schema"),
    (AgentCreate, schema({"$ref": "#"}), "text.format.schema"),
    (AgentCreate, schema({"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/A"}}}), "text.format.schema"),
    (
        AgentCreate,
        agent(multi_agent={"enabled": False, "max_concurrent_subagents": 2}),
        "multi_agent.max_concurrent_subagents",
    ),
    (
        AgentCreate,
        agent(multi_agent={"enabled": True, "max_concurrent_subagents": 0}),
        "multi_agent.max_concurrent_subagents",
    ),
    (
        AgentCreate,
        agent(multi_agent={"enabled": True, "max_concurrent_subagents": 1 << 32}),
        "multi_agent.max_concurrent_subagents",
    ),
    (AgentCreate, agent(multi_agent={}), "multi_agent.enabled"),
    (AgentCreate, agent(compaction={"async_": True}), "compaction.async_"),
    (AgentUpdate, {"model": None}, "model"),
    (AgentUpdate, {"experimental": None}, "experimental"),
]

TOOLS: list[Case] = [
    (AgentCreate, agent(tools={}), "tools"),
    (AgentCreate, agent(tools=["x"]), "tools[0]"),
    (AgentCreate, agent(tools=[{}]), "tools[0].type"),
    (AgentCreate, agent(tools=[{"type": "hammer"}]), "tools[0].type"),
    (AgentCreate, agent(tools=[{"type": 1}]), "tools[0].type"),
    (AgentCreate, agent(tools=[FUNCTION, {**FUNCTION, "name": ""}]), "tools[1].name"),
    (AgentCreate, agent(tools=[{**FUNCTION, "name": "a\nb"}]), "tools[0].name"),
    (AgentCreate, agent(tools=[{**FUNCTION, "name": "n" * 129}]), "tools[0].name"),
    (AgentCreate, agent(tools=[FUNCTION, FUNCTION]), "tools[1].name"),
    (AgentCreate, agent(tools=[{**FUNCTION, "strict": True}]), "tools[0].strict"),
    (AgentCreate, agent(tools=[{**FUNCTION, "function": {}}]), "tools[0].function"),
    (AgentCreate, agent(tools=[{**FUNCTION, "async": None}]), "tools[0].async"),
    (AgentCreate, agent(tools=[{**FUNCTION, "description": None}]), "tools[0].description"),
    (AgentCreate, agent(tools=[{**FUNCTION, "defer_loading": True}]), "tools[0].defer_loading"),
    (AgentCreate, parameters({"type": "array", "items": {}}), "tools[0].parameters"),
    (AgentCreate, parameters({"type": ["object", "null"]}), "tools[0].parameters"),
    (AgentCreate, parameters({"properties": {}}), "tools[0].parameters"),
    (AgentCreate, parameters([]), "tools[0].parameters"),
    *(
        (AgentCreate, agent(tools=[{"type": kind}, FUNCTION, {"type": kind}]), "tools[2].type")
        for kind in (
            "tool_search",
            "programmatic_tool_calling",
            "web_search",
            "computer_use",
            "automations",
        )
    ),
    (
        AgentCreate,
        agent(tools=[{"type": "web_search", "allowed_domains": ["a.org"] * 101}]),
        "tools[0].allowed_domains",
    ),
    (AgentCreate, agent(tools=[{"type": "web_search", "mode": "fast"}]), "tools[0].mode"),
    (
        AgentCreate,
        agent(tools=[{"type": "web_search", "location": {"street": "x"}}]),
        "tools[0].location.street",
    ),
    (AgentCreate, agent(tools=[mcp(HTTP), mcp(HTTP)]), "tools[1].server_label"),
    (AgentCreate, agent(tools=[mcp({"type": "ws"})]), "tools[0].transport.type"),
    (AgentCreate, agent(tools=[mcp({**HTTP, "server_url": "file:///x"})]), "tools[0].transport.server_url"),
    (
        AgentCreate,
        agent(tools=[mcp({**HTTP, "server_url": "https://me:pw@a.org"})]),
        "tools[0].transport.server_url",
    ),
    (
        AgentCreate,
        agent(tools=[mcp({**HTTP, "authorization": "Bearer x"})]),
        "tools[0].transport.authorization",
    ),
    (
        AgentCreate,
        agent(tools=[mcp({**HTTP, "headers": {"Authorization": "x"}})]),
        "tools[0].transport.headers.Authorization",
    ),
    (AgentCreate, agent(tools=[mcp({**STDIO, "env": {}})]), "tools[0].transport.env"),
    (AgentCreate, agent(tools=[mcp({**STDIO, "cwd": "srv"})]), "tools[0].transport.cwd"),
    (AgentCreate, agent(tools=[mcp(STDIO, connection_origin="service")]), "tools[0].connection_origin"),
    (AgentCreate, agent(tools=[mcp(STDIO, credential_id="cred_a")]), "tools[0].credential_id"),
    (
        AgentCreate,
        agent(tools=[mcp(HTTP, credential_id="cred_a", connection_origin="environment")]),
        "tools[0].credential_id",
    ),
    (
        AgentCreate,
        agent(tools=[mcp({**HTTP, "headers": {"a b": "x"}})]),
        "tools[0].transport.headers",
    ),
    (
        AgentCreate,
        agent(tools=[mcp({**HTTP, "headers": {"http": 1}})]),
        "tools[0].transport.headers.http",
    ),
    (
        AgentCreate,
        agent(tools=[{**FUNCTION, "description": "x" * (3 << 20)}]),
        "tools",
    ),
    (
        SessionCreate,
        session(mcp({**HTTP, "authorization": "x"}, credential_id="cred_a")),
        "agent.tools[0].credential_id",
    ),
    (
        SessionCreate,
        session(mcp({**HTTP, "authorization": "x", "headers": {"authorization": "y"}})),
        "agent.tools[0].transport.headers",
    ),
    (SessionCreate, session(mcp({**HTTP, "headers": {"a": "b\n"}})), "agent.tools[0].transport.headers.a"),
    (
        SessionCreate,
        session(mcp({**STDIO, "env": {"a b": ""}}), environment=HOSTED),
        "agent.tools[0].transport.env",
    ),
]

COMBINATIONS: list[Case] = [
    (SessionCreate, session(FUNCTION, {"type": "computer_use"}), "agent.tools[1].type"),
    (
        SessionCreate,
        session({"type": "computer_use"}, environment=HOSTED),
        "agent.tools[0].type",
    ),
    (
        SessionCreate,
        session({"type": "computer_use"}, environment=hosted(desktop={"enabled": False})),
        "agent.tools[0].type",
    ),
    (SessionCreate, session({"type": "computer_use"}, environment=SELF_HOSTED), "agent.tools[0].type"),
    (SessionCreate, session(mcp(STDIO)), "agent.tools[0].transport"),
    (
        SessionCreate,
        session(mcp(HTTP, connection_origin="environment")),
        "agent.tools[0].connection_origin",
    ),
    (
        SessionCreate,
        session(mcp(STDIO), environment=hosted(network={"access": "disabled"})),
        "agent.tools[0].transport",
    ),
    (
        SessionCreate,
        session(mcp({**STDIO, "env": {"A": "b"}}), environment=SELF_HOSTED),
        "agent.tools[0].transport.env",
    ),
]

SESSIONS: list[Case] = [
    (SessionCreate, {"environment": NONE, "input": "Hi"}, "agent.model"),
    (SessionCreate, session(agent={"instructions": "x"}), "agent.model"),
    (SessionCreate, session(agent=None), "agent"),
    (SessionCreate, session(agent={"model": "m", "name": "clerk"}), "agent.name"),
    (SessionCreate, session(agent_id=""), "agent_id"),
    (SessionCreate, session(agent_id="a" * 65), "agent_id"),
    (SessionCreate, {"agent_id": "agt_a", "input": "Hi"}, "environment"),
    (SessionCreate, session(environment=None), "environment"),
    (SessionCreate, session(environment={"type": "moon"}), "environment.type"),
    (SessionCreate, session(environment={"type": "none", "id": "x"}), "environment.id"),
    (SessionCreate, session(environment={"type": "self_hosted"}), "environment.workspace_directory"),
    (SessionCreate, session(stream="yes"), "stream"),
    (SessionCreate, session(stream=1), "stream"),
    (SessionCreate, session(stream_options={}), "stream_options"),
    (SessionCreate, session(stream=False, stream_options={}), "stream_options"),
    (SessionCreate, session(stream=True, stream_options=None), "stream_options"),
    (SessionCreate, session(review=None), "review"),
    (SessionCreate, session(review="auto"), "review"),
    (
        SessionCreate,
        session(review="auto_review", environment=hosted(environment_id="env_a")),
        "review",
    ),
    (SessionCreate, session(prompt_cache_options={"ttl": "1h"}), "prompt_cache_options.ttl"),
    (SessionCreate, session(vault_ids=[f"v{n}" for n in range(11)]), "vault_ids"),
    (SessionCreate, session(vault_ids=[1]), "vault_ids[0]"),
    (SessionCreate, session(input=None), "input"),
    (SessionCreate, session(input=[]), "input"),
    (SessionCreate, session(input=""), "input"),
    (SessionCreate, session(input=5), "input"),
    (SessionCreate, session(input={}), "input"),
    (SessionCreate, session(input="x" * ((1 << 20) + 1)), "input"),
    (SessionCreate, {"agent": {"model": "m"}, "environment": HOSTED, "stream": True}, "input"),
    (SessionUpdate, {"agent": None}, "agent"),
    (SessionUpdate, {"agent": {"model": None}}, "agent.model"),
    (SessionUpdate, {"agent": {"reasoning": None}}, "agent.reasoning"),
    (SessionUpdate, {"agent": {"reasoning": {"summary": "auto"}}}, "agent.reasoning.summary"),
    (SessionUpdate, {"agent": {"instructions": "x"}}, "agent.instructions"),
    (SessionUpdate, {"agent": {"tools": [FUNCTION, FUNCTION]}}, "agent.tools[1].name"),
    (SessionUpdate, {"environment": NONE}, "environment"),
    (SessionUpdate, {"review": None}, "review"),
]

INPUTS: list[Case] = [
    (EventBatch, {}, "events"),
    (EventBatch, {"events": None}, "events"),
    (EventBatch, {"events": {}}, "events"),
    (EventBatch, {"events": [{"type": "agent.session.input.cancel"}] * 65}, "events"),
    (EventBatch, {"events": ["x"]}, "events[0]"),
    (EventBatch, {"events": [{"type": "tool_result"}]}, "events[0].type"),
    (
        EventBatch,
        {"events": [{"type": "agent.session.input.cancel", "turn_id": "t"}]},
        "events[0].turn_id",
    ),
    (EventBatch, messages(), "events[0].input"),
    (EventBatch, {"events": [{"type": "agent.session.input.message", "input": "x"}]}, "events[0].input"),
    (EventBatch, messages({**MESSAGE, "role": "system"}), "events[0].input[0].role"),
    (EventBatch, messages({"content": [TEXT]}), "events[0].input[0].role"),
    (EventBatch, messages({**MESSAGE, "type": "item"}), "events[0].input[0].type"),
    (EventBatch, messages({**MESSAGE, "user": 1}), "events[0].input[0].user"),
    (EventBatch, messages({**MESSAGE, "content": "x"}), "events[0].input[0].content"),
    (EventBatch, messages({**MESSAGE, "content": []}), "events[0].input[0].content"),
    (EventBatch, messages({**MESSAGE, "content": [{**TEXT, "text": ""}]}), "events[0].input[0].content"),
    (
        EventBatch,
        messages({**MESSAGE, "content": [{"type": "input_file"}]}),
        "events[0].input[0].content[0].type",
    ),
    (EventBatch, messages({**MESSAGE, "content": [{"text": "x"}]}), "events[0].input[0].content[0].type"),
    (
        EventBatch,
        messages({**MESSAGE, "content": [TEXT, {**TEXT, "text": "ä" * (1 << 19) + "x"}]}),
        "events[0].input[0].content[1].text",
    ),
    (
        EventBatch,
        messages({**MESSAGE, "content": [image("https://a.org/x.png")] * 21}),
        "events[0].input[0].content",
    ),
    *(
        (
            EventBatch,
            messages({**MESSAGE, "content": [image(url)]}),
            "events[0].input[0].content[0].image_url",
        )
        for url in (
            "",
            "cat.png",
            "ftp://a.org/x.png",
            "https://",
            "https://a.org/x y",
            "https://[::1",
            "data:text/plain;base64,AA==",
            "data:image/png,AA==",
            "data:image/png;base64,",
            "data:image/png;base64,A",
            "data:image/png;base64,A-_=",
        )
    ),
    *((EventBatch, result(**{name: ""}), f"events[0].{name}") for name in ("turn_id", "call_id", "success")),
    (EventBatch, result(success=1), "events[0].success"),
    (EventBatch, result(output={"degrees": 7}), "events[0].output"),
    (EventBatch, result(output=7), "events[0].output"),
    (EventBatch, result(output=["7"]), "events[0].output[0]"),
    (
        EventBatch,
        result(output=[{"type": "output_text", "text": "7"}]),
        "events[0].output[0].type",
    ),
    (EventBatch, result(output=[{**TEXT, "text": 7}]), "events[0].output[0].text"),
    (EventBatch, result(output="x" * ((16 << 20) + 1)), "events[0].output"),
    (
        EventBatch,
        result(output=[{**TEXT, "text": "x" * (8 << 20)}, {**TEXT, "text": "x" * ((8 << 20) + 1)}]),
        "events[0].output",
    ),
    (EventBatch, result(output=[image("https://a.org/x.png")] * 21), "events[0].output"),
    (EventBatch, result(success=False, error="x" * ((16 << 20) + 1)), "events[0].error"),
    (EventBatch, result(error={}), "events[0].error"),
    (EventBatch, browser(type="browser_authentication"), "events[0].response.action"),
    (
        EventBatch,
        browser(type="browser_authentication", action="skip"),
        "events[0].response.action",
    ),
    (EventBatch, browser(type="captcha"), "events[0].response.type"),
    (EventBatch, browser(type="browser_origin_access", decision="yes"), "events[0].response.decision"),
    (
        EventBatch,
        browser(type="browser_authentication", action="cancel", fields=[]),
        "events[0].response.fields",
    ),
    *(
        (
            EventBatch,
            browser(type="browser_authentication", action="submit", fields=fields),
            f"events[0].response.fields{below}",
        )
        for fields, below in (
            ([{"field_id": f"f{n}", "value": ""} for n in range(7)], ""),
            ([{"field_id": "a", "value": "x" * 16_385}], "[0].value"),
            ([{"field_id": "a", "value": ""}, {"field_id": "a", "value": ""}], "[1].field_id"),
            ([{"field_id": f"f{n}", "value": "\\" * 16_000} for n in range(6)], ""),
        )
    ),
]

ENVIRONMENTS: list[Case] = [
    *(
        (SessionCreate, sandbox(environment_id="env_a", **{name: value}), f"environment.{name}")
        for name, value in (
            ("environment_template_id", "envtmpl_a"),
            ("container_size", "small"),
            ("env", {}),
            ("files", []),
            ("network", {"access": "enabled"}),
            ("packages", {}),
            ("setup_commands", []),
            ("skills", []),
            ("plugins", []),
            ("capability_directories", []),
            ("desktop", {"enabled": False}),
        )
    ),
    (SessionCreate, sandbox(environment_template_id="e" * 65), "environment.environment_template_id"),
    (SessionCreate, sandbox(container_size=None), "environment.container_size"),
    *(
        (SessionCreate, sandbox(env={name: "x"}), f"environment.env.{name}")
        for name in ("PATH", "OPENAI_API_KEY", "CODEX_HOME")
    ),
    (SessionCreate, sandbox(env={"a b": "x"}), "environment.env"),
    *(
        (SessionCreate, sandbox(files=[file(path)]), "environment.files[0].path")
        for path in (
            "",
            "a.txt",
            "/etc/passwd",
            "/workspace",
            "/workspace/",
            "/workspace/a/",
            "/workspace//a",
            "/workspace/./a",
            "/workspace/../etc/passwd",
            "/workspace/a\\b",
            "/workspace/a\x00b",
            "/workspace/.codex/config.toml",
            "/workspace/.codex",
            "/workspace/.managed-agents/x",
            "/workspace/outputs",
            "/workspace/" + "x" * 4096,
        )
    ),
    (
        SessionCreate,
        sandbox(files=[file("/workspace/a"), file("/workspace/a/b")]),
        "environment.files[1].path",
    ),
    (
        SessionCreate,
        sandbox(files=[file("/workspace/a/b/c"), file("/workspace/a")]),
        "environment.files[1].path",
    ),
    (SessionCreate, sandbox(files=[file("/workspace/a")] * 2), "environment.files[1].path"),
    (SessionCreate, sandbox(files=[file(f"/workspace/{n}") for n in range(51)]), "environment.files"),
    (SessionCreate, sandbox(files=[file("/workspace/a", data="%")]), "environment.files[0].data"),
    (
        SessionCreate,
        sandbox(files=[file("/workspace/a", data="A" * 6_990_512)]),
        "environment.files[0].data",
    ),
    (
        SessionCreate,
        sandbox(files=[file(f"/workspace/{n}", data="A" * (5 << 20)) for n in range(3)]),
        "environment.files",
    ),
    (
        SessionCreate,
        sandbox(files=[{"type": "file_id", "path": "/workspace/a"}]),
        "environment.files[0].file_id",
    ),
    (
        SessionCreate,
        sandbox(network={"access": "enabled", "allowed_domains": ["a.org"]}),
        "environment.network.allowed_domains",
    ),
    (
        SessionCreate,
        sandbox(network={"access": "disabled", "blocked_domains": ["a.org"]}),
        "environment.network.blocked_domains",
    ),
    (
        SessionCreate,
        sandbox(network={"access": "restricted", "allowed_domains": ["a.org"], "blocked_domains": ["b.org"]}),
        "environment.network.blocked_domains",
    ),
    (
        SessionCreate,
        sandbox(network={"access": "restricted", "allowed_domains": []}),
        "environment.network.allowed_domains",
    ),
    *(
        (
            SessionCreate,
            sandbox(network={"access": "restricted", "allowed_domains": ["a.org", host]}),
            "environment.network.allowed_domains[1]",
        )
        for host in ("*.a.org", "https://a.org", "a.org:443", "a.org/x", "", "a..org")
    ),
    (
        SessionCreate,
        sandbox(network={"access": "restricted", "allowed_domains": ["a.org"] * 101}),
        "environment.network.allowed_domains",
    ),
    (
        SessionCreate,
        sandbox(setup_commands=[{"command": "x" * 65_537}]),
        "environment.setup_commands[0].command",
    ),
    (
        SessionCreate,
        sandbox(setup_commands=[{"command": "x", "cwd": "a"}]),
        "environment.setup_commands[0].cwd",
    ),
    (
        SessionCreate,
        sandbox(skills=[{"type": "skill_reference", "skill_id": "s", "version": "0"}]),
        "environment.skills[0].version",
    ),
    (
        SessionCreate,
        sandbox(skills=[{"type": "inline", "name": "n" * 65, "description": "", "source": ZIP}]),
        "environment.skills[0].name",
    ),
    (
        SessionCreate,
        sandbox(
            plugins=[
                {
                    "type": "inline",
                    "name": "n",
                    "description": "",
                    "source": {**ZIP, "media_type": "application/x-tar"},
                }
            ]
        ),
        "environment.plugins[0].source.media_type",
    ),
    (SessionCreate, sandbox(capability_directories=["/a", "/a"]), "environment.capability_directories[1]"),
    (SessionCreate, sandbox(capability_directories=["/a/.."]), "environment.capability_directories[0]"),
    (
        SessionCreate,
        sandbox(capability_directories=[f"/{n}" for n in range(33)]),
        "environment.capability_directories",
    ),
    (
        SessionCreate,
        session(environment={**SELF_HOSTED, "workspace_directory": "srv"}),
        "environment.workspace_directory",
    ),
    (SessionCreate, session(environment={**SELF_HOSTED, "env": {}}), "environment.env"),
    (EnvironmentCreate, {"environment": hosted(container_size="small")}, "environment.container_size"),
    (EnvironmentCreate, {"environment": hosted(environment_id="env_a")}, "environment.environment_id"),
    (EnvironmentCreate, {"environment": NONE}, "environment.type"),
    (TemplateCreate, {"environment_template_id": "x"}, "environment_template_id"),
    (FileParamsAdapter, file("/etc/passwd"), "path"),
    (FileParamsAdapter, {"path": "/workspace/a"}, "type"),
    (FileParamsAdapter, {"type": "file_id", "file_id": "f" * 257, "path": "/workspace/a"}, "file_id"),
]

LATER: list[Case] = [
    (VaultCreate, {"name": None}, "name"),
    (VaultCreate, {"name": "  "}, "name"),
    (VaultCreate, {"name": "ä" * 129}, "name"),
    (VaultUpdate, {"metadata": None}, "metadata"),
    (CredentialCreate, credential(type="static_bearer", token="t"), "auth.mcp_server_url"),
    (CredentialCreate, credential(**{**OAUTH, "mcp_server_url": "http://a.org"}), "auth.mcp_server_url"),
    (CredentialCreate, credential(**{**OAUTH, "expires_at": "tomorrow"}), "auth.expires_at"),
    (
        CredentialCreate,
        credential(**{**OAUTH, "refresh": {**OAUTH["refresh"], "token_endpoint_auth": {"type": "jwt"}}}),
        "auth.refresh.token_endpoint_auth.type",
    ),
    *(
        (CredentialCreate, credential(**{**VARIABLE, "secret_name": name}), "auth.secret_name")
        for name in ("1A", "A-B", "", "CODEX_X", "https_proxy", "SSL_CERT_FILE")
    ),
    *(
        (CredentialCreate, credential(**{**VARIABLE, "secret_value": value}), "auth.secret_value")
        for value in ("", "a\rb", "a\nb", "a\x00b")
    ),
    *(
        (
            CredentialCreate,
            credential(**{**VARIABLE, "networking": {"type": "limited", "allowed_hosts": hosts}}),
            f"auth.networking.allowed_hosts{below}",
        )
        for hosts, below in (
            ([], ""),
            ([f"h{n}.org" for n in range(17)], ""),
            (["a.org", "A.org"], ""),
            (["::1"], "[0]"),
            (["*.org"], "[0]"),
            (["1.2.3"], "[0]"),
        )
    ),
    (CredentialUpdate, {"name": "new"}, "name"),
    (CredentialUpdate, {"auth": None}, "auth"),
    (
        CredentialUpdate,
        {"auth": {"type": "mcp_oauth", "refresh": {"token_endpoint_auth": {"type": "none"}}}},
        "auth.refresh.token_endpoint_auth.type",
    ),
    (AutomationCreateAdapter, {**PERIODIC, "run_at": 1}, "run_at"),
    (AutomationCreateAdapter, {**ONCE, "expression": "* * * * *"}, "expression"),
    (AutomationCreateAdapter, {**PERIODIC, "expression": "* * * *"}, "expression"),
    (AutomationCreateAdapter, {**PERIODIC, "timezone": "Mars/Base"}, "timezone"),
    (AutomationCreateAdapter, {**PERIODIC, "timezone": "../etc"}, "timezone"),
    (AutomationCreateAdapter, {**ONCE, "run_at": "soon"}, "run_at"),
    (
        AutomationCreateAdapter,
        {**ONCE, "target": {**ONCE["target"], "agent": {"model": "m"}}},
        "target.agent_id",
    ),
    (
        AutomationCreateAdapter,
        {**ONCE, "target": {key: value for key, value in ONCE["target"].items() if key != "agent_id"}},
        "target.agent",
    ),
    (AutomationCreateAdapter, {**ONCE, "target": {**ONCE["target"], "input": []}}, "target.input"),
    (AutomationUpdate, {"type": "once"}, "type"),
    (
        WebhookEndpointCreate,
        {"name": "a", "url": "http://a.org", "event_types": ["agent.session.idle"]},
        "url",
    ),
    (
        WebhookEndpointCreate,
        {"name": "a", "url": "https://a.org", "event_types": ["agent.session.deleted"]},
        "event_types[0]",
    ),
    (WebhookEndpointCreate, {"name": "a", "url": "https://a.org", "event_types": []}, "event_types"),
    (WebhookEndpointUpdate, {"url": None}, "url"),
]


def _ids(cases: list[Case]) -> list[Any]:
    return [pytest.param(*case, id=f"{case[2]}-{index}") for index, case in enumerate(cases)]


@pytest.mark.parametrize(
    ("kind", "body", "param"),
    _ids([*AGENTS, *TOOLS, *COMBINATIONS, *SESSIONS, *INPUTS, *ENVIRONMENTS, *LATER]),
)
def test_every_rule_refuses_with_the_place_of_the_fault(kind: Any, body: Any, param: str) -> None:
    adapter = kind if isinstance(kind, TypeAdapter) else TypeAdapter(kind)
    with pytest.raises(InvalidRequest) as refusal:
        validate_as(adapter, body)
    error = refusal.value
    assert (error.status, error.type, error.code) == (400, *("invalid_request_error",) * 2)
    assert error.param == param, error.message
    assert "{" not in error.message.replace('{"type": "tool_search"}', "")
    assert len(error.message) < 600


def test_tools_of_a_saved_agent_are_checked_against_the_environment_of_the_session() -> None:
    tools = TypeAdapter(ToolList).validate_python([FUNCTION, mcp(STDIO)])
    environments: TypeAdapter[EnvironmentParams] = TypeAdapter(EnvironmentParams)
    check_combination(tools, environments.validate_python(SELF_HOSTED))
    with pytest.raises(InvalidRequest) as refusal:
        check_combination(tools, environments.validate_python(NONE), param="agent_id.tools")
    assert refusal.value.param == "agent_id.tools[1].transport"
    assert refusal.value.param in refusal.value.message


def test_a_desktop_may_come_from_a_template_or_an_existing_environment() -> None:
    for known in ({"environment_template_id": "envtmpl_a"}, {"environment_id": "env_a"}):
        body = session({"type": "computer_use"}, environment=hosted(**known))
        validate_as(TypeAdapter(SessionCreate), body)
