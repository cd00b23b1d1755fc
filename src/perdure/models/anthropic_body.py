"""The body of an Anthropic Messages request."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from perdure.models.anthropic_messages import (
    Before,
    Message,
    MessageWriter,
    begins_with_thinking,
    settled_messages,
)
from perdure.models.anthropic_models import FAST_TIERS, Family
from perdure.models.anthropic_schema import fits_output_format
from perdure.models.images import ImageLessons
from perdure.models.jsontext import Encoded
from perdure.models.messages import Entry, FunctionSpec, ModelRequest
from perdure.models.offered import Offered, OfferRules
from perdure.models.outgoing import with_schema
from perdure.models.settled import SettledHistories, joined

VERBOSITIES = {
    "low": "Keep your answers short: say what matters and leave out the rest.",
    "high": "Answer in detail: explain your reasons and cover what belongs to the question.",
}
BUDGETS = {"minimal": 1024, "low": 4096, "medium": 12_288, "high": 32_768}
LEAST_BUDGET = 1024
LEAST_ANSWER = 1024
OFFERS = OfferRules(plain_properties=True)
NOTHING: dict[str, Any] = {"type": "object", "properties": {}}


@dataclass(frozen=True, slots=True)
class Thinking:
    """How a request asks for thinking. `replay`: thinking of the past goes along."""

    config: dict[str, Any] | None
    effort: str | None = None
    replay: bool = True


@dataclass(frozen=True, slots=True)
class History:
    """How the entries of requests are written, and those parts that are written already.

    Args:
        provider: the configured provider's name; native data of others is left out.
        refused: thoughts that the provider does not take back; see `MessageWriter`.
        images: the images that it has refused.
    """

    provider: str
    refused: Container[str] = frozenset()
    images: ImageLessons = field(default_factory=ImageLessons)
    settled: SettledHistories[Before] = field(default_factory=SettledHistories)

    def write(self, request: ModelRequest, offered: Offered, *, replay: bool) -> Written:
        """The messages of a request; `replay`: with the thinking of the past."""

        def part(entries: Sequence[Entry], before: Before) -> tuple[list[Message], Before]:
            writer = self._writer(request, offered, replay, before)
            return writer.write(entries, open_end=True), writer.after

        settled = settled_messages(request.entries, request.settled)
        key = (request.cache_key, request.model, replay, offered.changed)
        base = self.settled.settle(key, replace(request, settled=settled), Before(), part)
        writer = self._writer(request, offered, replay, base.state)
        return Written(base.data, writer.write(request.entries[len(base.entries) :]), writer.after.names)

    def whole(self, request: ModelRequest, offered: Offered) -> list[Message]:
        """All messages of a request, with all that may be in them."""
        return self._writer(request, offered, True, Before()).write(request.entries)

    def _writer(self, request: ModelRequest, offered: Offered, replay: bool, before: Before) -> MessageWriter:
        return MessageWriter(
            self.provider,
            request.model,
            replay=replay,
            refused=self.refused,
            offered=offered,
            images=self.images,
            before=before,
        )


@dataclass(frozen=True, slots=True)
class Written:
    """Messages: JSON of the first ones, the others, and the names of all functions that they call."""

    settled: bytes
    last: list[Message]
    names: tuple[str, ...]

    def all(self) -> Encoded:
        return Encoded(b"[%b]" % joined(self.settled, self.last))


def build_body(
    request: ModelRequest,
    history: History,
    offered: Offered,
    family: Family,
    *,
    max_tokens: int,
    enforce_schema: bool,
    parallel_calls: bool = True,
    cached: bool = True,
) -> dict[str, Any]:
    """Everything one model call needs.

    Args:
        offered: the functions as the provider takes them.
        max_tokens: limit of the answer, its thinking included.
        enforce_schema: False asks for `output_schema` in words; so does a schema the API cannot enforce.
        parallel_calls: False asks for one call at a time.
        cached: False sets no cache breakpoints.
    """
    instructions = "\n\n".join(
        text for text in (request.instructions, VERBOSITIES.get(request.verbosity, "")) if text.strip()
    )
    schema = request.output_schema
    if schema is not None and not (enforce_schema and fits_output_format(schema)):
        instructions, schema = with_schema(instructions, schema), None
    thinking, messages = _with_thinking(request, history, offered, family, max_tokens)
    body: dict[str, Any] = {"model": request.model, "max_tokens": max_tokens, "stream": True}
    if instructions:
        body["system"] = [{"type": "text", "text": instructions}]
    if request.tools:
        body["tools"] = [_tool(spec) for spec in offered.tools]
        if not parallel_calls:
            body["tool_choice"] = {"type": "auto", "disable_parallel_tool_use": True}
    elif messages.names:
        # Calls of the past are only read beside tools of their names.
        body["tools"] = [{"name": name, "input_schema": NOTHING} for name in messages.names]
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
        _set_breakpoints(body, messages.last, request.cache_ttl is not None)
    return {**body, "messages": messages.all()}


def _with_thinking(
    request: ModelRequest, history: History, offered: Offered, family: Family, max_tokens: int
) -> tuple[Thinking, Written]:
    thinking = thinking_for(request, family, max_tokens)
    messages = history.write(request, offered, replay=thinking.replay)
    budgeted = thinking.config is not None and thinking.config["type"] == "enabled"
    if budgeted and not begins_with_thinking(messages.last):
        # With a budget the API refuses to go on with a turn that began without thinking.
        thinking = Thinking(None, replay=False)
        messages = history.write(request, offered, replay=False)
    return thinking, messages


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
    tool = {"name": spec.name, "description": spec.description, "input_schema": spec.parameters}
    if not spec.description:
        del tool["description"]
    return tool


def _set_breakpoints(body: dict[str, Any], messages: Sequence[Message], long: bool) -> None:
    """Let the provider keep what comes again: tools, instructions, and the last two of the user's messages.

    The last but one is where the request before this one ended.
    """
    control = {"type": "ephemeral", "ttl": "1h"} if long else {"type": "ephemeral"}
    users = [message["content"] for message in messages if message["role"] == "user"]
    for blocks in (body.get("tools", []), body.get("system", []), *users[-2:]):
        if blocks:
            blocks[-1]["cache_control"] = dict(control)
