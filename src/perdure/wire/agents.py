"""Agents: saved ones, those of sessions, and how their settings are resolved and merged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from perdure.wire.agent_options import (
    Compaction,
    CompactionParams,
    Effort,
    Experimental,
    ExperimentalParams,
    Instructions,
    ModelName,
    MultiAgent,
    MultiAgentParams,
    Reasoning,
    ReasoningParams,
    ServiceTier,
    Text,
    TextParams,
    compaction_of,
    experimental_of,
    multi_agent_of,
    reasoning_of,
    text_of,
)
from perdure.wire.errors import InvalidRequest
from perdure.wire.metadata import Metadata
from perdure.wire.shapes import Omissible, Request, Resource
from perdure.wire.tool_lists import (
    MAX_TOOLS_BYTES,
    SavedToolList,
    ToolList,
    full_tools,
    saved_tools,
    session_tools,
    tools_bytes,
)
from perdure.wire.tool_resources import SavedToolResource, SessionToolResource
from perdure.wire.tools import SavedTool, Tool

MAX_CONFIGURATION_BYTES = 4 << 20

AgentName = Annotated[str, Field(max_length=128)]


class _Options(Request):
    instructions: Instructions | None = None
    multi_agent: MultiAgentParams | None = None
    reasoning: ReasoningParams | None = None
    service_tier: ServiceTier | None = None
    text: TextParams | None = None
    compaction: CompactionParams | None = None
    experimental: Omissible[ExperimentalParams] = None


class AgentCreate(_Options):
    """Body of creating a saved agent."""

    model: ModelName
    name: AgentName | None = None
    metadata: Metadata | None = None
    tools: SavedToolList | None = None


class AgentUpdate(_Options):
    """Body of updating a saved agent: what is not in `model_fields_set` stays."""

    model: Omissible[ModelName] = None
    name: AgentName | None = None
    metadata: Metadata | None = None
    tools: SavedToolList | None = None


class SessionAgentParams(_Options):
    """`agent` of a session's creation: a whole configuration, or what differs from the saved agent."""

    model: Omissible[ModelName] = None
    tools: ToolList | None = None


class SessionReasoningUpdate(Request):
    effort: Effort | None = None


class SessionAgentUpdate(Request):
    """`agent` of a session's update: merged member by member."""

    model: Omissible[ModelName] = None
    reasoning: Omissible[SessionReasoningUpdate] = None
    service_tier: ServiceTier | None = None
    tools: ToolList | None = None


class AgentSettings(Resource):
    """Everything that is decided about an agent, as it is stored; tools with their secrets."""

    model: str
    instructions: str | None = None
    multi_agent: MultiAgent = MultiAgent()
    reasoning: Reasoning = Reasoning()
    service_tier: ServiceTier = "auto"
    text: Text = Text()
    tools: list[Tool] = Field(default_factory=list)
    compaction: Compaction = Compaction()
    experimental: Experimental = Experimental()


class _AgentResource(Resource):
    id: str
    name: str | None = None
    model: str
    instructions: str | None = None
    multi_agent: MultiAgent
    reasoning: Reasoning
    service_tier: ServiceTier
    text: Text
    compaction: Compaction
    experimental: Experimental


class Agent(_AgentResource):
    """A saved agent. Times in Unix seconds."""

    object: Literal["agent"] = "agent"
    created_at: int
    updated_at: int
    metadata: dict[str, str]
    tools: list[SavedToolResource]


class SessionAgent(_AgentResource):
    """The agent of a session."""

    tools: list[SessionToolResource]


class AgentDeleted(Resource):
    id: str
    object: Literal["agent.deleted"] = "agent.deleted"
    deleted: Literal[True] = True


def resolve_create(body: AgentCreate) -> AgentSettings:
    """The settings of a new saved agent.

    Raises:
        InvalidRequest: instructions and tools together are too large.
    """
    return _changed(AgentSettings(model=body.model), body, body.tools, prefix="")


def apply_update(settings: AgentSettings, body: AgentUpdate) -> AgentSettings:
    """The settings after an update: given fields replace, null resets, `experimental` merges by key.

    Raises:
        InvalidRequest: instructions and tools together are too large.
    """
    return _changed(settings, body, body.tools, prefix="")


