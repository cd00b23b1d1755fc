"""The last look at a request before it leaves: a history that a provider would refuse is a bug of ours."""

from __future__ import annotations

from perdure.models.messages import (
    AssistantMessage,
    FunctionCall,
    FunctionResult,
    ModelRequest,
    Reasoning,
    ServerNote,
    UserMessage,
)


class InvalidHistory(Exception):
    """A request breaks the rules that every provider shares."""


def check_request(request: ModelRequest) -> None:
    """Verify pairing and order.

    Raises:
        InvalidHistory: a call without exactly one result right behind its step, a result without a
            call, or reasoning that nothing follows.
    """
    owed: list[str] = []
    seen: set[str] = set()
    answering = False
    reasoning = False
    for entry in request.entries:
        if answering and not isinstance(entry, FunctionResult):
            if owed:
                raise InvalidHistory(f"call {owed[0]} has no result behind its step")
            answering = False
        match entry:
            case FunctionCall():
                if entry.call_id in seen:
                    raise InvalidHistory(f"call {entry.call_id} appears twice")
                seen.add(entry.call_id)
                owed.append(entry.call_id)
                reasoning = False
            case FunctionResult():
                if entry.call_id not in owed:
                    raise InvalidHistory(f"the result of {entry.call_id} has no call before it")
                owed.remove(entry.call_id)
                answering = True
                reasoning = False
            case AssistantMessage():
                reasoning = False
            case Reasoning():
                reasoning = True
            case UserMessage() | ServerNote():
                if owed:
                    raise InvalidHistory(f"call {owed[0]} has no result behind its step")
                if reasoning:
                    raise InvalidHistory("reasoning is followed by no output")
    if owed:
        raise InvalidHistory(f"call {owed[0]} has no result behind its step")
    if reasoning:
        raise InvalidHistory("reasoning is followed by no output")
