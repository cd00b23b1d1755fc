"""Driving a model wire in tests: one request, its events, and the history that follows from them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from contextlib import aclosing, suppress
from typing import Any, NamedTuple

from tests.providers.anthropic import AnthropicProvider
from tests.providers.chat import ChatProvider
from tests.providers.gemini import GeminiProvider
from tests.providers.responses import ResponsesProvider
from tests.providers.server import FakeProvider

from perdure.models.anthropic import AnthropicModel
from perdure.models.chat import ChatModel
from perdure.models.errors import ModelError
from perdure.models.gemini import GeminiModel
from perdure.models.messages import (
    AssistantMessage,
    CallDone,
    Entry,
    Finished,
    FunctionCall,
    FunctionSpec,
    MessageDone,
    Model,
    ModelEvent,
    ModelRequest,
    Reasoning,
    ReasoningDelta,
    ReasoningDone,
    TextDelta,
    TextPart,
    UsageTold,
    UserMessage,
)
from perdure.models.responses import ResponsesModel


class Wire(NamedTuple):
    provider: type[FakeProvider]
    model: type[ResponsesModel] | type[ChatModel] | type[AnthropicModel] | type[GeminiModel]


WIRES = {
    "responses": Wire(ResponsesProvider, ResponsesModel),
    "chat": Wire(ChatProvider, ChatModel),
    "anthropic": Wire(AnthropicProvider, AnthropicModel),
    "gemini": Wire(GeminiProvider, GeminiModel),
}
OPENAI_WIRES = {name: WIRES[name] for name in ("responses", "chat")}

LOOKUP = FunctionSpec(
    "lookup_order",
    "Look an order up.",
    {"type": "object", "properties": {"order_id": {"type": "string"}}, "required": ["order_id"]},
)

_numbers = itertools.count(1)


def user(text: str = "Hello") -> UserMessage:
    return UserMessage((TextPart(text),))


def ask(*entries: Entry, **fields: Any) -> ModelRequest:
    """A request that says hello unless there are entries."""
    return ModelRequest(
        **{"model": "test-model", "instructions": "Be brief.", "entries": entries or (user(),), **fields}
    )


async def told(model: Model, request: ModelRequest | None = None) -> list[UsageTold]:
    """What a call, failing or not, tells of its usage before its end."""
    seen: list[UsageTold] = []
    with suppress(ModelError):
        async with aclosing(model.stream(request or ask())) as events:  # type: ignore[type-var]
            async for event in events:
                if isinstance(event, UsageTold):
                    seen.append(event)
    return seen


async def collect(model: Model, request: ModelRequest | None = None) -> list[ModelEvent]:
    async with aclosing(model.stream(request or ask())) as events:  # type: ignore[type-var]
        return [event async for event in events if not isinstance(event, UsageTold)]


async def fail(model: Model, request: ModelRequest | None = None) -> tuple[list[ModelEvent], ModelError]:
    """What a failing call yields before its error."""
    seen: list[ModelEvent] = []
    try:
        async with aclosing(model.stream(request or ask())) as events:  # type: ignore[type-var]
            async for event in events:
                if not isinstance(event, UsageTold):
                    seen.append(event)
    except ModelError as error:
        return seen, error
    raise AssertionError(f"no ModelError after {seen}")


def text_of(events: Sequence[ModelEvent]) -> str:
    """The text of the only message, checked against its deltas."""
    (done,) = [event for event in events if isinstance(event, MessageDone)]
    deltas = [event.text for event in events if isinstance(event, TextDelta)]
    assert "".join(deltas) == done.text
    return done.text


def reasoning_of(events: Sequence[ModelEvent]) -> ReasoningDone:
    (done,) = [event for event in events if isinstance(event, ReasoningDone)]
    return done


def thought_of(events: Sequence[ModelEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, ReasoningDelta))


def calls_of(events: Sequence[ModelEvent]) -> list[tuple[str, str]]:
    return [(event.name, event.arguments) for event in events if isinstance(event, CallDone)]


def finish_of(events: Sequence[ModelEvent]) -> Finished:
    """The last event, and the only one of its kind."""
    (finished,) = [event for event in events if isinstance(event, Finished)]
    assert events[-1] is finished
    return finished


def entries_of(events: Sequence[ModelEvent]) -> list[Entry]:
    """The answer as history, in the order of its outputs, with call ids of our own."""
    outputs = [event for event in events if isinstance(event, MessageDone | ReasoningDone | CallDone)]
    entries: list[Entry] = []
    for output in sorted(outputs, key=lambda event: event.output):
        match output:
            case MessageDone():
                entries.append(AssistantMessage(output.text, output.phase, output.native))
            case ReasoningDone():
                if output.native is not None:
                    entries.append(Reasoning(output.summary, output.native))
            case CallDone():
                call_id = f"call_{next(_numbers):024d}"
                entries.append(FunctionCall(call_id, output.name, output.arguments, output.native))
    return entries


def call_ids(entries: Sequence[Entry]) -> list[str]:
    return [entry.call_id for entry in entries if isinstance(entry, FunctionCall)]
