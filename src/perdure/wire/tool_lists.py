"""Lists of tools: the rules that hold between tools, and how a list is shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, assert_never

from pydantic import AfterValidator, Field
from pydantic_core import to_json

from perdure.wire.object_schema import check_object_schema
from perdure.wire.shapes import refusal
from perdure.wire.tool_resources import (
    AutomationsResource,
    ComputerUseResource,
    FunctionToolResource,
    HttpTransportResource,
    McpToolResource,
    ProgrammaticToolCallingResource,
    SavedHttpTransportResource,
    SavedMcpToolResource,
    SavedToolResource,
    SearchLocationResource,
    SessionToolResource,
    StdioTransportResource,
    ToolSearchResource,
    WebSearchResource,
)
from perdure.wire.tools import (
    AutomationsTool,
    ComputerUseTool,
    FunctionTool,
    HttpTransport,
    McpTool,
    ProgrammaticToolCallingTool,
    SavedHttpTransport,
    SavedMcpTool,
    SavedTool,
    SearchLocation,
    StdioTransport,
    Tool,
    ToolSearchTool,
    WebSearchTool,
)

MAX_TOOLS_BYTES = 3 << 20


def tools_bytes(tools: Sequence[Tool | SavedTool]) -> int:
    """The size of the tools as compact UTF-8 JSON."""
    return len(to_json([tool.model_dump(exclude_unset=True, by_alias=True) for tool in tools]))


def _check_list(tools: Sequence[Tool | SavedTool]) -> None:
    size = tools_bytes(tools)
    if size > MAX_TOOLS_BYTES:
        raise refusal(
            f"Invalid '{{param}}': the tools are too large. Expected at most {MAX_TOOLS_BYTES:,} bytes of "
            f"compact JSON, but got {size:,} instead."
        )
    names: set[str] = set()
    labels: set[str] = set()
    singles: set[str] = set()
    can_search = any(tool.type == "tool_search" for tool in tools)
    for index, tool in enumerate(tools):
        match tool:
            case FunctionTool():
                _check_function(tool, index, names, can_search=can_search)
            case McpTool() | SavedMcpTool():
                _check_mcp(tool, index, labels)
            case _:
                if tool.type in singles:
                    raise refusal(
                        f"Duplicate tool '{tool.type}'. An agent can have it only once.", index, "type"
                    )
                singles.add(tool.type)


def _check_function(tool: FunctionTool, index: int, names: set[str], *, can_search: bool) -> None:
    if tool.name in names:
        raise refusal(
            f"Duplicate function name '{tool.name[:64]}'. Every function of an agent needs its own name.",
            index,
            "name",
        )
    names.add(tool.name)
    check_object_schema(tool.parameters, index, "parameters", combinators=True)
    if tool.defer_loading and not can_search:
        raise refusal(
            "Invalid '{param}': a deferred function can only be found with the tool_search tool. Set "
            'defer_loading to false, or add {"type": "tool_search"} to the tools where it is served.',
            index,
            "defer_loading",
        )


def _check_mcp(tool: McpTool | SavedMcpTool, index: int, labels: set[str]) -> None:
    if tool.server_label in labels:
        raise refusal(
            f"Duplicate MCP server label '{tool.server_label[:64]}'. Every MCP server of an agent needs its "
            "own.",
            index,
            "server_label",
        )
    labels.add(tool.server_label)
    if tool.transport.type == "stdio" and tool.connection_origin is not None:
        raise refusal(
            "Invalid '{param}': a stdio server always runs in the environment. Leave connection_origin out.",
            index,
            "connection_origin",
        )
    if tool.credential_id is None:
        return
    if tool.transport.type == "stdio" or tool.connection_origin == "environment":
        raise refusal(
            "Invalid '{param}': vault credentials apply to HTTP servers reached from the service only.",
            index,
            "credential_id",
        )
    if isinstance(tool.transport, HttpTransport) and tool.transport.authorization is not None:
        raise refusal(
            "Invalid '{param}': the server has an inline authorization and a vault credential. Give one of "
            "them.",
            index,
            "credential_id",
        )


def _check_tools(tools: list[Tool]) -> list[Tool]:
    _check_list(tools)
    return tools


def _check_saved_tools(tools: list[SavedTool]) -> list[SavedTool]:
    _check_list(tools)
    return tools


ToolList = Annotated[list[Tool], Field(fail_fast=True), AfterValidator(_check_tools)]
SavedToolList = Annotated[list[SavedTool], Field(fail_fast=True), AfterValidator(_check_saved_tools)]


def full_tools(tools: Sequence[Tool | SavedTool]) -> list[Tool]:
    """A saved agent's tools in the form in which settings keep them."""
    return [_full_mcp(tool) if isinstance(tool, SavedMcpTool) else tool for tool in tools]


