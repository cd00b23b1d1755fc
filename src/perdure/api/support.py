"""What this version can run: the rest of the protocol is understood, and refused clearly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from perdure.api.services import Services
from perdure.schema.bounds import check_schema
from perdure.schema.refusals import SchemaRefused
from perdure.wire.agent_options import JsonSchemaFormat, JsonSchemaFormatParams, Text, TextParams
from perdure.wire.agents import AgentSettings
from perdure.wire.combinations import check_combination
from perdure.wire.errors import InvalidRequest, ModelNotFound, NotFound
from perdure.wire.sessions import SessionCreate
from perdure.wire.tools import FunctionTool, WebSearchTool

ENVIRONMENTS = ("none",)
TOOLS = ("function",)


def check_model(services: Services, model: str, param: str) -> None:
    """Raises ModelNotFound when no provider serves the name."""
    if not services.registry.knows(model):
        raise ModelNotFound(model, param)


def check_schemas(tools: Sequence[Any] | None, text: Text | TextParams | None, prefix: str) -> None:
    """Refuse schemas that no call could be held against, or that were made to exhaust a validator.

    Raises:
        InvalidRequest: `param` names the schema, the message the place in it.
    """
    for index, tool in enumerate(tools or ()):
        if isinstance(tool, FunctionTool):
            _check_schema(tool.parameters, f"{prefix}tools[{index}].parameters")
    shape = None if text is None else text.format
    if isinstance(shape, JsonSchemaFormat | JsonSchemaFormatParams):
        _check_schema(shape.schema_, f"{prefix}text.format.schema")


def _check_schema(schema: Mapping[str, Any], param: str) -> None:
    try:
        check_schema(schema)
    except SchemaRefused as error:
        message = f"Invalid '{param}': {error.reason} (at {error.path})."
        raise InvalidRequest(message, param=param) from error


def check_session(services: Services, body: SessionCreate, settings: AgentSettings) -> None:
    """Refuse a session that this version could not run.

    Raises:
        ModelNotFound, InvalidRequest, NotFound: what it needs is not here; `param` names it.
    """
    check_model(services, settings.model, "agent.model" if body.agent_id is None else "agent_id")
    kind = body.environment.type
    if kind not in ENVIRONMENTS:
        raise InvalidRequest(
            f'Environments of type \'{kind}\' are not supported by this server yet. Use {{"type": "none"}}.',
            param="environment.type",
        )
    check_combination(settings.tools, body.environment)
    check_tools(settings.tools, "agent.tools")
    check_schemas(settings.tools, settings.text, "agent.")
    if body.vault_ids:
        raise NotFound(f"No vault found with id '{body.vault_ids[0]}'.", param="vault_ids")
    check_review(body.review)


def check_tools(tools: Sequence[Any], param: str) -> None:
    """Refuse tools that cannot run here; a disabled web search is the same as none."""
    for index, tool in enumerate(tools):
        if isinstance(tool, FunctionTool):
            continue
        if isinstance(tool, WebSearchTool) and tool.mode == "disabled":
            continue
        raise InvalidRequest(
            f"Tools of type '{tool.type}' are not supported by this server yet. Use function tools.",
            param=f"{param}[{index}].type",
        )


def check_review(review: str | None) -> None:
    """Refuse automatic review: no reviewer is configured, and ignoring it would be unsafe."""
    if review == "auto_review":
        raise InvalidRequest(
            "This server has no reviewer, so 'auto_review' is not available. Use 'none'.", param="review"
        )
