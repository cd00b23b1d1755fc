"""The body of an Anthropic Messages request."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Any

from perdure.models.anthropic_messages import Message, MessageWriter, begins_with_thinking
from perdure.models.anthropic_models import FAST_TIERS, Family
from perdure.models.anthropic_schema import fits_output_format
from perdure.models.jsontext import encode
from perdure.models.messages import FunctionSpec, ModelRequest
from perdure.models.outgoing import function_name, root_object, with_schema

VERBOSITIES = {
    "low": "Keep your answers short: say what matters and leave out the rest.",
    "high": "Answer in detail: explain your reasons and cover what belongs to the question.",
}
BUDGETS = {"minimal": 1024, "low": 4096, "medium": 12_288, "high": 32_768}
LEAST_BUDGET = 1024
LEAST_ANSWER = 1024
UNIONS = ("anyOf", "oneOf", "allOf")


@dataclass(frozen=True, slots=True)
class Thinking:
    """How a request asks for thinking. `replay`: thinking of the past goes along."""

    config: dict[str, Any] | None
    effort: str | None = None
    replay: bool = True


def build_body(
    request: ModelRequest,
    provider: str,
    family: Family,
    *,
    max_tokens: int,
    enforce_schema: bool,
    refused: Container[str] = frozenset(),
    cached: bool = True,
) -> dict[str, Any]:
    """Everything one model call needs.

    Args:
        provider: the configured provider's name; native data of others is left out.
        max_tokens: limit of the answer, its thinking included.
        enforce_schema: False asks for `output_schema` in words; so does a schema the API cannot enforce.
        refused: thoughts that the provider does not take back; see `MessageWriter`.
        cached: False sets no cache breakpoints.
    """
    instructions = "\n\n".join(
        text for text in (request.instructions, VERBOSITIES.get(request.verbosity, "")) if text.strip()
    )
    schema = request.output_schema
    if schema is not None and not (enforce_schema and fits_output_format(schema)):
        instructions, schema = with_schema(instructions, schema), None
    thinking, messages = _with_thinking(request, provider, family, max_tokens, refused)
    body: dict[str, Any] = {
        "model": request.model,
        "max_tokens": max_tokens,
        "messages": messages,
        "stream": True,
    }
    if instructions:
        body["system"] = [{"type": "text", "text": instructions}]
    if request.tools:
        body["tools"] = [_tool(spec) for spec in request.tools]
    elif names := _called(messages):
        # Calls of the past are only read beside tools of their names.
        body["tools"] = [{"name": name, "input_schema": root_object({})} for name in names]
        body["tool_choice"] = {"type": "none"}
    if thinking.config is not None:
        body["thinking"] = thinking.config
    output: dict[str, Any] = {}
    if thinking.effort is not None:
        output["effort"] = thinking.effort
    if schema is not None:
        output["format"] = {"type": "json_schema", "schema": dict(schema)}
    if output:
        body["output_config"] = output
    if request.service_tier in FAST_TIERS and family.fast:
        body["speed"] = "fast"
    elif request.service_tier == "default":
        body["service_tier"] = "standard_only"
    elif request.service_tier == "priority":
        body["service_tier"] = "auto"
    if cached:
        _set_breakpoints(body, request.cache_ttl is not None)
    return body


def _with_thinking(
    request: ModelRequest, provider: str, family: Family, max_tokens: int, refused: Container[str]
) -> tuple[Thinking, list[Message]]:
    thinking = thinking_for(request, family, max_tokens)
    messages = _messages(request, provider, replay=thinking.replay, refused=refused)
    budgeted = thinking.config is not None and thinking.config["type"] == "enabled"
    if budgeted and not begins_with_thinking(messages):
        # With a budget the API refuses to go on with a turn that began without thinking.
        thinking = Thinking(None, replay=False)
        messages = _messages(request, provider, replay=False)
    return thinking, messages


def _messages(
    request: ModelRequest, provider: str, *, replay: bool, refused: Container[str] = frozenset()
) -> list[Message]:
    return MessageWriter(provider, request.model, replay=replay, refused=refused).write(request.entries)


def thinking_for(request: ModelRequest, family: Family, max_tokens: int) -> Thinking:
    """The thinking a request asks for: with an effort or a summary, some; without both, the model's own."""
    effort = request.effort
    thinks = family.thinking in ("always", "default")
    if effort == "none" or (effort is None and request.summary is None):
        if effort is None or family.thinking != "default":
            return Thinking(None, replay=thinks)
        # What a model that thinks between its calls says there comes back as thinking.
        return Thinking({"type": family.off}, replay=family.off == "between_tools")
    display = {} if request.summary is None else {"display": "summarized"}
    match family.thinking:
        case "never":
            return Thinking(None, replay=False)
        case "budget":
            budget = min(BUDGETS.get(effort or "medium", BUDGETS["high"]), max_tokens - LEAST_ANSWER)
            if budget < LEAST_BUDGET:
                return Thinking(None, replay=False)
            return Thinking({"type": "enabled", "budget_tokens": budget, **display})
        case _:
            level = "low" if effort == "minimal" else effort
            return Thinking({"type": "adaptive", **display}, level)


def _tool(spec: FunctionSpec) -> dict[str, Any]:
    schema = root_object(spec.parameters)
    # A choice between whole objects is refused at the root: it is told in words, and checked afterwards.
    choices = {key: schema.pop(key) for key in UNIONS if key in schema}
    description = spec.description
    if choices:
        told = f"The input must also match this JSON Schema: {encode(choices).decode()}"
        description = f"{description}\n\n{told}" if description else told
    tool = {"name": function_name(spec.name), "description": description, "input_schema": schema}
    if not description:
        del tool["description"]
    return tool


def _called(messages: Sequence[Message]) -> list[str]:
    blocks = (block for message in messages for block in message["content"])
    return list(dict.fromkeys(block["name"] for block in blocks if block["type"] == "tool_use"))


def _set_breakpoints(body: dict[str, Any], long: bool) -> None:
    """Let the provider keep what comes again: tools, instructions, and the last two of the user's messages.

    The last but one is where the request before this one ended.
    """
    control = {"type": "ephemeral", "ttl": "1h"} if long else {"type": "ephemeral"}
    users = [message["content"] for message in body["messages"] if message["role"] == "user"]
    for blocks in (body.get("tools", []), body.get("system", []), *users[-2:]):
        if blocks:
            blocks[-1]["cache_control"] = dict(control)
