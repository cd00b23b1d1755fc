"""What the scripted model refuses: requests that real providers answer with 400."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from perdure.models.errors import ModelError
from perdure.models.messages import (
    AssistantMessage,
    Entry,
    FunctionCall,
    FunctionResult,
    FunctionSpec,
    ModelRequest,
    Native,
    Reasoning,
    ServerNote,
    UserMessage,
)

_FUNCTION_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def check_request(request: ModelRequest, provider: str) -> None:
    """Raise `ModelError` with code invalid_request if a strict provider would refuse the request."""
    if problem := _first_problem(request, provider):
        raise ModelError(
            "invalid_request", f"The scripted model refused a malformed request: {problem}.", status=400
        )


def _first_problem(request: ModelRequest, provider: str) -> str | None:
    return (
        _tools(request.tools)
        or _messages(request.entries)
        or _calls(request.entries)
        or _reasoning(request.entries, Native(provider, request.model, {}))
    )


def _tools(tools: Sequence[FunctionSpec]) -> str | None:
    names: set[str] = set()
    for index, tool in enumerate(tools):
        if not _FUNCTION_NAME.fullmatch(tool.name):
            return f"tools[{index}] has the name {tool.name!r}; allowed are 1 to 64 letters, digits, _ and -"
        if tool.name in names:
            return f"tools[{index}] repeats the name {tool.name}"
        if tool.parameters.get("type", "object") != "object":
            return f"the parameters of {tool.name} are no JSON Schema with an object root"
        names.add(tool.name)
    return None


def _messages(entries: Sequence[Entry]) -> str | None:
    if not entries:
        return "it has no entries"
    for index, entry in enumerate(entries):
        if isinstance(entry, UserMessage | ServerNote) and not entry.content:
            return f"entries[{index}] is a message without content"
    return None


def _calls(entries: Sequence[Entry]) -> str | None:
    """Each call has one result, after it and before any other message."""
    seen: set[str] = set()
    owed: dict[str, str] = {}
    for index, entry in enumerate(entries):
        match entry:
            case FunctionCall():
                if not entry.call_id or entry.call_id in seen:
                    return f"entries[{index}] has an empty or repeated call id {entry.call_id!r}"
                seen.add(entry.call_id)
                owed[entry.call_id] = entry.name
            case FunctionResult():
                if owed.pop(entry.call_id, None) is None:
                    return f"entries[{index}] is a result of {entry.call_id!r}, which has no open call"
            case UserMessage() | ServerNote() if owed:
                call_id, name = next(iter(owed.items()))
                return f"entries[{index}] is a message, but call {call_id} of {name} has no result yet"
            case _:
                continue
    if owed:
        call_id, name = next(iter(owed.items()))
        return f"call {call_id} of {name} has no result"
    return None


def _reasoning(entries: Sequence[Entry], mine: Native) -> str | None:
    """Reasoning comes back to its producer only, and only with the output that followed it."""
    for index, (entry, following) in enumerate(pairwise([*entries, None])):
        if not isinstance(entry, Reasoning):
            continue
        native = entry.native
        if (native.provider, native.model) != (mine.provider, mine.model):
            return f"entries[{index}] is reasoning of {native.provider}/{native.model}"
        if not isinstance(following, Reasoning | AssistantMessage | FunctionCall):
            return f"entries[{index}] is reasoning without the output that followed it"
        if following.native is not None and following.native.provider == mine.provider:
            expected = (native.data.get("answer"), native.data.get("output", 0) + 1)
            if (following.native.data.get("answer"), following.native.data.get("output")) != expected:
                return f"entries[{index}] is reasoning before an output that did not follow it"
    return None
