"""Tools as clients send them: of a session (with secrets) and of a saved agent (without)."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from perdure.wire.shapes import Request, refusal
from perdure.wire.tool_resources import ConnectionOrigin, ContextSize, SearchMode

MAX_NAME = 128
MAX_SEARCH_DOMAINS = 100

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}")
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def _check_name(name: str) -> str:
    if not 1 <= len(name) <= MAX_NAME or _CONTROL.search(name):
        raise refusal(f"Invalid '{{param}}': expected 1 to {MAX_NAME} characters without control characters.")
    return name


def _check_server_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        host, user = parts.hostname, parts.username
        _ = parts.port
    except ValueError:
        host, user = None, None
    if not host or parts.scheme.lower() not in ("http", "https") or re.search(r"[\s\x00-\x1f]", url):
        raise refusal("Invalid '{param}': expected an http or https URL.")
    if user is not None:
        raise refusal(
            "Invalid '{param}': the URL must not carry credentials, because it is shown again. Use "
            "'authorization' or a vault credential."
        )
    return url


def _check_headers(headers: dict[str, str]) -> dict[str, str]:
    seen: set[str] = set()
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            raise refusal("Invalid '{param}': a header name has characters that HTTP does not permit.")
        if name.lower() in seen:
            raise refusal(f"Invalid '{{param}}': header '{name}' is given twice.")
        if re.search(r"[\r\n\x00]", value):
            raise refusal("Invalid '{param}': a header value must not contain line breaks or NUL.", name)
        seen.add(name.lower())
    return headers


def _check_directory(path: str) -> str:
    if not path.startswith("/") or "\x00" in path:
        raise refusal("Invalid '{param}': expected an absolute path, starting with '/'.")
    return path


def _check_variable_name(name: str) -> str:
    if not _VARIABLE_NAME.fullmatch(name):
        raise refusal("Invalid '{param}': expected the name of an environment variable.")
    return name


def _check_variables(variables: dict[str, str]) -> dict[str, str]:
    for name, value in variables.items():
        if not _VARIABLE_NAME.fullmatch(name):
            raise refusal("Invalid '{param}': expected names of environment variables as keys.")
        if "\x00" in value:
            raise refusal("Invalid '{param}': a value must not contain NUL.", name)
    return variables


Name = Annotated[str, AfterValidator(_check_name)]
ServerUrl = Annotated[str, AfterValidator(_check_server_url)]
Headers = Annotated[dict[str, str], AfterValidator(_check_headers)]
Directory = Annotated[str, Field(max_length=4096), AfterValidator(_check_directory)]
VariableName = Annotated[str, AfterValidator(_check_variable_name)]
Variables = Annotated[dict[str, str], AfterValidator(_check_variables)]
Argument = Annotated[str, Field(max_length=65_536)]


class FunctionTool(Request):
    """A function the application runs."""

    type: Literal["function"]
    name: Name
    description: str = ""
    parameters: dict[str, Any]
    defer_loading: bool = False
    async_: Annotated[bool, Field(alias="async")] = False


class ToolSearchTool(Request):
    """Lets the model find functions that were deferred."""

    type: Literal["tool_search"]


class ProgrammaticToolCallingTool(Request):
    type: Literal["programmatic_tool_calling"]
    enabled: bool = True


class SavedHttpTransport(Request):
    type: Literal["http"]
    server_url: ServerUrl
    headers: Headers | None = None

    @model_validator(mode="after")
    def _check_secrets(self) -> SavedHttpTransport:
        for name in self.headers or {}:
            if name.lower() in ("authorization", "proxy-authorization", "cookie"):
                raise refusal(
                    "Invalid '{param}': a saved agent stores no secrets. Give this header to the session, or "
                    "use a vault credential.",
                    "headers",
                    name,
                )
        return self


class HttpTransport(Request):
    type: Literal["http"]
    server_url: ServerUrl
    authorization: Annotated[str | None, Field(repr=False)] = None
    headers: Annotated[Headers | None, Field(repr=False)] = None

    @model_validator(mode="after")
    def _check_one_authorization(self) -> HttpTransport:
        if self.authorization is not None:
            _check_authorization_at(self.authorization)
            if any(name.lower() == "authorization" for name in self.headers or {}):
                raise refusal(
                    "Invalid '{param}': the Authorization header is given twice. Use 'authorization' only.",
                    "headers",
                )
        return self


class SavedStdioTransport(Request):
    type: Literal["stdio"]
    command: Annotated[str, Field(min_length=1, max_length=4096)]
    cwd: Directory
    args: list[Argument] | None = None
    env_vars: list[VariableName] | None = None


class StdioTransport(SavedStdioTransport):
    env: Annotated[Variables | None, Field(repr=False)] = None


class _Mcp(Request):
    type: Literal["mcp"]
    server_label: Name
    allowed_tools: list[str] | None = None
    connection_origin: ConnectionOrigin | None = None
    credential_id: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    request_metadata: dict[str, Any] | None = None
    required: bool = False


class SavedMcpTool(_Mcp):
    transport: Annotated[SavedHttpTransport | SavedStdioTransport, Field(discriminator="type")]


class McpTool(_Mcp):
    """An MCP server."""

    transport: Annotated[HttpTransport | StdioTransport, Field(discriminator="type")]


class SearchLocation(Request):
    city: str | None = None
    country: str | None = None
    region: str | None = None
    timezone: str | None = None


class WebSearchTool(Request):
    type: Literal["web_search"]
    mode: SearchMode | None = None
    context_size: ContextSize | None = None
    allowed_domains: Annotated[list[str], Field(max_length=MAX_SEARCH_DOMAINS)] | None = None
    location: SearchLocation | None = None


class ComputerUseTool(Request):
    type: Literal["computer_use"]
    include_screenshots: bool = False


class AutomationsTool(Request):
    type: Literal["automations"]


_Plain = (
    FunctionTool
    | ToolSearchTool
    | ProgrammaticToolCallingTool
    | WebSearchTool
    | ComputerUseTool
    | AutomationsTool
)
Tool = Annotated[_Plain | McpTool, Field(discriminator="type")]
SavedTool = Annotated[_Plain | SavedMcpTool, Field(discriminator="type")]


def _check_authorization_at(value: str) -> None:
    if not value or re.search(r"[\r\n\x00]", value):
        raise refusal(
            "Invalid '{param}': expected a non-empty header value without line breaks.", "authorization"
        )
