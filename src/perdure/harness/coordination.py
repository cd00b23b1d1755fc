"""The calls with which an agent creates, hears, steers and closes subagents, as its model sees them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast, get_args

from perdure.models.messages import CallDone, FunctionSpec
from perdure.schema.arguments import describe_fault, describe_problems, validator_for
from perdure.schema.texts import ArgumentFault, parse_arguments
from perdure.store.boundary import Boundary
from perdure.store.coordination import MOST_NAMED, NAME_LENGTH, Coordination, Tool

LONGEST_TASK = 1 << 20
_AGENT = {"type": "string", "description": "The agent_id of one of your subagents, or its name."}


def _schema(**properties: Mapping[str, Any]) -> dict[str, Any]:
    """Properties in order; those described as optional are not required."""
    required = [
        name
        for name, schema in properties.items()
        if not schema.get("description", "").startswith("Optional")
    ]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


_TEXT = {"type": "string", "minLength": 1, "maxLength": LONGEST_TASK}
SPECS: Mapping[Tool, FunctionSpec] = {
    "create_subagent": FunctionSpec(
        "create_subagent",
        "Gives a task to a new subagent, which works on it at once, beside you. It sees nothing of this "
        "conversation and has none of your functions: put all it needs into the task. Its answer comes "
        "to you as a message when it has finished.",
        _schema(
            task={**_TEXT, "description": "The whole task, with all facts it needs."},
            name={
                "type": "string",
                "maxLength": NAME_LENGTH,
                "description": "Optional. A short name for it.",
            },
        ),
    ),
    "send_subagent_input": FunctionSpec(
        "send_subagent_input",
        "Says something to a subagent: it hears it with its next step, or begins to work again if idle.",
        _schema(agent_id=_AGENT, input={**_TEXT, "description": "What it is told."}),
    ),
    "wait_for_subagents": FunctionSpec(
        "wait_for_subagents",
        "Waits until subagents have finished, for a limited time. Tells what each is doing; the answers of "
        "those that have finished follow as messages.",
        _schema(
            agent_ids={
                "type": "array",
                "items": {"type": "string"},
                "maxItems": MOST_NAMED,
                "description": "Optional. Ids or names of subagents; all that are running if left out.",
            },
            until={
                "enum": ["all", "any"],
                "description": "Optional. Wait for all of them (default) or for any.",
            },
            timeout_s={
                "type": "number",
                "exclusiveMinimum": 0,
                "description": "Optional. The longest time to wait, in seconds.",
            },
        ),
    ),
    "interrupt_subagent": FunctionSpec(
        "interrupt_subagent",
        "Stops what a subagent is doing and tells what it had written. It can be given something else to do.",
        _schema(agent_id=_AGENT),
    ),
    "resume_subagent": FunctionSpec(
        "resume_subagent",
        "Opens a closed subagent again, with its memory.",
        _schema(agent_id=_AGENT),
    ),
    "close_subagent": FunctionSpec(
        "close_subagent",
        "Closes a subagent that is not needed any more; what it is doing is stopped.",
        _schema(agent_id=_AGENT),
    ),
}
assert SPECS.keys() == set(get_args(Tool))
RESERVED = frozenset(SPECS)

FOR_SUBAGENTS = (
    "You are the subagent '{name}' ({id}). Another agent gave you the task below; it reads your final "
    "answer, and the user does not. You see nothing else of the conversation that it came from. You have no "
    "functions of the application: do not call any, whatever the instructions above say, and do not invent "
    "what one would return. If something is missing that you need, say in your answer what it is. Answer "
    "with what you found, and how sure you are."
)


def offered(boundary: Boundary, depth: int) -> Mapping[Tool, FunctionSpec]:
    """The calls that the agent of a boundary may make, by name.

    Args:
        depth: how many generations of subagents there may be.
    """
    level = 0 if boundary.subagent is None else boundary.subagent.depth
    if not boundary.config.settings.multi_agent.enabled or level >= depth:
        return {}
    return SPECS


def read_coordination(call: CallDone, private: Mapping[str, Any] | None) -> Coordination:
    """A model's call of one of these functions as it is made, or with why it is not."""
    tool = cast(Tool, call.name)
    parsed = parse_arguments(call.arguments)
    if isinstance(parsed, ArgumentFault):
        return Coordination(tool, {}, private, describe_fault(call.name, parsed))
    # Models write null for what they leave out.
    parsed = {name: value for name, value in parsed.items() if value is not None}
    problems = validator_for(SPECS[tool].parameters).problems(parsed)
    if problems:
        return Coordination(tool, parsed, private, describe_problems(call.name, problems))
    return Coordination(tool, parsed, private)
