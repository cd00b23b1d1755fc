"""How agents learned of the ends of their subagents' turns, and what came of their waits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from perdure.inspect.exports import Export
from perdure.inspect.history import int_or_none, text_or_none
from perdure.inspect.kinds import finding
from perdure.inspect.links import (
    Call,
    Coordination,
    Entry,
    Finding,
    Message,
    ReportState,
    ThreadLink,
    TurnLink,
    WaitOutcome,
    Work,
)

MESSAGE = "agent_message"
WAIT = "wait_for_subagents_call"
STOPS = frozenset({"interrupt_subagent_call", "close_subagent_call"})
ENDED = frozenset({"completed", "failed", "cancelled"})


@dataclass(frozen=True, slots=True)
class Told:
    """The threads with reports and waits linked, and what is wrong with them."""

    threads: tuple[ThreadLink, ...]
    findings: tuple[Finding, ...]


@dataclass(slots=True)
class _End:
    """An ended turn of a subagent, while it is found out who told of it.

    `answer` is its final answer, `last` what it had written last.
    """

    turn: TurnLink
    answer: str
    last: str
    state: ReportState | None = None
    told_by: str | None = None

    def is_told_in(self, text: str) -> bool:
        return (self.answer != "" and text == self.answer) or (self.last != "" and self.last in text)


def link_reports(export: Export, threads: tuple[ThreadLink, ...]) -> Told:
    """Say of each ended turn of a subagent how its creator learned of it, and of each wait what came of it.

    A report is an `agent_message` from the subagent to its creator. It does not name the turn: it is that of
    the turn with the same text, or else the first one that nothing has told of.
    """
    linker = _Linker(export, threads)
    for parent in threads:
        linker.link(parent)
    return Told(tuple(map(linker.linked, threads)), tuple(linker.findings))


class _Linker:
    def __init__(self, export: Export, threads: tuple[ThreadLink, ...]) -> None:
        self._session_id = export.session_id
        self._times = {
            text_or_none(turn.get("id")): (
                int_or_none(turn.get("started_at")),
                int_or_none(turn.get("completed_at")),
            )
            for thread in export.threads
            for turn in thread.turns
        }
        self._threads = threads
        self._changed: dict[int, Coordination] = {}
        self._ends: dict[str | None, list[_End]] = {}
        self.findings: list[Finding] = []

    def link(self, parent: ThreadLink) -> None:
        children = [
            thread
            for thread in self._threads
            if thread.subagent_id is not None and thread.parent_agent_id == parent.agent_id
        ]
        ids = {thread.name: thread.subagent_id for thread in children}
        ids |= {thread.subagent_id: thread.subagent_id for thread in children}
        entries = [entry for turn in parent.turns for entry in turn.entries]
        for child in children:
            ends = [_end(turn) for turn in child.turns if turn.is_listed and turn.status in ENDED]
            self._ends[child.subagent_id] = ends
            for entry in entries:
                if isinstance(entry, Coordination):
                    self._tell(entry, child, ends, ids)
            for end in ends:
                self._judge(end, child, parent)
        self._waits(entries, ids)

    def linked(self, thread: ThreadLink) -> ThreadLink:
        ends = {end.turn.id: end for end in self._ends.get(thread.subagent_id, ())}
        turns = []
        for turn in thread.turns:
            entries = tuple(self._changed.get(id(entry), entry) for entry in turn.entries)
            end = ends.get(turn.id)
            turns.append(
                replace(
                    turn,
                    entries=entries,
                    report=None if end is None else end.state,
                    told_by=None if end is None else end.told_by,
                )
            )
        return replace(thread, turns=tuple(turns))

    # ---- reports

    def _tell(
        self, entry: Coordination, child: ThreadLink, ends: list[_End], ids: Mapping[str | None, str | None]
    ) -> None:
        if entry.place.type == MESSAGE and ids.get(entry.sender) == child.subagent_id:
            text = _plain(entry.text)
            end = _meant(text, ends)
            if end is not None:
                self._settle(end, "told", entry)
            elif text and any(text == each.answer for each in ends):
                self._note(
                    "reported_twice",
                    f"{entry.place.id} reports once more what {_called(child)} answered. A report comes "
                    "exactly once.",
                    item=entry.place.id,
                )
        elif (
            entry.place.type in STOPS
            and entry.place.status == "completed"
            and any(ids.get(name) == child.subagent_id for name in entry.recipients)
        ):
            stopped = (end for end in ends if end.turn.status == "cancelled" and end.state is None)
            end = next(stopped, None)
            if end is not None:
                self._settle(end, "told_by_call", entry)

    def _settle(self, end: _End, state: ReportState, entry: Coordination) -> None:
        end.state, end.told_by = state, entry.place.id
        self._changed[id(entry)] = replace(entry, about_turn_id=end.turn.id)

    def _judge(self, end: _End, child: ThreadLink, parent: ThreadLink) -> None:
        if end.state is not None:
            return
        _, ended_at = self._times.get(end.turn.id, (None, None))
        if ended_at is None or not any(self._has_worked_since(turn, ended_at) for turn in parent.turns):
            end.state = "waiting"
            return
        end.state = "missing"
        who = "the main agent" if parent.subagent_id is None else _called(parent)
        self._note(
            "report_missing",
            f"Turn {end.turn.id} of {_called(child)} was {end.turn.status}"
            f", and no message or call told {who}, which has worked on in a later turn."
            if end.turn.status != "failed"
            else f"Turn {end.turn.id} of {_called(child)} failed, and no message or call told {who}, which "
            "has worked on in a later turn.",
            turn=end.turn.id,
        )

    def _has_worked_since(self, turn: TurnLink, moment: int) -> bool:
        """Whether a turn began later and its model has answered: whatever waited was in front of it."""
        started_at, _ = self._times.get(turn.id, (None, None))
        return started_at is not None and started_at > moment and any(map(_is_output, turn.entries))

    # ---- waits

    def _waits(self, entries: list[Entry], ids: Mapping[str | None, str | None]) -> None:
        at_work: dict[str, bool] = {}
        for index, entry in enumerate(entries):
            if not isinstance(entry, Coordination):
                continue
            named = [found for name in entry.recipients if (found := ids.get(name)) is not None]
            match entry.place.type:
                case "create_subagent_call" if entry.subagent_id is not None:
                    at_work[entry.subagent_id] = True
                case "send_subagent_input_call" if entry.place.status == "completed":
                    at_work |= dict.fromkeys(named, True)
                case "agent_message" if (sender := ids.get(entry.sender)) is not None:
                    at_work[sender] = False
                case kind if kind in STOPS and entry.place.status == "completed":
                    at_work |= dict.fromkeys(named, False)
                case "wait_for_subagents_call":
                    pending = [each for each in named if at_work.get(each)]
                    senders = {ids.get(each.sender) for each in _reports_behind(entries, index)}
                    reported = tuple(each for each in pending if each in senders)
                    unreported = tuple(each for each in pending if each not in senders)
                    self._changed[id(entry)] = replace(
                        entry,
                        outcome=_outcome(entry.place.status, reported, unreported),
                        reported=reported,
                        unreported=unreported,
                    )
                case _:
                    pass

    def _note(self, kind: str, text: str, *, turn: str | None = None, item: str | None = None) -> None:
        self.findings.append(finding(kind, text, session_id=self._session_id, turn_id=turn, items=(item,)))


def _end(turn: TurnLink) -> _End:
    said = [entry for entry in turn.entries if isinstance(entry, Message) and entry.role == "assistant"]
    final = [_plain(each.text) for each in said if each.phase != "commentary"]
    last = next((text for each in reversed(said) if (text := _plain(each.text))), "")
    return _End(turn, " ".join(final), last)


def _meant(text: str, ends: list[_End]) -> _End | None:
    """The turn that a report is about."""
    untold = [end for end in ends if end.state is None]
    # A cancel of the user's may look like the interrupt that came after it, until its report is seen.
    guessed = [end for end in ends if end.state == "told_by_call"]
    by_text = next((end for end in (*untold, *guessed) if end.is_told_in(text)), None)
    if by_text is not None:
        return by_text
    silent = next((end for end in untold if not end.last), None)
    if silent is not None or any(text == end.answer for end in ends):
        return silent
    return next(iter(untold), None)


def _reports_behind(entries: list[Entry], index: int) -> Iterator[Coordination]:
    """The messages that stand between a wait and the next answer of its model."""
    is_begun = False
    for entry in entries[index + 1 :]:
        if isinstance(entry, Coordination) and entry.place.type == MESSAGE:
            is_begun = True
            yield entry
        elif is_begun or (isinstance(entry, Coordination) and entry.place.type == WAIT) or _is_text(entry):
            return


def _outcome(status: str | None, reported: tuple[str, ...], unreported: tuple[str, ...]) -> WaitOutcome:
    match status:
        case "in_progress":
            return "waiting"
        case "incomplete":
            return "broken_off"
        case "failed":
            return "refused"
        case _ if not unreported:
            return "all_ended"
        case _:
            return "some_ended" if reported else "none_ended"


def _is_text(entry: Entry) -> bool:
    return isinstance(entry, Message | Work)


def _is_output(entry: Entry) -> bool:
    """Whether it is something that a model, or a tool it called, has made."""
    match entry:
        case Message(role=role):
            return role == "assistant"
        case Coordination(place=place):
            return place.type != MESSAGE
        case Call() | Work():
            return True
        case _:
            return False


def _plain(text: str) -> str:
    return " ".join(text.split())


def _called(thread: ThreadLink) -> str:
    return (
        f"subagent {thread.name} ({thread.subagent_id})" if thread.name else f"subagent {thread.subagent_id}"
    )
