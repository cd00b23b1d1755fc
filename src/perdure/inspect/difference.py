"""What differs between two exports, or two other JSON documents."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from perdure.inspect.alignment import (
    Numbers,
    Pair,
    align_by_id,
    align_by_place,
    share_ids,
    turn_ids,
)
from perdure.inspect.callcheck import call_ids
from perdure.inspect.exports import Export, Resource, Thread
from perdure.inspect.faults import BadQuestion
from perdure.inspect.history import subagent_id_of
from perdure.inspect.jsontext import Json
from perdure.inspect.operations import Operation, operations

Aligned = Literal["id", "place", "path"]


@dataclass(frozen=True, slots=True)
class Change:
    """An entry that differs. `name` is its id before, or after for one that was added."""

    kind: Literal["added", "removed", "changed", "moved"]
    name: str | None
    before: Resource | None
    after: Resource | None
    operations: tuple[Operation, ...] = ()

    @property
    def entry(self) -> Resource:
        """The entry as it is now, or as it was."""
        return self.after or self.before or {}


@dataclass(frozen=True, slots=True)
class Section:
    """The changes of one list or document: `session`, `turns`, `items`, `ledger`, `items of sub_1`, …"""

    name: str
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """Everything that differs; `aligned_by` says how entries were matched."""

    aligned_by: Aligned
    sections: tuple[Section, ...]

    @property
    def is_empty(self) -> bool:
        """Whether nothing differs."""
        return not self.sections

    def document(self) -> dict[str, Json]:
        """The difference as a JSON document."""
        return {
            "object": "perdure.diff",
            "version": 1,
            "aligned_by": self.aligned_by,
            "sections": [
                {"name": section.name, "changes": [_change_document(change) for change in section.changes]}
                for section in self.sections
            ],
        }


def _change_document(change: Change) -> dict[str, Json]:
    document: dict[str, Json] = {"kind": change.kind, "name": change.name}
    match change.kind:
        case "added":
            document["after"] = change.after
        case "removed":
            document["before"] = change.before
        case "changed" | "moved":
            names = ("type", "turn_id", "call_id")
            document |= {name: change.entry[name] for name in names if name in change.entry}
            document["operations"] = [each.document() for each in change.operations]
    return document


def compare(before: Export, after: Export, *, call: str | None = None) -> Difference:
    """Compare two exports: of one session at two times by id, of two sessions by place.

    Args:
        before: one export.
        after: the other one.
        call: look at the items of this call alone, or of the calls that hold this business id.

    Raises:
        BadQuestion: no call fits `call`, or `jsonpatch` is not installed.
    """
    by_id = share_ids(before, after)
    comparison = _ById() if by_id else _ByPlace(before, after)
    sections = list(_sections(comparison, before, after))
    if call is not None:
        names = call_ids(before, call) | call_ids(after, call)
        if not names:
            raise BadQuestion(f"There is no call {call} on either side, and no call or result that holds it.")
        sections = [_of_calls(section, names) for section in sections if section.name.startswith("items")]
    return Difference("id" if by_id else "place", tuple(each for each in sections if each.changes))


def compare_json(before: Json, after: Json) -> Difference:
    """Compare two JSON documents of any kind, ledgers for example, by path.

    Raises:
        BadQuestion: `jsonpatch` is not installed.
    """
    return Difference("path", _document("document", before, after))


def _of_calls(section: Section, names: Collection[str]) -> Section:
    kept = [
        change
        for change in section.changes
        if any(entry is not None and entry.get("call_id") in names for entry in (change.before, change.after))
    ]
    return Section(section.name, tuple(kept))


def _sections(comparison: _ById | _ByPlace, before: Export, after: Export) -> Iterator[Section]:
    if before.session is not None and after.session is not None:
        yield from _document(
            "session",
            comparison.old(before.session),
            comparison.new(after.session),
            before.session,
            after.session,
        )
    for name, old, new in _threads(before, after, comparison):
        of = "" if name is None else f" of {name}"
        if name is not None and old.subagent is not None and new.subagent is not None:
            yield from _document(
                f"subagent {name}", comparison.old(old.subagent), comparison.new(new.subagent)
            )
        yield Section(f"turns{of}", comparison.changes(comparison.turns(old, new)))
        yield Section(f"items{of}", comparison.changes(comparison.items(old, new)))
    for name, old_value, new_value in (
        ("ledger", before.ledger, after.ledger),
        ("journal", _list(before.journal), _list(after.journal)),
        ("inputs", _list(before.inputs), _list(after.inputs)),
    ):
        if old_value is not None or new_value is not None:
            yield from _document(name, old_value, new_value)


def _list(entries: Sequence[Resource] | None) -> list[Resource] | None:
    return list(entries) if entries else None


def _document(
    name: str, old: Json, new: Json, before: Resource | None = None, after: Resource | None = None
) -> tuple[Section, ...]:
    found = operations(old, new)
    if not found:
        return ()
    return (Section(name, (Change("changed", None, before, after, found),)),)


def _threads(
    before: Export, after: Export, comparison: _ById | _ByPlace
) -> Iterator[tuple[str | None, Thread, Thread]]:
    """The root threads, then those of subagents: by id, or one after the other."""
    yield None, Thread(before.turns, before.items), Thread(after.turns, after.items)
    nothing = Thread((), ())
    if isinstance(comparison, _ById):
        old = {subagent_id_of(part): part for part in before.subagents}
        new = {subagent_id_of(part): part for part in after.subagents}
        for name in dict.fromkeys((*old, *new)):
            yield name, old.get(name, nothing), new.get(name, nothing)
        return
    for number in range(max(len(before.subagents), len(after.subagents))):
        parts = [
            each.subagents[number] if number < len(each.subagents) else nothing for each in (before, after)
        ]
        yield f"subagent {number + 1}", parts[0], parts[1]


class _ById:
    """Two times of one session: the same id is the same thing."""

    def old(self, entry: Resource) -> Resource:
        return entry

    def new(self, entry: Resource) -> Resource:
        return entry

    def turns(self, old: Thread, new: Thread) -> list[Pair]:
        return align_by_id(old.turns, new.turns)

    def items(self, old: Thread, new: Thread) -> list[Pair]:
        return align_by_id(old.items, new.items)

    def changes(self, pairs: Sequence[Pair]) -> tuple[Change, ...]:
        return _changes(pairs, self)


class _ByPlace:
    """Two sessions: ids are compared by their order of appearance."""

    def __init__(self, before: Export, after: Export) -> None:
        self._old, self._new = Numbers(before), Numbers(after)

    def old(self, entry: Resource) -> Resource:
        return self._old.of(entry)

    def new(self, entry: Resource) -> Resource:
        return self._new.of(entry)

    def turns(self, old: Thread, new: Thread) -> list[Pair]:
        count = max(len(old.turns), len(new.turns))
        pad: list[Resource | None] = [None] * count
        sides = [(*part.turns, *pad)[:count] for part in (old, new)]
        return [Pair(one, other) for one, other in zip(*sides, strict=True)]

    def items(self, old: Thread, new: Thread) -> list[Pair]:
        turns = turn_ids(old.turns, old.items), turn_ids(new.turns, new.items)
        return align_by_place(old.items, new.items, turns)

    def changes(self, pairs: Sequence[Pair]) -> tuple[Change, ...]:
        return _changes(pairs, self)


def _changes(pairs: Sequence[Pair], comparison: _ById | _ByPlace) -> tuple[Change, ...]:
    found = []
    for pair in pairs:
        old = None if pair.before is None else comparison.old(pair.before)
        new = None if pair.after is None else comparison.new(pair.after)
        name = _name(pair.before) or _name(pair.after)
        if old is None:
            found.append(Change("added", name, None, pair.after))
        elif new is None:
            found.append(Change("removed", name, pair.before, None))
        else:
            steps = operations(old, new)
            if steps or pair.moved:
                found.append(Change("changed" if steps else "moved", name, pair.before, pair.after, steps))
    return tuple(found)


def _name(entry: Resource | None) -> str | None:
    name = None if entry is None else entry.get("id")
    return name if isinstance(name, str) else None