def apply_overrides(
    settings: AgentSettings | None, agent: SessionAgentParams | None, *, prefix: str = "agent."
) -> AgentSettings:
    """The settings a session starts with.

    Args:
        settings: those of the saved agent, or None without `agent_id`.
        agent: the body's `agent`, a whole configuration or overrides.
        prefix: where `agent` is in the body, for errors.

    Raises:
        InvalidRequest: no model is given anywhere, or instructions and tools together are too large.
    """
    if settings is None:
        if agent is None or agent.model is None:
            raise InvalidRequest("agent.model is required when agent_id is omitted", param=f"{prefix}model")
        settings = AgentSettings(model=agent.model)
    if agent is None:
        return settings
    return _changed(settings, agent, agent.tools, prefix=prefix)


def apply_session_update(settings: AgentSettings, agent: SessionAgentUpdate) -> AgentSettings:
    """The settings after a session's update: members merge; a null effort, tier or list resets.

    Raises:
        InvalidRequest: instructions and tools together are too large.
    """
    given = agent.model_fields_set
    changes: dict[str, object] = {}
    if agent.model is not None:
        changes["model"] = agent.model
    if agent.reasoning is not None and "effort" in agent.reasoning.model_fields_set:
        changes["reasoning"] = settings.reasoning.model_copy(update={"effort": agent.reasoning.effort})
    if "service_tier" in given:
        changes["service_tier"] = agent.service_tier or "auto"
    if "tools" in given:
        changes["tools"] = agent.tools or []
    return _sized(settings.model_copy(update=changes), "agent.tools")


def saved_agent_resource(
    id: str,
    name: str | None,
    metadata: Mapping[str, str],
    settings: AgentSettings,
    created_at: int,
    updated_at: int,
) -> Agent:
    """A saved agent as it is shown."""
    return Agent(
        id=id,
        name=name,
        created_at=created_at,
        updated_at=updated_at,
        metadata=dict(metadata),
        tools=saved_tools(settings.tools),
        **_shown(settings),
    )


def session_agent_resource(id: str, name: str | None, settings: AgentSettings) -> SessionAgent:
    """A session's agent as it is shown: without secrets and without `tool_search`."""
    return SessionAgent(id=id, name=name, tools=session_tools(settings.tools), **_shown(settings))


def _changed(
    settings: AgentSettings,
    body: AgentCreate | AgentUpdate | SessionAgentParams,
    tools: list[Tool] | list[SavedTool] | None,
    *,
    prefix: str,
) -> AgentSettings:
    given = body.model_fields_set
    changes: dict[str, object] = {"experimental": experimental_of(body.experimental, settings.experimental)}
    if body.model is not None:
        changes["model"] = body.model
    if "instructions" in given:
        changes["instructions"] = body.instructions
    if "multi_agent" in given:
        changes["multi_agent"] = multi_agent_of(body.multi_agent)
    if "reasoning" in given:
        changes["reasoning"] = reasoning_of(body.reasoning)
    if "service_tier" in given:
        changes["service_tier"] = body.service_tier or "auto"
    if "text" in given:
        changes["text"] = text_of(body.text)
    if "tools" in given:
        changes["tools"] = full_tools(tools or [])
    if "compaction" in given:
        changes["compaction"] = compaction_of(body.compaction)
    largest = "instructions" if body.instructions else "tools"
    return _sized(settings.model_copy(update=changes), prefix + largest)


def _sized(settings: AgentSettings, param: str) -> AgentSettings:
    size = len((settings.instructions or "").encode("utf-8", "surrogatepass"))
    # The list alone stays below its own limit, so shorter instructions cannot exceed this one.
    if (
        size > MAX_CONFIGURATION_BYTES - MAX_TOOLS_BYTES
        and size + tools_bytes(settings.tools) > MAX_CONFIGURATION_BYTES
    ):
        raise InvalidRequest(
            f"Invalid '{param}': instructions and tools are too large together. Expected at most "
            f"{MAX_CONFIGURATION_BYTES:,} bytes.",
            param=param,
        )
    return settings


def _shown(settings: AgentSettings) -> dict[str, object]:
    names = ("model", "instructions", "multi_agent", "reasoning", "service_tier", "text", "compaction")
    return {name: getattr(settings, name) for name in (*names, "experimental")}