def _full_mcp(tool: SavedMcpTool) -> McpTool:
    transport = tool.transport.model_dump()
    full = HttpTransport if isinstance(tool.transport, SavedHttpTransport) else StdioTransport
    fields = {name: getattr(tool, name) for name in SavedMcpTool.model_fields}
    return McpTool(**{**fields, "transport": full(**transport)})


def session_tools(tools: Sequence[Tool]) -> list[SessionToolResource]:
    """The tools as a session shows them: no secrets, no headers, and no `tool_search`."""
    shown: list[SessionToolResource] = []
    for tool in tools:
        match tool:
            case ToolSearchTool():
                continue
            case McpTool():
                transport = tool.transport
                shown.append(
                    McpToolResource(
                        **_mcp_fields(tool),
                        transport=HttpTransportResource(server_url=transport.server_url)
                        if isinstance(transport, HttpTransport)
                        else _stdio(transport),
                    )
                )
            case _:
                shown.append(_plain(tool))
    return shown


def saved_tools(tools: Sequence[Tool]) -> list[SavedToolResource]:
    """The tools as a saved agent shows them."""
    shown: list[SavedToolResource] = []
    for tool in tools:
        match tool:
            case ToolSearchTool():
                shown.append(ToolSearchResource())
            case McpTool():
                transport = tool.transport
                shown.append(
                    SavedMcpToolResource(
                        **_mcp_fields(tool),
                        transport=SavedHttpTransportResource(
                            server_url=transport.server_url, headers=transport.headers or {}
                        )
                        if isinstance(transport, HttpTransport)
                        else _stdio(transport),
                    )
                )
            case _:
                shown.append(_plain(tool))
    return shown


_PlainTool = FunctionTool | ProgrammaticToolCallingTool | WebSearchTool | ComputerUseTool | AutomationsTool
_PlainResource = (
    FunctionToolResource
    | ProgrammaticToolCallingResource
    | WebSearchResource
    | ComputerUseResource
    | AutomationsResource
)


def _plain(tool: _PlainTool) -> _PlainResource:
    match tool:
        case FunctionTool():
            return FunctionToolResource(
                name=tool.name,
                description=tool.description,
                parameters=tool.parameters,
                defer_loading=tool.defer_loading,
                async_=tool.async_,
            )
        case ProgrammaticToolCallingTool():
            return ProgrammaticToolCallingResource(enabled=tool.enabled)
        case WebSearchTool():
            return WebSearchResource(
                mode=tool.mode or "live",
                context_size=tool.context_size or "medium",
                allowed_domains=tool.allowed_domains,
                location=_location(tool.location),
            )
        case ComputerUseTool():
            return ComputerUseResource(include_screenshots=tool.include_screenshots)
        case AutomationsTool():
            return AutomationsResource()
        case _:
            assert_never(tool)


def _mcp_fields(tool: McpTool) -> dict[str, object]:
    default = "environment" if tool.transport.type == "stdio" else "service"
    return {
        "server_label": tool.server_label,
        "allowed_tools": tool.allowed_tools,
        "connection_origin": tool.connection_origin or default,
        "credential_id": tool.credential_id,
        "request_metadata": tool.request_metadata or {},
        "required": tool.required,
    }


def _stdio(transport: StdioTransport) -> StdioTransportResource:
    return StdioTransportResource(
        command=transport.command,
        args=transport.args or [],
        cwd=transport.cwd,
        env_vars=transport.env_vars or [],
    )


def _location(location: SearchLocation | None) -> SearchLocationResource | None:
    return None if location is None else SearchLocationResource(**location.model_dump())
