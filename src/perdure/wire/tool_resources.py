"""Tools as the server answers them: of a session, and of a saved agent."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from perdure.wire.shapes import Resource

ConnectionOrigin = Literal["service", "environment"]
SearchMode = Literal["disabled", "cached", "live"]
ContextSize = Literal["low", "medium", "high"]


class FunctionToolResource(Resource):
    type: Literal["function"] = "function"
    name: str
    description: str
    parameters: dict[str, Any]
    defer_loading: bool
    async_: bool = Field(alias="async", default=False)


class ToolSearchResource(Resource):
    """Shown by saved agents only; sessions leave it out."""

    type: Literal["tool_search"] = "tool_search"


class ProgrammaticToolCallingResource(Resource):
    type: Literal["programmatic_tool_calling"] = "programmatic_tool_calling"
    enabled: bool


class StdioTransportResource(Resource):
    type: Literal["stdio"] = "stdio"
    command: str
    args: list[str]
    cwd: str
    env_vars: list[str]


class HttpTransportResource(Resource):
    type: Literal["http"] = "http"
    server_url: str


class SavedHttpTransportResource(Resource):
    """Headers of a saved agent are declared non-secret, so they are shown."""

    type: Literal["http"] = "http"
    server_url: str
    headers: dict[str, str]


class _McpTool(Resource):
    type: Literal["mcp"] = "mcp"
    server_label: str
    allowed_tools: list[str] | None = None
    connection_origin: ConnectionOrigin
    credential_id: str | None = None
    request_metadata: dict[str, Any]
    required: bool


class McpToolResource(_McpTool):
    transport: Annotated[HttpTransportResource | StdioTransportResource, Field(discriminator="type")]


class SavedMcpToolResource(_McpTool):
    transport: Annotated[SavedHttpTransportResource | StdioTransportResource, Field(discriminator="type")]


class SearchLocationResource(Resource):
    city: str | None = None
    country: str | None = None
    region: str | None = None
    timezone: str | None = None


class WebSearchResource(Resource):
    type: Literal["web_search"] = "web_search"
    mode: SearchMode
    context_size: ContextSize
    allowed_domains: list[str] | None = None
    location: SearchLocationResource | None = None


class ComputerUseResource(Resource):
    type: Literal["computer_use"] = "computer_use"
    include_screenshots: bool


class AutomationsResource(Resource):
    type: Literal["automations"] = "automations"


SessionToolResource = Annotated[
    FunctionToolResource
    | ProgrammaticToolCallingResource
    | McpToolResource
    | WebSearchResource
    | ComputerUseResource
    | AutomationsResource,
    Field(discriminator="type"),
]
SavedToolResource = Annotated[
    FunctionToolResource
    | ToolSearchResource
    | ProgrammaticToolCallingResource
    | SavedMcpToolResource
    | WebSearchResource
    | ComputerUseResource
    | AutomationsResource,
    Field(discriminator="type"),
]
