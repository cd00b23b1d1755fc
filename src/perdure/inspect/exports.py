"""The export of a session: everything that can be read of it, as one JSON document.

    {"object": "perdure.export", "version": 1, "exported_at": 1760000000, "settled": true,
     "session": {…}, "turns": […], "items": […],
     "subagents": [{"subagent": {…}, "turns": […], "items": […]}],
     "inputs": […], "events": […], "ledger": {…}, "journal": […]}

`session`, `turns`, `items` and `subagent` are resources of the Agents API as the server shows them, oldest
first. `settled` is false when the session changed while it was read. The last four are optional: input
events as the application sent them, stored events, the application's ledger, and its tool journal (objects
with `turn_id`, `call_id` and what is known of `name`, `arguments`, `success`, `output`, `error`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from perdure.inspect.faults import Unreadable
from perdure.inspect.jsontext import Json

OBJECT = "perdure.export"
VERSION = 1

Resource = Mapping[str, Any]
"""A resource of the Agents API, or another JSON object, as it was read."""


@dataclass(frozen=True, slots=True)
class Thread:
    """One agent's share of a session. `subagent` is None for the root agent."""

    turns: tuple[Resource, ...]
    items: tuple[Resource, ...]
    subagent: Resource | None = None


@dataclass(frozen=True, slots=True)
class Export:
    """A session as it was read, resources as the server showed them and oldest first.

    Attributes:
        session: the session; None when only items are known.
        turns, items: those of the root agent.
        subagents: the shares of the subagents.
        inputs: input events as the application sent them, refused ones included.
        events: stored events; None when they were not read.
        ledger: the application's ledger.
        journal: the calls of the tool journal; None without one.
        settled: False when the session changed while it was read.
        exported_at: when it was read, in seconds since 1970.
    """

    session: Resource | None
    turns: tuple[Resource, ...] = ()
    items: tuple[Resource, ...] = ()
    subagents: tuple[Thread, ...] = ()
    inputs: tuple[Resource, ...] = ()
    events: tuple[Resource, ...] | None = None
    ledger: Json = None
    journal: tuple[Resource, ...] | None = None
    settled: bool = True
    exported_at: int | None = field(default=None, compare=False)

    @property
    def session_id(self) -> str | None:
        """The session's id, if it is known."""
        found = None if self.session is None else self.session.get("id")
        return found if isinstance(found, str) else None

    @property
    def threads(self) -> tuple[Thread, ...]:
        """The root agent's share, then each subagent's."""
        return (Thread(self.turns, self.items), *self.subagents)

    @property
    def required_actions(self) -> tuple[Resource, ...]:
        """What the application owes. Nothing else says so."""
        actions = None if self.session is None else self.session.get("required_actions")
        return tuple(action for action in actions or () if isinstance(action, Mapping))

    def document(self) -> dict[str, Json]:
        """The export as a JSON document."""
        document: dict[str, Json] = {"object": OBJECT, "version": VERSION, "exported_at": self.exported_at}
        document |= {"settled": self.settled, "session": self.session}
        document |= {"turns": list(self.turns), "items": list(self.items)}
        document["subagents"] = [
            {"subagent": part.subagent, "turns": list(part.turns), "items": list(part.items)}
            for part in self.subagents
        ]
        if self.inputs:
            document["inputs"] = list(self.inputs)
        if self.events is not None:
            document["events"] = list(self.events)
        if self.ledger is not None:
            document["ledger"] = self.ledger
        if self.journal is not None:
            document["journal"] = list(self.journal)
        return document


def is_input(entry: Resource) -> bool:
    """Whether an entry of a history is an input event, not an item."""
    kind = entry.get("type")
    return isinstance(kind, str) and (kind.startswith("agent.session.input.") or kind == "tool_result")


def export_of(document: Json, name: str) -> Export:
    """The export that a JSON document holds.

    Besides exports, it understands a session alone, a page of items, and an array of items.

    Args:
        document: the parsed JSON.
        name: what the document is called in the error.

    Raises:
        Unreadable: it is none of these.
    """
    found = recognise(document, name)
    if found is None:
        raise Unreadable(
            f"{name} holds neither an export (perdure export makes one), nor a session, nor a list of items."
        )
    return found


def recognise(document: Json, name: str) -> Export | None:
    """Like `export_of`, but None for JSON of another kind.

    Raises:
        Unreadable: it says that it is an export and is not one.
    """
    match document:
        case {"object": "perdure.export", "version": version}:
            if version != VERSION:
                raise Unreadable(
                    f"{name} is an export of version {version!r}, and this perdure knows version {VERSION}."
                )
            return _parse(document, name)
        case {"object": "agent.session", "id": str()}:
            return Export(document)
        case {"session": dict() | None, "items": list()}:
            return _parse(document, name)
        case {"data": list(entries)} if _are_entries(entries):
            return _parse({"items": entries}, name)
        case list(entries) if _are_entries(entries):
            return _parse({"items": entries}, name)
        case _:
            return None


def _are_entries(entries: Sequence[Json]) -> bool:
    return bool(entries) and all(
        isinstance(entry, dict) and isinstance(entry.get("type"), str) and not {"op"} & entry.keys()
        for entry in entries
    )


def _parse(document: Mapping[str, Json], name: str) -> Export:
    session = document.get("session")
    if session is not None and not isinstance(session, dict):
        raise Unreadable(f"{name}: session is not an object.")
    history = _objects(document, "items", name)
    parts = []
    for index, part in enumerate(_objects(document, "subagents", name)):
        subagent = part.get("subagent")
        if not isinstance(subagent, dict):
            raise Unreadable(f"{name}: subagents[{index}].subagent is not an object.")
        inside = f"{name}: subagents[{index}]"
        parts.append(Thread(_objects(part, "turns", inside), _objects(part, "items", inside), subagent))
    exported_at = document.get("exported_at")
    return Export(
        session=session,
        turns=_objects(document, "turns", name),
        items=tuple(entry for entry in history if not is_input(entry)),
        subagents=tuple(parts),
        inputs=(*_objects(document, "inputs", name), *(entry for entry in history if is_input(entry))),
        events=None if document.get("events") is None else _objects(document, "events", name),
        ledger=document.get("ledger"),
        journal=None if document.get("journal") is None else _objects(document, "journal", name),
        settled=document.get("settled") is not False,
        exported_at=exported_at if isinstance(exported_at, int) else None,
    )


def _objects(document: Mapping[str, Json], member: str, name: str) -> tuple[Resource, ...]:
    entries = document.get(member)
    if entries is None:
        return ()
    if not isinstance(entries, list):
        raise Unreadable(f"{name}: {member} is not an array.")
    for index, entry in enumerate(entries):
        if not isinstance(entry, dict):
            raise Unreadable(f"{name}: {member}[{index}] is not an object.")
    return tuple(entries)


def with_ledger(export: Export, ledger: Json) -> Export:
    """The export with this ledger in place of its own."""
    return replace(export, ledger=ledger)


def texts_of(entry: Resource) -> Iterator[str]:
    """The texts people or models wrote in an item: of messages, summaries and coordination."""
    for member in ("content", "summary", "instructions"):
        match entry.get(member):
            case str() as text:
                yield text
            case list() as parts:
                for part in parts:
                    if isinstance(part, dict) and isinstance(part.get("text"), str):
                        yield part["text"]
