"""Which item of one list corresponds to which of another: by id, or by place when the ids are others'."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from perdure.inspect.exports import Export, Resource
from perdure.inspect.jsontext import Json


@dataclass(frozen=True, slots=True)
class Pair:
    """An entry before and after; one of them is None for what was removed or added.

    `moved` says that it stands in another order among those that are in both lists.
    """

    before: Resource | None
    after: Resource | None
    moved: bool = False


def align_by_id(before: Sequence[Resource], after: Sequence[Resource]) -> list[Pair]:
    """Pairs in the order of `after`, with what was removed where it stood. Entries without id go by count."""
    old, new = _named(before), _named(after)
    in_both = [name for name in old if name in new]
    order = [name for name in new if name in old]
    matcher = SequenceMatcher(None, in_both, order, autojunk=False)
    stayed = {
        name for block in matcher.get_matching_blocks() for name in order[block.b : block.b + block.size]
    }
    pairs: list[Pair] = []
    gone = [name for name in old if name not in new]
    after_which = _predecessors(list(old), set(gone))
    pairs += [Pair(old[name], None) for name in gone if after_which[name] is None]
    for name, entry in new.items():
        pairs.append(Pair(old.get(name), entry, moved=name in old and name not in stayed))
        pairs += [Pair(old[each], None) for each in gone if after_which[each] == name]
    return pairs


def _named(entries: Sequence[Resource]) -> dict[str, Resource]:
    named: dict[str, Resource] = {}
    for entry in entries:
        name = str(entry.get("id"))
        number = 1
        while (key := name if number == 1 else f"{name} #{number}") in named:
            number += 1
        named[key] = entry
    return named


def _predecessors(names: Sequence[str], gone: set[str]) -> dict[str, str | None]:
    """For each entry that is gone, the last one before it that stayed."""
    found: dict[str, str | None] = {}
    last = None
    for name in names:
        if name in gone:
            found[name] = last
        else:
            last = name
    return found


def align_by_place(
    before: Sequence[Resource], after: Sequence[Resource], turns: tuple[Sequence[str], Sequence[str]]
) -> list[Pair]:
    """Pairs of the items of two sessions: turn by turn, and in a turn by what kind of item comes when."""
    pairs: list[Pair] = []
    count = max(len(turns[0]), len(turns[1]))
    for number in range(count + 1):
        old = _of_turn(before, turns[0], number, count)
        new = _of_turn(after, turns[1], number, count)
        matcher = SequenceMatcher(None, list(map(_shape, old)), list(map(_shape, new)), autojunk=False)
        for tag, old_from, old_to, new_from, new_to in matcher.get_opcodes():
            if tag == "equal":
                same = zip(old[old_from:old_to], new[new_from:new_to], strict=True)
                pairs += [Pair(one, other) for one, other in same]
            else:
                pairs += [Pair(each, None) for each in old[old_from:old_to]]
                pairs += [Pair(None, each) for each in new[new_from:new_to]]
    return pairs


def _of_turn(items: Sequence[Resource], turns: Sequence[str], number: int, count: int) -> list[Resource]:
    """The items of the turn of that number; those of no listed turn for the number after the last."""
    if number == count:
        return [item for item in items if item.get("turn_id") not in turns]
    return [] if number >= len(turns) else [item for item in items if item.get("turn_id") == turns[number]]


def _shape(item: Resource) -> tuple[str, str, str]:
    return str(item.get("type")), str(item.get("role")), str(item.get("name"))


def turn_ids(turns: Sequence[Resource], items: Sequence[Resource]) -> list[str]:
    """The turns in order, those included that only items name."""
    names = [str(turn.get("id")) for turn in turns]
    for item in items:
        name = item.get("turn_id")
        if isinstance(name, str) and name not in names:
            names.append(name)
    return names


def share_ids(before: Export, after: Export) -> bool:
    """Whether two exports can be matched by id: of one session, or of one and a copy that kept the ids."""
    if before.session_id is not None and before.session_id == after.session_id:
        return True
    old, new = _item_ids(before), _item_ids(after)
    return 2 * len(old & new) > min(len(old), len(new))


def _item_ids(export: Export) -> set[str]:
    return {str(item["id"]) for thread in export.threads for item in thread.items if item.get("id")}


NAMES = {
    "turn_id": "turn", "last_turn_id": "turn", "call_id": "call", "last_call_id": "call",
    "agent_id": "agent", "subagent_id": "agent", "parent_agent_id": "agent", "sender_agent_id": "agent",
    "recipient_agent_id": "agent", "session_id": "session",
}  # fmt: skip
TIMES = frozenset({"created_at", "started_at", "completed_at", "last_active_at", "opened_at", "closed_at"})


class Numbers:
    """Ids of one session as numbers of their kind, so that two sessions can be compared.

    `call_3c91`, the first call of its session, becomes `call 1`. Times and the ids of items, which say
    nothing about another session, are left out.
    """

    def __init__(self, export: Export) -> None:
        self._numbers: dict[tuple[str, str], str] = {}
        for thread in export.threads:
            # In the order of the session, whatever is compared first.
            for turn in thread.turns:
                self._value("turn_id", turn.get("id"))
            for item in thread.items:
                self.of(item)

    def of(self, entry: Resource) -> dict[str, Json]:
        """The entry with numbers in place of ids."""
        return {
            name: self._value(name, value)
            for name, value in entry.items()
            if name != "id" and name not in TIMES
        }

    def _value(self, name: str, value: Json) -> Json:
        kind = NAMES.get(name)
        if kind is not None and isinstance(value, str):
            own = sum(1 for each in self._numbers if each[0] == kind)
            return self._numbers.setdefault((kind, value), f"{kind} {own + 1}")
        if name == "recipient_agent_ids" and isinstance(value, list):
            return [self._value("recipient_agent_id", each) for each in value]
        if name == "required_actions" and isinstance(value, list):
            return [self.of(each) if isinstance(each, Mapping) else each for each in value]
        if name == "agent" and isinstance(value, Mapping):
            return {inner: each for inner, each in value.items() if inner != "id"}
        return value
