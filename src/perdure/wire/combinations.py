"""What an agent's tools need from the environment of the session."""

from __future__ import annotations

from collections.abc import Sequence

from perdure.wire.environments import EnvironmentParams, HostedEnvironmentParams
from perdure.wire.errors import InvalidRequest
from perdure.wire.tools import HttpTransport, McpTool, StdioTransport, Tool


def check_combination(
    tools: Sequence[Tool], environment: EnvironmentParams, *, param: str = "agent.tools"
) -> None:
    """Refuse tools that cannot work in the environment.

    Call it with the resolved tools when a session takes them from a saved agent; a request that
    carries its own tools has been checked already.

    Raises:
        InvalidRequest: with a param below `param`.
    """
    fault = combination_fault(tools, environment)
    if fault is not None:
        index, member, message = fault
        path = f"{param}[{index}].{member}"
        raise InvalidRequest(message.replace("{param}", path), param=path)


def combination_fault(tools: Sequence[Tool], environment: EnvironmentParams) -> tuple[int, str, str] | None:
    """The first tool that cannot work: its index, the member at fault, and a message with `{param}`."""
    for index, tool in enumerate(tools):
        if tool.type == "computer_use" and not _may_have_desktop(environment):
            return (
                index,
                "type",
                "Invalid '{param}': computer_use needs an openai_hosted environment with desktop.enabled set "
                "to true.",
            )
        if isinstance(tool, McpTool):
            fault = _mcp_fault(tool, environment)
            if fault is not None:
                return (index, *fault)
    return None


def _may_have_desktop(environment: EnvironmentParams) -> bool:
    if not isinstance(environment, HostedEnvironmentParams):
        return False
    if environment.desktop is not None:
        return environment.desktop.enabled
    # A template or an existing environment may enable it; that is known when it is looked up.
    return environment.environment_template_id is not None or environment.environment_id is not None


def _mcp_fault(tool: McpTool, environment: EnvironmentParams) -> tuple[str, str] | None:
    transport = tool.transport
    match transport:
        case StdioTransport():
            if environment.type == "none":
                return (
                    "transport",
                    "Invalid '{param}': a stdio MCP server runs in an environment, but the session has none.",
                )
            if transport.env and environment.type == "self_hosted":
                return (
                    "transport.env",
                    "Invalid '{param}': self_hosted environments take no inline variables. Name variables of "
                    "the environment in env_vars.",
                )
            if (
                isinstance(environment, HostedEnvironmentParams)
                and environment.network is not None
                and environment.network.access == "disabled"
            ):
                return (
                    "transport",
                    "Invalid '{param}': a stdio MCP server in a hosted environment needs its network "
                    "enabled.",
                )
        case HttpTransport():
            if tool.connection_origin == "environment" and environment.type == "none":
                return (
                    "connection_origin",
                    "Invalid '{param}': the session has no environment to connect from. Use 'service'.",
                )
    return None
