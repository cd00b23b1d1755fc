"""`Agent`: what a session is created with, and the code that answers its calls."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Self, TypeAlias, TypedDict, TypeVar, overload

from typing_extensions import Unpack

from perdure.schema import Schema, StandardSchema, schema_of
from perdure.schema.forms import Loading
from perdure.sdk.errors import DefinitionRefused
from perdure.sdk.tool import Served, Tool, definition

if TYPE_CHECKING:
    from perdure.sdk.agent_tool import AgentTool, AgentToolOptions, TextInput
    from perdure.sdk.handoff import Handoff

OutputT_co = TypeVar("OutputT_co", covariant=True)
T = TypeVar("T")
U = TypeVar("U")

Hosted: TypeAlias = Mapping[str, Any]
"""A tool that the server runs, as the protocol has it, such as `{"type": "web_search"}`."""


class AgentOptions(TypedDict, total=False):
    """The options of `Agent`, all of them optional; `Agent` describes them."""

    name: str
    model: str | None
    agent_id: str | None
    instructions: str | None
    tools: Sequence[Tool[..., Any] | AgentTool[Any] | Hosted]
    reasoning: Mapping[str, Any] | None
    text: Mapping[str, Any] | None
    service_tier: str | None
    multi_agent: Mapping[str, Any] | None
    compaction: Mapping[str, Any] | None
    experimental: Mapping[str, Any] | None


_SETTINGS = (
    "model", "instructions", "reasoning", "text", "service_tier", "multi_agent", "compaction", "experimental",
)  # fmt: skip
_MULTI_AGENT = {"enabled", "max_concurrent_subagents"}
_MOST_SUBAGENTS = 2**32 - 1


class Agent(Generic[OutputT_co]):
    """Model, instructions, tools and the type of the answer.

    Args:
        name: for people, for `transfer_to_<name>`, and to find the agent of a session again.
        model: the model's name; needed unless `agent_id` names a saved agent.
        agent_id: a saved agent. Its configuration on the server is used unchanged, and `tools`,
            `handoffs` and `output_type` only answer calls and read the answer here.
        instructions: what the model is told.
        tools: `tool`s and agents as tools, which run here, and tools of the server as dicts.
        handoffs: agents, or `handoff`s to agents, that the conversation may go on with.
        output_type: the schema of the final answer, of any form; without it the answer is text.
        multi_agent: whether it may create subagents, and how many may be at work at once, as in
            `{"enabled": True, "max_concurrent_subagents": 3}`.
        reasoning, text, service_tier, compaction, experimental: passed on as they are.

    Raises:
        DefinitionRefused, FormRefused, SchemaRefused: at once, and with what is to be changed.
    """

    @overload
    def __init__(
        self: Agent[str], *, output_type: None = None, handoffs: None = None, **options: Unpack[AgentOptions]
    ) -> None: ...
    @overload
    def __init__(
        self: Agent[T],
        *,
        output_type: Schema[T] | StandardSchema[Any, T],
        handoffs: None = None,
        **options: Unpack[AgentOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: Agent[Any],
        *,
        output_type: type[Loading] | Loading | Mapping[str, Any],
        handoffs: Sequence[Agent[Any] | Handoff[Any]] | None = None,
        **options: Unpack[AgentOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: Agent[T], *, output_type: type[T], handoffs: None = None, **options: Unpack[AgentOptions]
    ) -> None: ...
    @overload
    def __init__(
        self: Agent[str | U],
        *,
        output_type: None = None,
        handoffs: Sequence[Agent[U] | Handoff[U]],
        **options: Unpack[AgentOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: Agent[T | U],
        *,
        output_type: Schema[T] | StandardSchema[Any, T],
        handoffs: Sequence[Agent[U] | Handoff[U]],
        **options: Unpack[AgentOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: Agent[T | U],
        *,
        output_type: type[T],
        handoffs: Sequence[Agent[U] | Handoff[U]],
        **options: Unpack[AgentOptions],
    ) -> None: ...
    def __init__(
        self,
        *,
        output_type: Any = None,
        handoffs: Sequence[Agent[Any] | Handoff[Any]] | None = None,
        **options: Unpack[AgentOptions],
    ) -> None:
        self.name = options.get("name") or "agent"
        self.agent_id = options.get("agent_id")
        self.model = options.get("model")
        self._settings = {key: options[key] for key in _SETTINGS if options.get(key) is not None}  # type: ignore[literal-required]
        if self.model is None and self.agent_id is None:
            raise DefinitionRefused(f"The agent {self.name} has no model: pass model=, or agent_id=.")
        if self.agent_id is not None and self._settings:
            raise DefinitionRefused(
                f"The agent {self.name} is saved as {self.agent_id} and configured there; leave out "
                f"{', '.join(self._settings)}."
            )
        self.output_schema: Schema[Any] | None = None if output_type is None else schema_of(output_type)
        _check_text(self.name, self._settings.get("text"), self.output_schema)
        _check_subagents(self.name, self._settings.get("multi_agent"))
        self._hosted, served = _sorted(self.name, options.get("tools", ()))
        served.extend(_handoffs(handoffs or ()))
        self.served: dict[str, Served] = {}
        for each in served:
            if each.name in self.served:
                raise DefinitionRefused(f"The agent {self.name} has two tools called {each.name}.")
            self.served[each.name] = each

    def __repr__(self) -> str:
        return f"<Agent {self.name}>"

    @property
    def handoffs(self) -> tuple[Handoff[Any], ...]:
        """The handoffs among what it can call."""
        from perdure.sdk.handoff import Handoff

        return tuple(each for each in self.served.values() if isinstance(each, Handoff))

    @property
    def configuration(self) -> dict[str, Any]:
        """The agent as the protocol has it: what goes into the creation of a session."""
        made = copy.deepcopy(self._settings)
        tools = [*map(dict, self._hosted), *(definition(each) for each in self.served.values())]
        if tools:
            made["tools"] = tools
        if self.output_schema is not None:
            schema = {"type": "json_schema", "schema": self.output_schema.json_schema}
            made["text"] = {**made.get("text", {}), "format": schema}
        return made

    def saved_as(self, agent_id: str) -> Self:
        """The same agent, of which the configuration is saved on the server under this id."""
        made = copy.copy(self)
        made.agent_id = agent_id
        return made

    def slug(self) -> str:
        """The name in letters, digits and underscores, for names of functions."""
        return re.sub(r"\W+", "_", self.name, flags=re.ASCII).strip("_").lower() or "agent"

    @overload
    def as_tool(self, **options: Unpack[AgentToolOptions]) -> AgentTool[TextInput]: ...
    @overload
    def as_tool(
        self,
        *,
        parameters: Schema[T] | StandardSchema[Any, T],
        input_builder: Callable[[T], str] | None = None,
        **options: Unpack[AgentToolOptions],
    ) -> AgentTool[T]: ...
    @overload
    def as_tool(
        self,
        *,
        parameters: type[Loading] | Loading | Mapping[str, Any],
        input_builder: Callable[[Any], str] | None = None,
        **options: Unpack[AgentToolOptions],
    ) -> AgentTool[Any]: ...
    @overload
    def as_tool(
        self,
        *,
        parameters: type[T],
        input_builder: Callable[[T], str] | None = None,
        **options: Unpack[AgentToolOptions],
    ) -> AgentTool[T]: ...
    def as_tool(
        self,
        *,
        parameters: Any = None,
        input_builder: Callable[[Any], str] | None = None,
        **options: Unpack[AgentToolOptions],
    ) -> AgentTool[Any]:
        """This agent as a tool of another one. Each call runs a session of its own, linked to the call.

        Args:
            parameters: the schema of the call, validated before the agent runs. Without it the model gives
                an `input` text.
            input_builder: makes the agent's input from the validated value; without it the input is the
                value as JSON.
            name: what the model calls; the agent's name by default.
            description: what the model chooses by.
            timeout: seconds that a call may take; None, the default, for no limit.
            on_failure: as for `tool`.
            environment: of the agent's sessions; "none" by default.
        """
        from perdure.sdk.agent_tool import AgentTool

        return AgentTool(self, parameters, input_builder, options)


def _sorted(name: str, tools: Sequence[Any]) -> tuple[list[Hosted], list[Served]]:
    from perdure.sdk.agent_tool import AgentTool

    hosted: list[Hosted] = []
    served: list[Served] = []
    for each in tools:
        match each:
            case Tool() | AgentTool():
                served.append(each)
            case {"type": "function"}:
                raise DefinitionRefused(
                    f"The agent {name}: a function as a dict has nothing here that answers its calls; "
                    "make it with tool()."
                )
            case {"type": str()}:
                hosted.append(each)
            case Agent():
                raise DefinitionRefused(f"The agent {name}: give the agent {each.name} as as_tool().")
            case _:
                raise DefinitionRefused(
                    f"The agent {name}: {type(each).__name__} is no tool. Functions become tools with "
                    "tool(), agents with as_tool(); tools of the server are dicts with a type."
                )
    return hosted, served


def _handoffs(handoffs: Sequence[Agent[Any] | Handoff[Any]]) -> list[Handoff[Any]]:
    from perdure.sdk.handoff import Handoff, handoff

    return [each if isinstance(each, Handoff) else handoff(each) for each in handoffs]


def _check_text(name: str, text: Mapping[str, Any] | None, output_schema: Schema[Any] | None) -> None:
    if text is not None and text.get("format") is not None and output_schema is not None:
        raise DefinitionRefused(f"The agent {name}: give output_type, or a format in text, not both.")


def _check_subagents(name: str, multi_agent: Mapping[str, Any] | None) -> None:
    unknown = set(multi_agent or ()) - _MULTI_AGENT
    if unknown & {"tools", "agents", "functions", "subagents"}:
        raise DefinitionRefused(
            f"The agent {name}: function tools stay with the main agent, and subagents cannot be given any; "
            "they share the tools that the server runs. Let a subagent's findings come back and call the "
            "function there, or give an agent with its own functions as as_tool()."
        )
    if unknown:
        raise DefinitionRefused(f"The agent {name}: multi_agent has no member {min(unknown)}.")
    if multi_agent is None:
        return
    limit = multi_agent.get("max_concurrent_subagents")
    if not isinstance(multi_agent.get("enabled"), bool):
        raise DefinitionRefused(
            f"The agent {name}: multi_agent says with `enabled`, True or False, if it is on."
        )
    if limit is None:
        return
    if not multi_agent["enabled"]:
        raise DefinitionRefused(
            f"The agent {name}: multi_agent has a limit and is not enabled; enable it, or leave out "
            "max_concurrent_subagents."
        )
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= _MOST_SUBAGENTS:
        raise DefinitionRefused(
            f"The agent {name}: max_concurrent_subagents is a number from 1 to {_MOST_SUBAGENTS}."
        )
