"""`/perdure/v1/sessions/{session_id}/context`: what the model sees now. An extension."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, assert_never

from fastapi import Query, Response
from pydantic import BaseModel

from perdure.api.access import UseCaller, UseServices, json_response
from perdure.api.routing import router
from perdure.api.services import Services
from perdure.harness.context import build_request, request_tokens
from perdure.harness.conversation import Conversation
from perdure.harness.facts import pinned_facts
from perdure.harness.room import Room, Windows
from perdure.harness.tokens import entry_tokens, fixed_tokens
from perdure.models.messages import (
    AssistantMessage,
    Entry,
    FunctionCall,
    FunctionResult,
    ModelRequest,
    Part,
    Reasoning,
    ServerNote,
    TextPart,
    UserMessage,
)
from perdure.models.registry import UnknownModel
from perdure.store.compactions import Compaction
from perdure.store.contexts import Context, read_context
from perdure.wire.errors import ModelNotFound

routes = router("/perdure/v1/sessions", "extensions")

Role = Literal["user", "assistant", "reasoning", "call", "result", "server"]
LONGEST_URL = 100
OPAQUE = "(Compacted by the provider, in a form that its own model alone can read. Any other one is told:)"


class ContextEntry(BaseModel):
    """One entry of the model's view; `tokens` is estimated."""

    role: Role
    text: str
    call_id: str | None = None
    name: str | None = None
    tokens: int


class ContextRoom(BaseModel):
    """The model's window in tokens; at `trigger` the history is compacted. `known`: not assumed."""

    window: int
    known: bool
    trigger: int


class ContextTokens(BaseModel):
    """Estimated tokens of the next request, and what the provider last reported before a compaction."""

    total: int
    fixed: int
    history: int
    reported: int | None


class Pin(BaseModel):
    """A fact that is restated after every compaction."""

    name: str
    value: str
    source: str
    kind: Literal["application", "path", "rule"]


class CompactionInfo(BaseModel):
    """What one compaction did. `dropped` says which items left the view; they can be listed as before.

    `native`: the provider compacted them itself; `summary` is what any other model is told then.
    """

    number: int
    created_at: int
    method: Literal["native", "summary", "trim"]
    model: dict[str, str] | None
    summary: str
    tokens: dict[str, int | None]
    dropped: dict[str, Any]


class SessionContext(BaseModel):
    """What the model of an agent would be shown now, and what is left of what it no longer is."""

    object: Literal["perdure.session.context"] = "perdure.session.context"
    session_id: str
    agent_id: str
    provider: str
    model: str
    room: ContextRoom
    tokens: ContextTokens
    instructions: str
    functions: list[str]
    entries: list[ContextEntry]
    compactions: list[CompactionInfo]
    pins: list[Pin]


@routes.get("/{session_id}/context", response_model=SessionContext)
async def context(
    services: UseServices,
    caller: UseCaller,
    session_id: str,
    agent_id: Annotated[str | None, Query(description="A subagent; the root agent if left out.")] = None,
) -> Response:
    """What the model sees of a session now, what each compaction dropped, and the facts that are kept."""
    found = await services.store.read(read_context, session_id, caller.project_id, agent_id)
    return json_response(_shown(services, found))


def _shown(services: Services, context: Context) -> SessionContext:
    boundary = context.boundary
    model = boundary.turn_config.settings.model
    try:
        resolved = services.registry.resolve(model)
    except UnknownModel:
        raise ModelNotFound(model, "agent.model") from None
    room = Room.of(resolved, services.settings, Windows())
    conversation = Conversation(context.history.items, context.history.compaction)
    request = build_request(boundary, conversation, resolved, services.settings, room)
    newest = context.history.compaction
    return SessionContext(
        session_id=boundary.lease.session_id,
        agent_id=boundary.agent_id,
        provider=resolved.provider,
        model=resolved.upstream,
        room=ContextRoom(window=room.window, known=room.is_known, trigger=room.trigger),
        tokens=ContextTokens(
            total=request_tokens(request, conversation, resolved),
            fixed=fixed_tokens(request),
            history=conversation.estimate,
            reported=None if newest is None else newest.tokens.get("reported"),
        ),
        instructions=request.instructions,
        functions=[tool.name for tool in request.tools],
        entries=_entries(request),
        compactions=[_compaction(each) for each in context.compactions],
        pins=_pins(boundary.metadata, newest),
    )


def _entries(request: ModelRequest) -> list[ContextEntry]:
    names = {entry.call_id: entry.name for entry in request.entries if isinstance(entry, FunctionCall)}
    return [_entry(entry, names) for entry in request.entries]


def _entry(entry: Entry, names: dict[str, str]) -> ContextEntry:
    tokens = entry_tokens(entry)
    match entry:
        case UserMessage():
            return ContextEntry(role="user", text=_text(entry.content), tokens=tokens)
        case ServerNote():
            text = _text(entry.content)
            if entry.compacted is not None:
                text = f"{OPAQUE}\n\n{text}"
            return ContextEntry(role="server", text=text, tokens=tokens)
        case AssistantMessage():
            return ContextEntry(role="assistant", text=entry.text, tokens=tokens)
        case Reasoning():
            return ContextEntry(role="reasoning", text="\n".join(entry.summary), tokens=tokens)
        case FunctionCall():
            return ContextEntry(
                role="call", text=entry.arguments, call_id=entry.call_id, name=entry.name, tokens=tokens
            )
        case FunctionResult():
            text = entry.content if isinstance(entry.content, str) else _text(entry.content)
            name = names.get(entry.call_id)
            return ContextEntry(role="result", text=text, call_id=entry.call_id, name=name, tokens=tokens)
    assert_never(entry)


def _text(parts: Sequence[Part]) -> str:
    return "\n".join(
        part.text if isinstance(part, TextPart) else f"[image: {part.image_url[:LONGEST_URL]}]"
        for part in parts
    )


def _compaction(compaction: Compaction) -> CompactionInfo:
    return CompactionInfo(
        number=compaction.number,
        created_at=compaction.created_us // 1_000_000,
        method=compaction.method,
        model=None if compaction.model is None else dict(compaction.model),
        summary=compaction.data["summary"],
        tokens=dict(compaction.tokens),
        dropped=dict(compaction.dropped),
    )


def _pins(metadata: Any, newest: Compaction | None) -> list[Pin]:
    pins = [
        Pin(name=name, value=value, source="metadata", kind="application")
        for name, value in pinned_facts(metadata).items()
    ]
    for pin in () if newest is None else newest.pins:
        pins.append(Pin(name=pin["name"], value=pin["value"], source=pin["source"], kind=pin["kind"]))
    return pins
