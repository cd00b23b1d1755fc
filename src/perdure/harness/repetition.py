"""Calls that a model repeats: how often in a row it has made the very same ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from typing import Any

import orjson

from perdure.store.rows import ItemRow
from perdure.store.steps import Call

Outcome = tuple[str, bytes, bytes]
"""Tool, and digests of the arguments and of the result of a call."""

KEPT = 1000
"""Steps that are remembered when their items leave the model's view."""


@dataclass(frozen=True, slots=True)
class Run:
    """Steps in a row that made the same calls: with one and the same result each, and with any result."""

    same_result: int
    any_result: int


@dataclass(frozen=True, slots=True)
class Step:
    """The calls of one answer with their results, in digests."""

    outcomes: frozenset[Outcome]

    @property
    def signature(self) -> frozenset[tuple[str, bytes]]:
        return frozenset((name, arguments) for name, arguments, _ in self.outcomes)


@dataclass(frozen=True, slots=True)
class Past:
    """A history as it is looked at backwards: its rows in view, and the steps that have left it.

    Args:
        earlier: steps behind the last message of the user that has left the view, newest first.
        through_pos: rows up to here are only carried along: what followed them is `earlier`.
    """

    rows: Sequence[ItemRow]
    earlier: tuple[Step, ...] = ()
    through_pos: int = 0

    def compacted(self, through_pos: int) -> tuple[Step, ...]:
        """What is `earlier` once the rows up to `through_pos` have left the view."""
        left = [row for row in self.rows if row.pos <= through_pos]
        return tuple(islice(_steps_backwards(Past(left, self.earlier, self.through_pos)), KEPT))


def repetitions(calls: Sequence[Call], past: Past, most: int) -> Run:
    """How many steps in a row have made what `calls` would make again; no more than `most` are counted.

    Calls are the same when tool and arguments are, whatever the order of the members. A message of the
    user begins anew; steps without calls in between change nothing, and neither does a compaction.
    """
    wanted = frozenset((call.name, _digest(call.arguments)) for call in calls)
    same = total = 0
    first: frozenset[Outcome] | None = None
    is_same = True
    for step in _steps_backwards(past):
        if total >= most or step.signature != wanted:
            break
        total += 1
        first = step.outcomes if first is None else first
        is_same = is_same and step.outcomes == first
        same += is_same
    return Run(same, total)


def _steps_backwards(past: Past) -> Iterator[Step]:
    """The steps with calls behind the last message of the user, newest first."""
    results: dict[str, ItemRow] = {}
    place: tuple[str, int | None] | None = None
    calls: list[ItemRow] = []
    begins_anew = False
    for row in reversed(past.rows):
        if row.type == "message" and row.step is None:
            begins_anew = row.pos > past.through_pos
            break
        if row.type == "function_call_output":
            results[row.data["call_id"]] = row
        if row.type != "function_call":
            continue
        if calls and (row.turn_id, row.step) != place:
            yield _step(calls, results)
            calls = []
        place = (row.turn_id, row.step)
        calls.append(row)
    if calls:
        yield _step(calls, results)
    if not begins_anew:
        yield from past.earlier


def _step(calls: Sequence[ItemRow], results: Mapping[str, ItemRow]) -> Step:
    outcomes = []
    for call in calls:
        row = results.get(call.data["call_id"])
        told = None if row is None else [row.status, row.data.get("output"), row.data.get("error")]
        outcomes.append((call.data["name"], _digest(call.data["arguments"]), _digest(told)))
    return Step(frozenset(outcomes))


def _digest(value: Any) -> bytes:
    return sha256(_canonical(value)).digest()


def _canonical(value: Any) -> bytes:
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        # Integers beyond 64 bits.
        return repr(value).encode("utf-8", "replace")
