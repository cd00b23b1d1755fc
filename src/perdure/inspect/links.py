"""The links of a session: agent, turn, call, result, subagent; what hangs on what, by id."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

from perdure.inspect.jsontext import Json

CallState = Literal["owed", "answered", "failed", "dropped", "mismatched", "unanswered", "unknown"]
"""What became of a function call.

`owed` is listed in `required_actions`; nothing else is owed. `failed` has a result that says so. `dropped`
ended with its turn. `mismatched` has no result of its own, but one under other ids that looks like it.
`unanswered` has no result and is not owed. `unknown` has no result, and no session is there to say whether
one is owed.
"""

WaitOutcome = Literal["waiting", "all_ended", "some_ended", "none_ended", "broken_off", "refused"]
"""What came of a wait for subagents, read from the reports behind it.

`some_ended` and `none_ended` were over before all of those that were at work had ended: by their time-out,
by what was waited for (any of them), or because a new message came. `broken_off` ended with its turn;
`refused` was not made.
"""

ReportState = Literal["told", "told_by_call", "waiting", "missing"]
"""How the creator of a subagent learned of the end of its turn.

`told` by an `agent_message`; `told_by_call`, by the call that interrupted or closed the subagent itself;
`waiting` for the creator's next look; `missing`, although the creator has worked on in a later turn.
"""

Severity = Literal["problem", "note"]


RUNNING = frozenset({"queued", "in_progress", "waiting"})
"""The states of a turn that has not ended."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not what it seems.

    `kind` is one of `perdure.inspect.KINDS`, or, found beside a journal, of `perdure.sdk.reconcile.KINDS`.
    `text` is a sentence for people; `item_ids` are the items it is about, if they have ids.
    """

    kind: str
    severity: Severity
    text: str
    session_id: str | None = None
    turn_id: str | None = None
    call_id: str | None = None
    item_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Place:
    """Where an item stands: the export's thread (0 is the root agent's), the index there, the id if any."""

    thread: int
    index: int
    id: str | None
    type: str
    status: str | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """A result, from an item, an input event, or the application's journal (`place` is None then).

    `success` is None when that is not known. `output` and `error` are as they were read, of which one
    should be None, and `output` text or a list of content parts.
    """

    call_id: str | None
    turn_id: str | None
    success: bool | None
    output: Json
    error: Json
    source: Literal["item", "input", "journal"]
    place: Place | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """A function call with its results. `place` is None for one that only `required_actions` lists.

    `arguments` are as the item, or the required action, has them. `state` is a
    `CallState`: owed, answered, failed, dropped, mismatched, unanswered or unknown.
    """

    call_id: str | None
    turn_id: str | None
    name: str | None
    arguments: Json
    state: CallState
    results: tuple[Result, ...] = ()
    place: Place | None = None
    kind: Literal["call"] = "call"


@dataclass(frozen=True, slots=True)
class Orphan:
    """A result that belongs to no call; `meant` is the call_id it was probably meant for."""

    result: Result
    meant: str | None = None
    kind: Literal["orphan"] = "orphan"


@dataclass(frozen=True, slots=True)
class Message:
    """What a person or the model said; `role` is user or assistant."""

    place: Place
    role: str
    phase: str | None
    text: str
    kind: Literal["message"] = "message"


@dataclass(frozen=True, slots=True)
class Work:
    """What the server did itself, or thought: MCP, search, commands, browser, reasoning."""

    place: Place
    summary: str
    kind: Literal["work"] = "work"


@dataclass(frozen=True, slots=True)
class Coordination:
    """Something between agents.

    Attributes:
        place, sender, recipients, text: the item; recipients as it names them, by id or name.
        subagent_id: whom a `create_subagent_call` created. The item does not say it.
        linked_by: how that was found out: by the stored `event` behind it, by equal `instructions`, or by the
            `order` of creation.
        about_turn_id: the subagent's turn that a message reports, or that an interrupt or close ended.
        outcome: what came of a wait.
        reported, unreported: of those that were at work when a wait began, whose reports it ended with, and
            who had not ended.
    """

    place: Place
    sender: str | None
    recipients: tuple[str, ...]
    text: str
    subagent_id: str | None = None
    linked_by: Literal["event", "instructions", "order"] | None = None
    about_turn_id: str | None = None
    outcome: WaitOutcome | None = None
    reported: tuple[str, ...] = ()
    unreported: tuple[str, ...] = ()
    kind: Literal["coordination"] = "coordination"


Entry = Call | Orphan | Message | Work | Coordination


@dataclass(frozen=True, slots=True)
class Tokens:
    """What was used, in tokens."""

    input: int
    output: int
    total: int


@dataclass(frozen=True, slots=True)
class TurnLink:
    """A turn with what happened in it. `is_listed` is false for one that only other objects name.

    `usage` is None while it is not known. `report` says of an ended turn of a subagent how its creator
    learned of it, and `told_by` is the id of the item that told it.
    """

    id: str | None
    status: str | None
    error: Json
    seconds: int | None
    entries: tuple[Entry, ...]
    is_listed: bool = True
    usage: Tokens | None = None
    report: ReportState | None = None
    told_by: str | None = None


@dataclass(frozen=True, slots=True)
class ThreadLink:
    """An agent with its turns. `subagent_id` is None for the root agent.

    Attributes:
        depth: 0 of the root agent, 1 of those it created, and so on.
        task: what a subagent was created to do, as far as that can be read.
        usage: of its own turns, without those of its subagents; None if that of a turn is not known.
    """

    agent_id: str | None
    subagent_id: str | None
    name: str | None
    status: str | None
    parent_agent_id: str | None
    turns: tuple[TurnLink, ...]
    depth: int = 0
    task: str | None = None
    usage: Tokens | None = None

    @property
    def is_running(self) -> bool:
        """Whether a turn of it has not ended."""
        return any(turn.status in RUNNING for turn in self.turns)


@dataclass(frozen=True, slots=True)
class Owed:
    """A required action. `key` is the id its answer has to name."""

    type: str
    turn_id: str | None
    key: str | None
    name: str | None


@dataclass(frozen=True, slots=True)
class Chain:
    """A session, rebuilt.

    The first thread is the root agent's, the others are those of subagents, each below the agent that created
    it. `usage` is the session's total as the server tells it.
    """

    session_id: str | None
    status: str | None
    error: Json
    model: str | None
    created_at: int | None
    owed: tuple[Owed, ...]
    threads: tuple[ThreadLink, ...]
    findings: tuple[Finding, ...]
    usage: Tokens | None = None

    @property
    def problems(self) -> tuple[Finding, ...]:
        """The findings that something is wrong; the others are notes."""
        return tuple(finding for finding in self.findings if finding.severity == "problem")

    def calls(self) -> Iterator[Call]:
        """Every function call, root first."""
        for thread in self.threads:
            for turn in thread.turns:
                for entry in turn.entries:
                    if isinstance(entry, Call):
                        yield entry

    def document(self) -> dict[str, Any]:
        """The chain as a JSON document."""
        return asdict(self)


def places_of(chain: Chain) -> Iterator[Place]:
    """The items that a chain's entries account for."""
    for thread in chain.threads:
        for turn in thread.turns:
            for entry in turn.entries:
                match entry:
                    case Call(place=place, results=results):
                        held = (place, *(result.place for result in results))
                        yield from (each for each in held if each is not None)
                    case Orphan(result=result):
                        if result.place is not None:
                            yield result.place
                    case _:
                        yield entry.place
