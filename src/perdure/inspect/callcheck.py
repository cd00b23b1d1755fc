"""A call against its result: whether what came back is about what was asked for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from perdure.inspect.business import ids_in
from perdure.inspect.chain import build_chain
from perdure.inspect.exports import Export
from perdure.inspect.faults import BadQuestion
from perdure.inspect.jsontext import Json, leaves, opened
from perdure.inspect.links import Call, Result
from perdure.inspect.paths import normalised


@dataclass(frozen=True, slots=True)
class Comparison:
    """A value of a call's arguments beside one of its output, by normalised paths within each.

    `differs` is a value that the result gives back otherwise than it was asked for.
    """

    kind: Literal["same", "differs", "only_asked", "only_answered"]
    asked_at: str | None
    answered_at: str | None
    asked: Json
    answered: Json


@dataclass(frozen=True, slots=True)
class CallComparison:
    """A call with one of its results; without result, `result` is None and nothing is compared."""

    call: Call
    result: Result | None
    comparisons: tuple[Comparison, ...]

    @property
    def drifted(self) -> bool:
        """Whether something came back otherwise than it was asked for."""
        return any(each.kind == "differs" for each in self.comparisons)


def compare_call(export: Export, name: str) -> tuple[CallComparison, ...]:
    """Compare calls with their results.

    Args:
        export: the session.
        name: a call_id, the id of a call's or a result's item, or a business id that stands in the
            arguments or the output of the calls that are wanted.

    Raises:
        BadQuestion: no call fits `name`.
    """
    found = _find(export, name)
    if not found:
        raise BadQuestion(f"There is no call {name}, and no call or result that holds it.")
    return tuple(each for call in found for each in _compared(call))


def call_ids(export: Export, name: str) -> set[str]:
    """The call_ids of the calls that `name` means, as `compare_call` understands it; empty for none."""
    return {call.call_id for call in _find(export, name) if call.call_id is not None}


def _find(export: Export, name: str) -> list[Call]:
    calls = list(build_chain(export).calls())
    named = [call for call in calls if _is_named(call, name)]
    return named or [call for call in calls if name in ids_in((call.arguments, *_outputs(call)))]


def _is_named(call: Call, name: str) -> bool:
    places = [call.place, *(result.place for result in call.results)]
    return call.call_id == name or any(place is not None and place.id == name for place in places)


def _outputs(call: Call) -> Iterator[Json]:
    for result in call.results:
        yield _said(result)


def _compared(call: Call) -> Iterator[CallComparison]:
    if not call.results:
        yield CallComparison(call, None, ())
    for result in call.results:
        yield CallComparison(call, result, tuple(_compare(call.arguments, _said(result))))


def _said(result: Result) -> Json:
    """What a result says: the output, or of several text parts their text."""
    output = result.output
    if isinstance(output, list):
        texts = [part.get("text") for part in output if isinstance(part, dict)]
        output = "".join(text for text in texts if isinstance(text, str))
    return opened(output)


def _compare(arguments: Json, output: Json) -> Iterator[Comparison]:
    asked, answered = dict(leaves(arguments)), dict(leaves(output))
    pairs = {location: location for location in asked if location in answered and location}
    taken = set(pairs.values())
    for location in asked:
        # The same name deeper in the result, if there is just one of it.
        if location not in pairs and location:
            same = [each for each in answered if each and each[-1] == location[-1] and each not in taken]
            if len(same) == 1 and isinstance(location[-1], str):
                pairs[location] = same[0]
                taken.add(same[0])
    for location, value in asked.items():
        if location in pairs:
            other = answered[pairs[location]]
            kind: Literal["same", "differs"] = "same" if _equal(value, other) else "differs"
            yield Comparison(kind, normalised(location), normalised(pairs[location]), value, other)
        else:
            yield Comparison("only_asked", normalised(location), None, value, None)
    for location, value in answered.items():
        if location not in taken:
            yield Comparison("only_answered", None, normalised(location), None, value)


def _equal(one: Json, other: Json) -> bool:
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)
