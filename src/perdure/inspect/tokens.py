"""What turns and sessions have used. Unknown stays unknown, and never becomes zero."""

from __future__ import annotations

from collections.abc import Iterable

from perdure.inspect.exports import Resource
from perdure.inspect.history import int_or_none
from perdure.inspect.links import RUNNING, Tokens, TurnLink


def tokens_of(resource: Resource) -> Tokens | None:
    """The usage of a turn or a session, if its server knows it."""
    match resource.get("usage"):
        case {"input_tokens": given, "output_tokens": made, "total_tokens": total}:
            numbers = [int_or_none(each) for each in (given, made, total)]
        case _:
            return None
    known = [number for number in numbers if number is not None]
    return Tokens(*known) if len(known) == 3 else None


def sum_of(turns: Iterable[TurnLink]) -> Tokens | None:
    """What an agent has used in the turns that it has ended; None if that of one is not known."""
    ended = [turn for turn in turns if turn.is_listed and turn.status not in RUNNING]
    known = [turn.usage for turn in ended if turn.usage is not None]
    if not ended or len(known) < len(ended):
        return None
    return Tokens(
        sum(each.input for each in known),
        sum(each.output for each in known),
        sum(each.total for each in known),
    )
