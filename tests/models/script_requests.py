"""Requests and scripts for the tests of the scripted model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from perdure.config.settings import ProviderSettings
from perdure.models.messages import (
    AssistantMessage,
    CallDone,
    Entry,
    Finished,
    FunctionCall,
    FunctionResult,
    FunctionSpec,
    MessageDone,
    ModelEvent,
    ModelRequest,
    Reasoning,
    ReasoningDone,
    TextPart,
    UserMessage,
)
from perdure.models.scripted import ScriptedModel

LOOKUP_ORDER = FunctionSpec(
    "lookup_order",
    "Look up an order by its number.",
    {
        "type": "object",
        "properties": {"order_id": {"type": "string", "pattern": r"^[A-Z]-\d{4}$"}},
        "required": ["order_id"],
        "additionalProperties": False,
    },
)


def scripted(folder: Path, text: str, **settings: Any) -> ScriptedModel:
    """A model that plays the TOML `text`."""
    path = folder / "script.toml"
    path.write_text(text, "utf-8")
    return ScriptedModel(ProviderSettings(name="scripted", protocol="scripted", script=path, **settings))


def demo() -> ScriptedModel:
    return ScriptedModel(ProviderSettings(name="scripted", protocol="scripted"))


def user(text: str) -> UserMessage:
    return UserMessage((TextPart(text),))


def call(call_id: str, name: str = "lookup_order", **arguments: Any) -> FunctionCall:
    return FunctionCall(call_id, name, json.dumps(arguments))


def result(call_id: str, content: Any, *, failed: bool = False) -> FunctionResult:
    return FunctionResult(
        call_id, content if isinstance(content, str) else json.dumps(content), failed=failed
    )


def request(*entries: Entry, **options: Any) -> ModelRequest:
    return ModelRequest(**{"model": "scripted", "instructions": "Be brief.", "entries": entries} | options)


async def play(model: ScriptedModel, asked: ModelRequest) -> list[ModelEvent]:
    events = [event async for event in model.stream(asked)]
    assert isinstance(events[-1], Finished)
    return events


async def answer(model: ScriptedModel, asked: ModelRequest) -> str:
    """The joined text of the messages."""
    return "".join(event.text for event in await play(model, asked) if isinstance(event, MessageDone))


async def calls(model: ScriptedModel, asked: ModelRequest) -> list[tuple[str, str]]:
    return [
        (event.name, event.arguments) for event in await play(model, asked) if isinstance(event, CallDone)
    ]


def as_history(events: list[ModelEvent], prefix: str = "call") -> list[Entry]:
    """An answer as the entries that the next request shows."""
    entries: list[Entry] = []
    for event in events:
        match event:
            case MessageDone():
                entries.append(AssistantMessage(event.text, event.phase, event.native))
            case ReasoningDone(native=native) if native is not None:
                entries.append(Reasoning(event.summary, native))
            case CallDone():
                entries.append(
                    FunctionCall(f"{prefix}_{event.output}", event.name, event.arguments, event.native)
                )
    return entries
