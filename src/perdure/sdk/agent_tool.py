"""An agent as a tool of another agent: each call is a session of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, TypedDict, TypeVar

from perdure.schema import Failure, Schema, Success, schema_of
from perdure.sdk.calls import ToolResult
from perdure.sdk.context import ToolContext
from perdure.sdk.errors import DefinitionRefused
from perdure.sdk.outputs import json_text, succeeded
from perdure.sdk.threads import call
from perdure.sdk.tool import Failing, check_name, definition, parsed

if TYPE_CHECKING:
    from perdure.sdk.agent import Agent
    from perdure.sdk.results import RunResult
    from perdure.sdk.run_once import OnUnknown

T_co = TypeVar("T_co", covariant=True)

_TEXT_INPUT = {
    "type": "object",
    "properties": {"input": {"type": "string", "description": "What the agent is to do."}},
    "required": ["input"],
    "additionalProperties": False,
}


class TextInput(TypedDict):
    """What an agent is called with when nothing else is said."""

    input: str


class AgentToolOptions(TypedDict, total=False):
    """The options of `Agent.as_tool`, all of them optional."""

    name: str
    description: str
    timeout: float | None
    on_failure: Failing
    environment: Literal["none"] | Mapping[str, Any]


class AgentTool(Generic[T_co]):
    """An agent that another one can call. Made by `Agent.as_tool`, for the `tools` of that one.

    Attributes:
        agent: who is called.
        name: what the model calls.
        schema: of the arguments.
        timeout: seconds that a call may take; None for no limit.
    """

    # The session of a call is found again by the call, so asking twice has one effect.
    idempotent = True
    on_unknown: OnUnknown = "retry"
    background = False
    defer_loading = False

    def __init__(
        self,
        agent: Agent[Any],
        parameters: Any,
        input_builder: Callable[[T_co], str] | None,
        options: AgentToolOptions,
    ) -> None:
        self.agent = agent
        self.name = options.get("name") or agent.slug()
        check_name(self.name, "tool")
        self.description = options.get("description") or f"Asks {agent.name}, another agent."
        self.timeout = options.get("timeout")
        self.on_failure: Failing = options.get("on_failure", "report")
        self._environment = options.get("environment", "none")
        self._build = input_builder
        if parameters is None:
            if input_builder is not None:
                raise DefinitionRefused(f"The tool {self.name}: input_builder needs parameters.")
            self._build = _given_input
            parameters = schema_of(_TEXT_INPUT, validate=True)
        self.schema: Schema[Any] = schema_of(parameters)

    def __repr__(self) -> str:
        return f"<AgentTool {self.name}>"

    @property
    def definition(self) -> dict[str, Any]:
        """The tool as an agent's configuration has it."""
        return definition(self)

    def parse(self, arguments: object) -> Success[T_co] | Failure:
        """Validate the arguments of a call, as an object or as JSON text. Raises ValidatorFault."""
        return parsed(self.schema, arguments)

    async def invoke(self, value: Any, context: ToolContext[Any]) -> RunResult[Any]:
        """Run the agent on the validated value, in the session of this call."""
        build = self._build
        text = (
            json_text(self.schema.dump(value)) if build is None else await call(lambda: build(value), build)
        )
        return await context._session.run_linked(self.agent, text, context, self._environment)

    def result(self, value: RunResult[Any]) -> ToolResult:
        """The agent's final output, as a result."""
        schema = value.agent.output_schema
        answer = value.final_output if schema is None else schema.dump(value.final_output)
        return succeeded(self.name, answer)


def _given_input(value: Any) -> str:
    return str(value["input"])
