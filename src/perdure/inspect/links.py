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

Severity = Literal["problem", "note"]


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
    """Where an item stands: the thread (0 is the root agent's), its index there, its id if it has one."""

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
    """Something between agents. `subagent_id` is whom a `create_subagent_call` created.

    The item does not say whom; `linked_by` says how it was found out: by equal `instructions`, or by the
    `order` of creation.
    """

    place: Place
    sender: str | None
    recipients: tuple[str, ...]
    text: str
    subagent_id: str | None = None
    linked_by: Literal["instructions", "order"] | None = None
    kind: Literal["coordination"] = "coordination"


Entry = Call | Orphan | Message | Work | Coordination


@dataclass(frozen=True, slots=True)
class TurnLink:
    """A turn with what happened in it. `is_listed` is false for one that only other objects name."""

    id: str | None
    status: str | None
    error: Json
    seconds: int | None
    entries: tuple[Entry, ...]
    is_listed: bool = True


@dataclass(frozen=True, slots=True)
class ThreadLink:
    """An agent with its turns. `subagent_id` is None for the root agent."""

    agent_id: str | None
    subagent_id: str | None
    name: str | None
    status: str | None
    parent_agent_id: str | None
    turns: tuple[TurnLink, ...]


@dataclass(frozen=True, slots=True)
class Owed:
    """A required action. `key` is the id its answer has to name."""

    type: str
    turn_id: str | None
    key: str | None
    name: str | None


@dataclass(frozen=True, slots=True)
class Chain:
    """A session, rebuilt. The first thread is the root agent's, the others are those of subagents."""

    session_id: str | None
    status: str | None
    error: Json
    model: str | None
    created_at: int | None
    owed: tuple[Owed, ...]
    threads: tuple[ThreadLink, ...]
    findings: tuple[Finding, ...]

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
