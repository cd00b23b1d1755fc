"""The chain of a session: its objects hung on one another by their ids, and what does not fit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from perdure.inspect.business import chat_only_ids
from perdure.inspect.exports import Export, Resource, Thread, texts_of
from perdure.inspect.history import (
    ROLES,
    Found,
    coordination_of,
    found_items,
    int_or_none,
    message_of,
    owed_of,
    role_of,
    subagent_id_of,
    text_or_none,
    work_of,
)
from perdure.inspect.kinds import finding
from perdure.inspect.ledgers import check_ledger
from perdure.inspect.links import Call, CallState, Chain, Entry, ThreadLink, TurnLink
from perdure.inspect.nesting import nested
from perdure.inspect.reports import link_reports
from perdure.inspect.results import Matching, Slot, match_results
from perdure.inspect.states import check_states
from perdure.inspect.subagents import link_subagents
from perdure.inspect.tokens import sum_of, tokens_of

ENDED = frozenset({"completed", "failed", "cancelled"})


def build_chain(export: Export, *, id_patterns: Sequence[str] = ()) -> Chain:
    """Rebuild the links of a session.

    Every item of the export is in exactly one entry of the chain: a call holds its own item and those of
    its results.

    Args:
        export: the session as it was read.
        id_patterns: regular expressions of business ids, beside those that the session shows itself.

    Raises:
        BadQuestion: a pattern is no regular expression that can be used.
    """
    builder = _Builder(export, match_results(export))
    linked = link_subagents(export, builder.threads())
    told = link_reports(export, linked.threads)
    findings = [*builder.findings, *linked.findings, *told.findings]
    session = export.session or {}
    agent = session.get("agent")
    chain = Chain(
        session_id=export.session_id,
        status=text_or_none(session.get("status")),
        error=session.get("error"),
        model=text_or_none(agent.get("model")) if isinstance(agent, Mapping) else None,
        created_at=int_or_none(session.get("created_at")),
        owed=tuple(owed_of(action) for action in export.required_actions),
        threads=nested(told.threads),
        findings=(),
        usage=tokens_of(session),
    )
    findings += check_states(export, chain)
    findings += check_ledger(export, chain)
    findings += chat_only_ids(export, id_patterns)
    order = {"problem": 0, "note": 1}
    return Chain(
        **{name: getattr(chain, name) for name in Chain.__dataclass_fields__ if name != "findings"},
        findings=tuple(sorted(findings, key=lambda each: order[each.severity])),
    )


class _Builder:
    def __init__(self, export: Export, matching: Matching) -> None:
        self._export = export
        self._matching = matching
        self.findings = [*matching.findings]
        self._slots = {_key(slot.found): slot for slot in matching.slots}
        self._owed = [action for action in export.required_actions if action.get("type") == "function_call"]
        self._orphans = {
            (orphan.result.place.thread, orphan.result.place.index): orphan
            for orphan in matching.orphans
            if orphan.result.place is not None
        }
        self._turns = {
            text_or_none(turn.get("id")): (turn, thread) for thread in export.threads for turn in thread.turns
        }
        self._owed_slots = {id(slot): action for action, slot in self._claims()}

    def threads(self) -> tuple[ThreadLink, ...]:
        """The root agent's thread, then those of the subagents, in the export's order."""
        found = list(found_items(self._export))
        links = []
        for number, thread in enumerate(self._export.threads):
            own = [each for each in found if each.place.thread == number]
            links.append(self._thread(thread, subagent_id_of(thread), own))
        return tuple(links)

    def _thread(self, thread: Thread, subagent_id: str | None, own: Iterable[Found]) -> ThreadLink:
        entries: dict[str | None, list[Entry]] = {text_or_none(turn.get("id")): [] for turn in thread.turns}
        for found in own:
            self._check_turn(found)
            entry = self._entry(found)
            if entry is not None:
                entries.setdefault(found.turn_id, []).append(entry)
        if thread.subagent is None:
            for turn_id, entry in self._without_item():
                entries.setdefault(turn_id, []).append(entry)
        listed = {text_or_none(turn.get("id")): turn for turn in thread.turns}
        turns = tuple(_turn(turn_id, listed.get(turn_id), tuple(each)) for turn_id, each in entries.items())
        return ThreadLink(
            agent_id=self._agent_id(thread),
            subagent_id=subagent_id,
            name=self._name(thread),
            status=None if thread.subagent is None else text_or_none(thread.subagent.get("status")),
            parent_agent_id=None
            if thread.subagent is None
            else text_or_none(thread.subagent.get("parent_agent_id")),
            turns=turns,
            task=None if thread.subagent is None else " ".join(texts_of(thread.subagent)) or None,
            usage=sum_of(turns),
        )

    def _entry(self, found: Found) -> Entry | None:
        match role_of(found.item):
            case "call":
                return self._call(self._slots[_key(found)])
            case "result":
                return self._orphans.get(_key(found))
            case "message":
                return message_of(found)
            case "coordination":
                return coordination_of(found)
            case "work":
                if found.place.type not in ROLES:
                    self._note(
                        "unknown_item_type",
                        f"There is no item of type {found.place.type!r} in the protocol. Agents are "
                        "coordinated by create_subagent_call and its like; a handoff is an object of the "
                        "application.",
                        found,
                    )
                return work_of(found)

    def _call(self, slot: Slot) -> Call:
        item = slot.found.item
        if slot.found.subagent_id is not None or self._is_of_subagent(slot.found):
            self._note(
                "function_call_by_subagent",
                f"Call {slot.found.call_id} of {item.get('name')} was made by a subagent. Function tools "
                "belong to the main agent alone.",
                slot.found,
            )
        return Call(
            call_id=slot.found.call_id,
            turn_id=slot.found.turn_id,
            name=text_or_none(item.get("name")),
            arguments=item.get("arguments"),
            state=self._state(slot),
            results=tuple(slot.results),
            place=slot.found.place,
        )

    def _state(self, slot: Slot) -> CallState:
        action = self._owed_slots.get(id(slot))
        applied = [result for result in slot.results if result.place is not None]
        if action is not None:
            self._check_owed(slot, action)
            return "owed"
        if applied or (slot.results and self._export.session is None):
            return "failed" if slot.results[0].success is False else "answered"
        if self._export.session is None:
            return "mismatched" if slot.lookalike else "unknown"
        turn, _ = self._turns.get(slot.found.turn_id, ({}, None))
        if slot.lookalike:
            return "mismatched"
        if turn.get("status") in ("cancelled", "failed") or slot.found.place.status == "incomplete":
            missing = "its result was not applied" if slot.results else "it has no result"
            self._note(
                "call_dropped",
                f"Call {slot.found.call_id} of {slot.found.item.get('name')} ended with its turn"
                f"{_because(turn)}: {missing}. Nothing is owed; whether the function ran, only the "
                "application knows.",
                slot.found,
            )
            return "dropped"
        if self._export.session.get("status") not in ("in_progress", "requires_action"):
            self._note(
                "call_not_owed",
                f"Call {slot.found.call_id} of {slot.found.item.get('name')} stands in the history without a "
                "result, and required_actions does not list it: nothing is owed. Do not run it again.",
                slot.found,
            )
        return "unanswered"

    def _check_owed(self, slot: Slot, action: Resource) -> None:
        if slot.found.turn_id != action.get("turn_id"):
            self._note(
                "owed_turn_drifted",
                f"required_actions names turn {action.get('turn_id')} for call {slot.found.call_id}, and "
                f"its item turn {slot.found.turn_id}.",
                slot.found,
            )
        sources = {result.source for result in slot.results}
        if "item" in sources:
            self._note(
                "owed_but_answered",
                f"Call {slot.found.call_id} is owed although its result is in the items. Read the session "
                "again.",
                slot.found,
            )
        elif sources:
            self._note(
                "sent_but_owed",
                f"A result of call {slot.found.call_id} was recorded or sent, and the call is still owed. "
                "Send that result again, with the same ids.",
                slot.found,
            )

    def _claims(self) -> Iterable[tuple[Resource, Slot]]:
        """Each owed function call with its item: the one of the same turn, else the newest."""
        for action in self._owed:
            named = [s for s in self._matching.slots if s.found.call_id == action.get("call_id") is not None]
            exact = [slot for slot in named if slot.found.turn_id == action.get("turn_id")]
            if named:
                yield action, (exact or named)[-1]

    def _without_item(self) -> Iterable[tuple[str | None, Entry]]:
        """What has no item: calls that only the session lists, and results that were only told."""
        claimed = list(self._owed_slots.values())
        for action in self._owed:
            if not any(action is each for each in claimed):
                turn_id, call_id = text_or_none(action.get("turn_id")), text_or_none(action.get("call_id"))
                yield (
                    turn_id,
                    Call(call_id, turn_id, text_or_none(action.get("name")), action.get("arguments"), "owed"),
                )
        for orphan in self._matching.orphans:
            if orphan.result.place is None:
                yield orphan.result.turn_id, orphan

    def _check_turn(self, found: Found) -> None:
        if self._export.session is None and not self._turns:
            return
        if found.turn_id not in self._turns:
            self._note(
                "unknown_turn",
                f"Item {found.place.id or found.place.index} names turn {found.turn_id or 'none'}, which "
                "the session does not list.",
                found,
            )
            return
        _, thread = self._turns[found.turn_id]
        owner = subagent_id_of(thread)
        if owner != found.subagent_id:
            self._note(
                "wrong_thread",
                f"Item {found.place.id or found.place.index} stands among the items of "
                f"{found.subagent_id or 'the main agent'}, and its turn {found.turn_id} is of "
                f"{owner or 'the main agent'}. Keep the lists apart.",
                found,
            )

    def _is_of_subagent(self, found: Found) -> bool:
        turn, thread = self._turns.get(found.turn_id, ({}, None))
        return bool(turn.get("subagent_id")) or (thread is not None and thread.subagent is not None)

    def _agent_id(self, thread: Thread) -> str | None:
        if thread.subagent is not None:
            return subagent_id_of(thread)
        session = self._export.session
        agent = None if session is None else session.get("agent")
        if isinstance(agent, Mapping) and isinstance(agent.get("id"), str):
            return str(agent["id"])
        return next((str(turn["agent_id"]) for turn in thread.turns if turn.get("agent_id")), None)

    def _name(self, thread: Thread) -> str | None:
        if thread.subagent is not None:
            return text_or_none(thread.subagent.get("name"))
        agent = None if self._export.session is None else self._export.session.get("agent")
        return text_or_none(agent.get("name")) if isinstance(agent, Mapping) else None

    def _note(self, kind: str, text: str, found: Found) -> None:
        self.findings.append(
            finding(
                kind,
                text,
                session_id=self._export.session_id,
                turn_id=found.turn_id,
                call_id=found.call_id,
                items=(found.place.id,),
            )
        )


def _key(found: Found) -> tuple[int, int]:
    return found.place.thread, found.place.index


def _because(turn: Resource) -> str:
    return f", which was {turn['status']}" if turn.get("status") == "cancelled" else ""


def _turn(turn_id: str | None, turn: Resource | None, entries: tuple[Entry, ...]) -> TurnLink:
    if turn is None:
        return TurnLink(turn_id, None, None, None, entries, is_listed=False)
    started, ended = int_or_none(turn.get("started_at")), int_or_none(turn.get("completed_at"))
    seconds = None if started is None or ended is None else ended - started
    status = text_or_none(turn.get("status"))
    return TurnLink(turn_id, status, turn.get("error"), seconds, entries, usage=tokens_of(turn))
