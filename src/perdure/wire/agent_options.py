"""The settings of an agent other than its tools: as requested, and as shown."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from perdure.wire.object_schema import check_object_schema
from perdure.wire.shapes import Omissible, Request, Resource, refusal

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
ReasoningSummary = Literal["concise", "detailed", "auto"]
ServiceTier = Literal["auto", "default", "flex", "priority", "fast", "ultrafast"]
Verbosity = Literal["low", "medium", "high"]

DEFAULT_SUBAGENTS = 6
MAX_SUBAGENTS = 4_294_967_295

ModelName = Annotated[str, Field(min_length=1, max_length=256)]
Instructions = Annotated[str, Field(max_length=4 << 20)]


class MultiAgentParams(Request):
    enabled: bool
    max_concurrent_subagents: Omissible[Annotated[int, Field(ge=1, le=MAX_SUBAGENTS)]] = None

    @model_validator(mode="after")
    def _check_limit(self) -> MultiAgentParams:
        if not self.enabled and self.max_concurrent_subagents is not None:
            raise refusal(
                "Invalid '{param}': a limit needs 'enabled' to be true. Enable multi_agent or leave the "
                "limit out.",
                "max_concurrent_subagents",
            )
        return self


class ReasoningParams(Request):
    effort: Effort | None = None
    summary: ReasoningSummary | None = None


class TextFormatParams(Request):
    type: Literal["text"]


class JsonSchemaFormatParams(Request):
    type: Literal["json_schema"]
    schema_: Annotated[dict[str, Any], Field(alias="schema")]

    @model_validator(mode="after")
    def _check_root(self) -> JsonSchemaFormatParams:
        check_object_schema(self.schema_, "schema", combinators=False)
        return self


class TextParams(Request):
    format: Annotated[TextFormatParams | JsonSchemaFormatParams, Field(discriminator="type")] | None = None
    verbosity: Verbosity | None = None


class CompactionParams(Request):
    async_: Annotated[bool | None, Field(alias="async")] = None


class ExperimentalParams(Request):
    time_awareness: Omissible[bool] = None


class MultiAgent(Resource):
    enabled: bool = False
    max_concurrent_subagents: int | None = None


class Reasoning(Resource):
    effort: Effort | None = None
    summary: ReasoningSummary | None = None


class PlainTextFormat(Resource):
    type: Literal["text"] = "text"


class JsonSchemaFormat(Resource):
    type: Literal["json_schema"] = "json_schema"
    schema_: dict[str, Any] = Field(alias="schema")


TextFormat = Annotated[PlainTextFormat | JsonSchemaFormat, Field(discriminator="type")]


class Text(Resource):
    format: TextFormat = PlainTextFormat()
    verbosity: Verbosity = "medium"


class Compaction(Resource):
    async_: bool = Field(alias="async", default=False)


class Experimental(Resource):
    time_awareness: bool = False


def multi_agent_of(params: MultiAgentParams | None) -> MultiAgent:
    """Null when disabled, the default limit when enabled without one."""
    if params is None or not params.enabled:
        return MultiAgent()
    return MultiAgent(
        enabled=True, max_concurrent_subagents=params.max_concurrent_subagents or DEFAULT_SUBAGENTS
    )


def reasoning_of(params: ReasoningParams | None) -> Reasoning:
    return Reasoning() if params is None else Reasoning(effort=params.effort, summary=params.summary)


def text_of(params: TextParams | None) -> Text:
    if params is None:
        return Text()
    shown: TextFormat = PlainTextFormat()
    if isinstance(params.format, JsonSchemaFormatParams):
        shown = JsonSchemaFormat(schema_=params.format.schema_)
    return Text(format=shown, verbosity=params.verbosity or "medium")


def compaction_of(params: CompactionParams | None) -> Compaction:
    return Compaction(async_=bool(params and params.async_))


def experimental_of(params: ExperimentalParams | None, before: Experimental) -> Experimental:
    """Merged by key: what is not given stays."""
    if params is None or params.time_awareness is None:
        return before
    return Experimental(time_awareness=params.time_awareness)
