"""What the loop and a model say to each other, in words of no provider.

The harness builds a `ModelRequest` and reads a stream of `ModelEvent`s. Translation to a provider's
wire happens inside that provider's adapter and nowhere else.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

from perdure.wire.usage import TokenUsage

Phase = Literal["commentary", "final_answer"]
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


@dataclass(frozen=True, slots=True)
class Native:
    """Opaque provider data beside an output (ids, encrypted reasoning), replayed only to its producer.

    `provider` is the configured provider's name, `model` the upstream model name; `data` is the
    adapter's own JSON.
    """

    provider: str
    model: str
    data: Mapping[str, Any]


# ---- what the model is shown -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TextPart:
    text: str


@dataclass(frozen=True, slots=True)
class ImagePart:
    """`image_url` is an http(s) URL or a base64 data URL."""

    image_url: str


Part = TextPart | ImagePart


@dataclass(frozen=True, slots=True)
class UserMessage:
    content: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class AssistantMessage:
    text: str
    phase: Phase | None = None
    native: Native | None = None


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Present only when `native` may be replayed to the model that is about to be called."""

    summary: tuple[str, ...]
    native: Native


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """`call_id` is ours; `arguments` is JSON text."""

    call_id: str
    name: str
    arguments: str
    native: Native | None = None


@dataclass(frozen=True, slots=True)
class FunctionResult:
    """The one result of the call with the same `call_id`; a failed one carries its reason as content."""

    call_id: str
    content: str | tuple[Part, ...]
    failed: bool = False


@dataclass(frozen=True, slots=True)
class CompactedHistory:
    """What a provider itself made of a history.

    `tokens` is about how many it takes in a request; `kept` of them are messages as they were, which a
    further compaction keeps as well.
    """

    native: Native
    tokens: int
    kept: int


@dataclass(frozen=True, slots=True)
class ServerNote:
    """A labelled text written by the server, never by the user (a late result, a repair request).

    `compacted` is sent in place of the content to the model that it comes from, and to no other one.
    """

    content: tuple[Part, ...]
    compacted: CompactedHistory | None = None


Entry = UserMessage | AssistantMessage | Reasoning | FunctionCall | FunctionResult | ServerNote


@dataclass(frozen=True, slots=True)
class FunctionSpec:
    """A function offered to the model; `parameters` is its JSON Schema with an object root."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """One model call. `model` is the upstream name; `cache_key` groups calls of one conversation.

    `agent` is the name of the subagent that calls, None for the root agent; no provider is told.
    The first `settled` entries belong to turns that have ended: later calls begin with the same.
    """

    model: str
    instructions: str
    entries: tuple[Entry, ...]
    tools: tuple[FunctionSpec, ...] = ()
    output_schema: Mapping[str, Any] | None = None
    effort: Effort | None = None
    summary: Literal["concise", "detailed", "auto"] | None = None
    verbosity: Literal["low", "medium", "high"] = "medium"
    service_tier: str = "auto"
    cache_ttl: Literal["30m", "12h"] | None = None
    cache_key: str | None = None
    settled: int = 0
    agent: str | None = None


# ---- what the model answers --------------------------------------------------------------------
# `output` numbers the outputs of one answer from 0, in the order of their first appearance.


@dataclass(frozen=True, slots=True)
class TextDelta:
    output: int
    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """Text of a reasoning summary; `part` numbers the summary's parts from 0."""

    output: int
    part: int
    text: str


@dataclass(frozen=True, slots=True)
class MessageDone:
    """`text` is authoritative: it replaces the deltas. `phase` is None when the provider does not tell."""

    output: int
    text: str
    phase: Phase | None = None
    refusal: bool = False
    native: Native | None = None


@dataclass(frozen=True, slots=True)
class ReasoningDone:
    output: int
    summary: tuple[str, ...]
    native: Native | None = None


@dataclass(frozen=True, slots=True)
class CallDone:
    """A complete function call. `arguments` is the text as the model wrote it, which may be no JSON."""

    output: int
    name: str
    arguments: str
    native: Native | None = None


@dataclass(frozen=True, slots=True)
class UsageTold:
    """What the provider has told so far of an answer that may break off; the next one replaces it.

    `cache_write_tokens` of the input went into the provider's cache, where it tells.
    """

    usage: TokenUsage
    cache_write_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """The last event of every successful answer. `usage` is None when the provider did not tell."""

    usage: TokenUsage | None = None
    response_id: str | None = None
    cache_write_tokens: int | None = None


ModelEvent = TextDelta | ReasoningDelta | MessageDone | ReasoningDone | CallDone | UsageTold | Finished


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What the harness needs to know of a model; sizes in tokens.

    `parallel_calls`: it may make several calls in one answer. `compacts`: its provider compacts histories
    itself, and its adapter is a `CompactingModel`.
    """

    context_window: int | None = None
    max_output_tokens: int | None = None
    efforts: tuple[Effort, ...] | None = None
    images: bool = True
    native_output_schema: bool = True
    parallel_calls: bool = True
    service_tiers: tuple[str, ...] | None = None
    compacts: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)


class Model(Protocol):
    """One provider behind its wire.

    `stream` yields `ModelEvent`s that end with `Finished`, or raises `ModelError`
    (`perdure.models.errors`). It makes exactly one request: the harness owns retries. Closing the
    iterator closes the connection. Every text it yields is valid Unicode without lone surrogates.
    """

    def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]: ...

    async def close(self) -> None: ...


@runtime_checkable
class CompactingModel(Model, Protocol):
    """A model whose provider compacts histories itself.

    `compact` makes one request with the entries and the instructions of `request`, and raises
    `ModelError` as `stream` does.
    """

    async def compact(self, request: ModelRequest) -> tuple[CompactedHistory, Finished]: ...
