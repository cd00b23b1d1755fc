"""The last look at a request before it leaves: a history that a provider would refuse is a bug of ours."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field

from perdure.models.messages import (
    AssistantMessage,
    Entry,
    FunctionCall,
    FunctionResult,
    ModelRequest,
    Reasoning,
    ServerNote,
    UserMessage,
)


class InvalidHistory(Exception):
    """A request breaks the rules that every provider shares."""


@dataclass(slots=True)
class Checked:
    """How many of a conversation's settled entries are known to be sound, and the calls among them."""

    entries: int = 0
    calls: set[str] = field(default_factory=set)


def check_request(request: ModelRequest, checked: Checked | None = None) -> None:
    """Verify pairing and order; what is `checked` already is left out, and what is settled is added to it.

    Raises:
        InvalidHistory: a call without exactly one result right behind its step, a result without a
            call, or reasoning that nothing follows.
    """
    checked = checked or Checked()
    if request.settled > checked.entries:
        checked.calls |= _check(request.entries[checked.entries : request.settled], checked.calls)
        checked.entries = request.settled
    _check(request.entries[checked.entries :], checked.calls)


def _check(entries: Sequence[Entry], earlier: Set[str]) -> set[str]:
    """The calls of a stretch of whole steps; `earlier` ones must not come again."""
    owed: list[str] = []
    seen: set[str] = set()
    answering = False
    reasoning = False
    for entry in entries:
        if answering and not isinstance(entry, FunctionResult):
            if owed:
                raise InvalidHistory(f"call {owed[0]} has no result behind its step")
            answering = False
        match entry:
            case FunctionCall():
                if entry.call_id in seen or entry.call_id in earlier:
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
    return seen
