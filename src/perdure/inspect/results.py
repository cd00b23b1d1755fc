"""Which result belongs to which call: by turn and call id, and else by what the ids resemble."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher

from perdure.inspect.exports import Export
from perdure.inspect.history import Found, found_items, other_results, result_of, role_of
from perdure.inspect.jsontext import Json
from perdure.inspect.kinds import finding
from perdure.inspect.links import Finding, Orphan, Result

RESEMBLANCE = 0.7
"""How alike two call ids are, from 0 to 1, for one to be taken for a slip of the other."""


@dataclass(slots=True)
class Slot:
    """A call of the history, while its results are looked for."""

    found: Found
    results: list[Result] = field(default_factory=list)
    lookalike: bool = False


@dataclass(frozen=True, slots=True)
class Matching:
    """Every function call with its results, every result without a call, and what was wrong."""

    slots: tuple[Slot, ...]
    orphans: tuple[Orphan, ...]
    findings: tuple[Finding, ...]


def match_results(export: Export) -> Matching:
    """Give every result of an export to its call."""
    return _Matcher(export).run()


class _Matcher:
    def __init__(self, export: Export) -> None:
        items = list(found_items(export))
        self._session_id = export.session_id
        self._slots = [Slot(found) for found in items if role_of(found.item) == "call"]
        self._item_results = [result_of(found) for found in items if role_of(found.item) == "result"]
        self._other_results = list(other_results(export))
        self._async_names = _async_functions(export)
        self._owed = {
            (action.get("turn_id"), action.get("call_id"))
            for action in export.required_actions
            if action.get("type") == "function_call"
        }
        self._by_call: dict[str, list[Slot]] = defaultdict(list)
        self._by_item: dict[str, Slot] = {}
        for slot in self._slots:
            if slot.found.call_id is not None:
                self._by_call[slot.found.call_id].append(slot)
            if slot.found.place.id is not None:
                self._by_item.setdefault(slot.found.place.id, slot)
        self._findings: list[Finding] = []
        self._orphans: list[Orphan] = []

    def run(self) -> Matching:
        left = [result for result in self._item_results if not self._give(result)]
        told = [result for result in self._other_results if not self._give_told(result)]
        # Slips are looked for last, among the calls that no result has claimed.
        for result in (*left, *told):
            self._orphan(result)
            self._check_output(result)
        for slot in self._slots:
            self._check(slot)
        return Matching(tuple(self._slots), tuple(self._orphans), tuple(self._findings))

    def _give(self, result: Result) -> bool:
        slot = self._slot_of(result)
        if slot is None:
            return False
        slot.results.append(result)
        return True

    def _give_told(self, result: Result) -> bool:
        """A result that was sent and became an item is one result, not two."""
        slot = self._slot_of(result)
        if slot is None:
            return any(
                result.call_id == action_call and result.turn_id == turn_id
                for turn_id, action_call in self._owed
            )
        said = (result.success, result.output, result.error)
        same = [each for each in slot.results if (each.success, each.output, each.error) == said]
        if not same:
            slot.results.append(result)
        return True

    def _slot_of(self, result: Result) -> Slot | None:
        if result.call_id is None:
            return None
        named = self._by_call.get(result.call_id, [])
        exact = [slot for slot in named if slot.found.turn_id == result.turn_id]
        if exact:
            place = result.place
            own = [slot for slot in exact if place is None or slot.found.place.thread == place.thread]
            slot = (own or exact)[0]
            if not own:
                self._note(
                    "result_in_other_thread",
                    f"The result of {result.call_id} stands in another agent's items than the call, which "
                    f"is of {slot.found.subagent_id or 'the main agent'}.",
                    result,
                )
            return slot
        if named:
            slot = named[-1]
            # The late result of an asynchronous function belongs to the turn that it reaches.
            if slot.found.item.get("name") not in self._async_names or result.turn_id is None:
                self._note(
                    "result_turn_drifted",
                    f"The result of {result.call_id} names turn {result.turn_id or 'none'}, and the call is "
                    f"of turn {slot.found.turn_id or 'none'}. Answer with the turn_id and call_id of the "
                    "required action, unchanged.",
                    result,
                )
            return slot
        by_item = self._by_item.get(result.call_id)
        if by_item is not None:
            self._note(
                "item_id_as_call_id",
                f"A result names {result.call_id} as its call_id. That is the id of an item; the call_id of "
                f"this call is {by_item.found.call_id}.",
                result,
            )
        return by_item

    def _orphan(self, result: Result) -> None:
        meant = self._lookalike(result)
        if meant is None:
            self._orphans.append(Orphan(result))
            self._note(
                "result_without_call", f"{_source(result)} names {_ids(result)}, and no call does.", result
            )
            return
        meant.lookalike = True
        self._orphans.append(Orphan(result, meant.found.call_id))
        self._note(
            "result_id_drifted",
            f"{_source(result)} names {_ids(result)}; the call is {meant.found.call_id} of turn "
            f"{meant.found.turn_id}. The server takes a result only for the ids of the required action, "
            "letter by letter.",
            result,
        )

    def _lookalike(self, result: Result) -> Slot | None:
        """The unanswered call whose id resembles the result's, or the only one in the result's turn."""
        free = [slot for slot in self._slots if not slot.results and not slot.lookalike]
        best: tuple[float, Slot] | None = None
        for slot in free:
            if slot.found.call_id is not None and result.call_id is not None:
                matcher = SequenceMatcher(None, slot.found.call_id, result.call_id, autojunk=False)
                likeness = matcher.ratio()
                if likeness >= RESEMBLANCE and (best is None or likeness > best[0]):
                    best = likeness, slot
        if best is not None:
            return best[1]
        of_turn = [slot for slot in free if slot.found.turn_id == result.turn_id is not None]
        return of_turn[0] if len(of_turn) == 1 else None

    def _check(self, slot: Slot) -> None:
        items = [result for result in slot.results if result.place is not None]
        told = [result for result in slot.results if result.place is None]
        if len(items) > 1 or (items and told) or len(told) > 1:
            same = all(_said(result) == _said(slot.results[0]) for result in slot.results)
            kinds = "all alike" if same else "with different contents"
            self._note(
                "answered_twice",
                f"Call {slot.found.call_id} has {len(slot.results)} results, {kinds}. A server applies the "
                "first; send a stored result again unchanged, never a new one.",
                slot.results[-1],
            )
        for result in slot.results:
            self._check_output(result)

    def _check_output(self, result: Result) -> None:
        if not _is_text(result.output):
            shape = "an object" if isinstance(result.output, dict) else "no string"
            self._note(
                "output_not_text",
                f"The output of {result.call_id} is {shape}. An output is a string, or an array of "
                "input_text and input_image parts: write the value as JSON text.",
                result,
            )

    def _note(self, kind: str, text: str, result: Result) -> None:
        place = () if result.place is None else (result.place.id,)
        self._findings.append(
            finding(
                kind,
                text,
                session_id=self._session_id,
                turn_id=result.turn_id,
                call_id=result.call_id,
                items=place,
            )
        )


def _said(result: Result) -> tuple[Json, Json, Json]:
    return result.success, result.output, result.error


def _source(result: Result) -> str:
    match result.source:
        case "item":
            return "A result in the items"
        case "input":
            return "A result that was sent"
        case "journal":
            return "A result in the journal"


def _ids(result: Result) -> str:
    return f"call {result.call_id or 'none'} of turn {result.turn_id or 'none'}"


def _is_text(output: Json) -> bool:
    if output is None or isinstance(output, str):
        return True
    return isinstance(output, list) and all(
        isinstance(part, dict) and part.get("type") in ("input_text", "input_image") for part in output
    )


def _async_functions(export: Export) -> set[str]:
    agent = {} if export.session is None else export.session.get("agent") or {}
    tools: Sequence[Json] = agent.get("tools") or () if isinstance(agent, dict) else ()
    return {
        str(tool.get("name"))
        for tool in tools
        if isinstance(tool, dict) and tool.get("type") == "function" and tool.get("async") is True
    }
