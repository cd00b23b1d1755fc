"""Required actions: what the application owes before a session can go on."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter

from perdure.wire.shapes import Resource

ActionKind = Literal[
    "function_call", "mcp_approval_request", "computer_use_approval_request", "environment_connection"
]


class FunctionCallAction(Resource):
    """Run a function and send its result."""

    type: Literal["function_call"] = "function_call"
    turn_id: str
    call_id: str
    name: str
    arguments: Any


class McpToolCall(Resource):
    """The MCP call somebody has to allow."""

    type: Literal["mcp_tool_call"] = "mcp_tool_call"
    server_label: str
    name: str | None = None
    arguments: Any = None
    message: str


class McpApprovalAction(Resource):
    """Approve, deny or dismiss an MCP tool call."""

    type: Literal["mcp_approval_request"] = "mcp_approval_request"
    turn_id: str
    request_id: str
    request: McpToolCall


class BrowserField(Resource):
    id: str
    label: str
    required: bool
    type: str


class BrowserOption(Resource):
    id: str
    label: str
    field_ids: list[str]


class BrowserAuthentication(Resource):
    """A sign-in form to render; `options` is empty for a plain form."""

    type: Literal["browser_authentication"] = "browser_authentication"
    fields: list[BrowserField]
    options: list[BrowserOption]
    credential_origin: str | None = None
    reason: str | None = None


class BrowserOriginAccess(Resource):
    """An origin the browser wants to visit."""

    type: Literal["browser_origin_access"] = "browser_origin_access"
    origin: str
    reason: str | None = None


class ComputerApprovalAction(Resource):
    """Answer a browser request."""

    type: Literal["computer_use_approval_request"] = "computer_use_approval_request"
    turn_id: str
    request_id: str
    request: Annotated[BrowserAuthentication | BrowserOriginAccess, Field(discriminator="type")]


class EnvironmentConnectionAction(Resource):
    """Connect an executor to the environment."""

    type: Literal["environment_connection"] = "environment_connection"
    environment_id: str


RequiredAction = Annotated[
    FunctionCallAction | McpApprovalAction | ComputerApprovalAction | EnvironmentConnectionAction,
    Field(discriminator="type"),
]
RequiredActionAdapter: TypeAdapter[RequiredAction] = TypeAdapter(RequiredAction)
