"""What this version can run: the rest of the protocol is understood, and refused clearly."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from typing import Any

from perdure.api.services import Services
from perdure.harness.coordination import RESERVED
from perdure.models.registry import UnknownModel
from perdure.schema.bounds import check_schema
from perdure.schema.refusals import SchemaRefused
from perdure.wire.agent_options import JsonSchemaFormat, JsonSchemaFormatParams, Text, TextParams
from perdure.wire.agents import AgentSettings
from perdure.wire.combinations import check_combination
from perdure.wire.errors import InvalidRequest, ModelNotFound, NotFound
from perdure.wire.jsontext import dumps
from perdure.wire.sessions import SessionCreate
from perdure.wire.tools import FunctionTool, WebSearchTool

ENVIRONMENTS = ("none",)
TOOLS = ("function",)


def check_model(
    services: Services, settings: AgentSettings, prefix: str, model_param: str | None = None
) -> None:
    """Refuse a model that no provider serves, and an effort or a tier that it is known not to have.

    Raises:
        ModelNotFound, InvalidRequest: `param` is below `prefix`.
    """
    try:
        capabilities = services.registry.resolve(settings.model).capabilities
    except UnknownModel:
        raise ModelNotFound(settings.model, model_param or f"{prefix}model") from None
    tier, tiers = settings.service_tier, capabilities.service_tiers
    if tiers is not None and tier not in tiers:
        param = f"{prefix}service_tier"
        raise InvalidRequest(
            f"Invalid '{param}': '{settings.model}' has no such tier. Supported: {', '.join(tiers)}.",
            param=param,
        )
    effort = settings.reasoning.effort
    if effort is not None and capabilities.efforts is not None and effort not in capabilities.efforts:
        param = f"{prefix}reasoning.effort"
        known = ", ".join(capabilities.efforts) or "none at all"
        raise InvalidRequest(
            f"Invalid '{param}': '{settings.model}' does not support this effort. Supported: {known}.",
            param=param,
        )


def check_names(settings: AgentSettings, given: Collection[str], prefix: str) -> None:
    """Refuse functions with the names of the calls that an agent with subagents has.

    Args:
        settings: those that the request leads to.
        given: the members of its agent: one of them is at fault, or else the saved agent.
        prefix: where they are in the body.

    Raises:
        InvalidRequest: with what to do.
    """
    if not settings.multi_agent.enabled:
        return
    for index, tool in enumerate(settings.tools):
        if not isinstance(tool, FunctionTool) or tool.name not in RESERVED:
            continue
        param = "agent_id"
        if "tools" in given:
            param = f"{prefix}tools[{index}].name"
        elif "multi_agent" in given:
            param = f"{prefix}multi_agent"
        raise InvalidRequest(
            f"Invalid '{param}': with multi_agent enabled, '{tool.name}' is the name of a call with which "
            "the agent coordinates its subagents. Rename the function, or disable multi_agent.",
            param=param,
        )


async def check_schemas(tools: Sequence[Any] | None, text: Text | TextParams | None, prefix: str) -> None:
    """Refuse schemas that no call could be held against, or that were made to exhaust a validator.

    Raises:
        InvalidRequest: `param` names the schema, the message the place in it.
    """
    schemas = [
        (tool.parameters, f"{prefix}tools[{index}].parameters")
        for index, tool in enumerate(tools or ())
        if isinstance(tool, FunctionTool)
    ]
    shape = None if text is None else text.format
    if isinstance(shape, JsonSchemaFormat | JsonSchemaFormatParams):
        schemas.append((shape.schema_, f"{prefix}text.format.schema"))
    unchecked = [(schema, param, _digest(schema)) for schema, param in schemas]
    unchecked = [each for each in unchecked if each[2] not in _accepted]
    if unchecked:
        # A large schema takes tens of milliseconds: the streams of others go on meanwhile.
        await asyncio.to_thread(_check_each, unchecked)


_accepted: dict[bytes, None] = {}
_ACCEPTED_KEPT = 16_384


def _digest(schema: Mapping[str, Any]) -> bytes:
    return sha256(dumps(schema)).digest()


def _check_each(schemas: Sequence[tuple[Mapping[str, Any], str, bytes]]) -> None:
    for schema, param, digest in schemas:
        try:
            check_schema(schema)
        except SchemaRefused as error:
            message = f"Invalid '{param}': {error.reason} (at {error.path})."
            raise InvalidRequest(message, param=param) from error
        if len(_accepted) >= _ACCEPTED_KEPT:
            _accepted.clear()
        _accepted[digest] = None


async def check_session(services: Services, body: SessionCreate, settings: AgentSettings) -> None:
    """Refuse a session that this version could not run.

    Raises:
        ModelNotFound, InvalidRequest, NotFound: what it needs is not here; `param` names it.
    """
    given = set() if body.agent is None else body.agent.model_fields_set
    check_model(services, settings, "agent.", "agent.model" if "model" in given else "agent_id")
    kind = body.environment.type
    if kind not in ENVIRONMENTS:
        raise InvalidRequest(
            f"Environments of type '{kind}' are not supported by this server yet. Use type 'none'.",
            param="environment.type",
        )
    # What comes with a saved agent is named by its id: the body has no such member.
    tools = "agent.tools" if "tools" in given else None
    check_combination(settings.tools, body.environment, param=tools or "agent_id")
    check_tools(settings.tools, tools)
    check_names(settings, given, "agent.")
    if body.agent is not None:
        await check_schemas(body.agent.tools, body.agent.text, "agent.")
    if body.vault_ids:
        raise NotFound(f"No vault found with id '{body.vault_ids[0]}'.", param="vault_ids")
    check_review(body.review)


def check_tools(tools: Sequence[Any], param: str | None) -> None:
    """Refuse tools that cannot run here; a disabled web search is the same as none.

    `param` is where the list is in the body, or None for the tools of a saved agent.
    """
    for index, tool in enumerate(tools):
        if isinstance(tool, FunctionTool):
            continue
        if isinstance(tool, WebSearchTool) and tool.mode == "disabled":
            continue
        raise InvalidRequest(
            f"Tools of type '{tool.type}' are not supported by this server yet. Use function tools.",
            param="agent_id" if param is None else f"{param}[{index}].type",
        )


def check_review(review: str | None) -> None:
    """Refuse automatic review: no reviewer is configured, and ignoring it would be unsafe."""
    if review == "auto_review":
        raise InvalidRequest(
            "This server has no reviewer, so 'auto_review' is not available. Use 'none'.", param="review"
        )
