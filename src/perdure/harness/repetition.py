"""Calls that a model repeats: how often in a row it has made the very same ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import orjson

from perdure.store.rows import ItemRow
from perdure.store.steps import Call

Outcome = tuple[str, bytes, bytes]
"""Tool, arguments and digest of the result of a call."""


@dataclass(frozen=True, slots=True)
class Run:
    """Steps in a row that made the same calls: with one and the same result each, and with any result."""

    same_result: int
    any_result: int


def repetitions(calls: Sequence[Call], history: Sequence[ItemRow], most: int) -> Run:
    """How many steps in a row have made what `calls` would make again; no more than `most` are counted.

    Calls are the same when tool and arguments are, whatever the order of the members. A message of the
    user begins anew; steps without calls in between change nothing.
    """
    wanted = frozenset((call.name, _canonical(call.arguments)) for call in calls)
    same = total = 0
    first: frozenset[Outcome] | None = None
    is_same = True
    for step in _steps_backwards(history):
        if total >= most or step.signature != wanted:
            break
        total += 1
        outcomes = step.outcomes
        first = outcomes if first is None else first
        is_same = is_same and outcomes == first
        same += is_same
    return Run(same, total)


@dataclass(slots=True)
class _Step:
    """The calls of one answer, and the results there are of them."""

    calls: list[ItemRow]
    results: Mapping[str, ItemRow]

    @property
    def signature(self) -> frozenset[tuple[str, bytes]]:
        return frozenset((row.data["name"], _canonical(row.data["arguments"])) for row in self.calls)

    @property
    def outcomes(self) -> frozenset[Outcome]:
        return frozenset(
            (row.data["name"], _canonical(row.data["arguments"]), self._digest(row.data["call_id"]))
            for row in self.calls
        )

    def _digest(self, call_id: str) -> bytes:
        row = self.results.get(call_id)
        if row is None:
            return b""
        told = [row.status, row.data.get("output"), row.data.get("error")]
        return sha256(_canonical(told)).digest()


def _steps_backwards(history: Sequence[ItemRow]) -> Iterator[_Step]:
    """The steps with calls behind the last message of the user, newest first."""
    results: dict[str, ItemRow] = {}
    place: tuple[str, int | None] | None = None
    calls: list[ItemRow] = []
    for row in reversed(history):
        if row.type == "message" and row.step is None:
            break
        if row.type == "function_call_output":
            results[row.data["call_id"]] = row
        if row.type != "function_call":
            continue
        if calls and (row.turn_id, row.step) != place:
            yield _Step(calls, results)
            calls = []
        place = (row.turn_id, row.step)
        calls.append(row)
    if calls:
        yield _Step(calls, results)


def _canonical(value: Any) -> bytes:
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        # Integers beyond 64 bits.
        return repr(value).encode("utf-8", "replace")
