"""Reading a session whole, from whatever holds it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, Protocol

from perdure.inspect.exports import Export, Resource, Thread
from perdure.inspect.faults import Unreadable

ATTEMPTS = 3


class Reader(Protocol):
    """Holds sessions and shows them as resources of the Agents API, lists whole and oldest first.

    `is_snapshot` says that everything it shows is of one instant. Every method raises `Unreadable` for
    what cannot be read.
    """

    @property
    def is_snapshot(self) -> bool:
        """Whether everything that is shown is of one instant."""
        ...

    def session(self, session_id: str) -> Resource:
        """The session."""
        ...

    def turns(self, session_id: str, subagent_id: str | None) -> Sequence[Resource]:
        """The turns of a subagent, or of the root agent for None."""
        ...

    def items(self, session_id: str, subagent_id: str | None) -> Sequence[Resource]:
        """The items of a subagent, or of the root agent for None."""
        ...

    def subagents(self, session_id: str) -> Sequence[Resource]:
        """The subagents."""
        ...

    def events(self, session_id: str) -> Sequence[Resource]:
        """Stored events; an extension that not every server has."""
        ...


def read_export(
    reader: Reader, session_id: str, *, events: bool | Literal["for_subagents"] = False
) -> Export:
    """Read a session with its turns, items and subagents.

    A session that changes meanwhile is read again, since a call that was answered between two requests
    would look owed and answered at once; one that never rests is returned with `settled` false.

    Args:
        reader: what holds it.
        session_id: which.
        events: read the stored events, too. "for_subagents" does so if there are subagents and the events
            can be read: they say which call created which subagent.

    Raises:
        Unreadable: there is no such session, or what holds it cannot be read.
    """
    session = reader.session(session_id)
    for _ in range(ATTEMPTS):
        subagents = tuple(_share(reader, session_id, each) for each in reader.subagents(session_id))
        found = Export(
            session=session,
            turns=tuple(reader.turns(session_id, None)),
            items=tuple(reader.items(session_id, None)),
            subagents=subagents,
            events=_events(reader, session_id, events, bool(subagents)),
            settled=reader.is_snapshot,
            exported_at=int(time.time()),
        )
        if reader.is_snapshot:
            return found
        after = reader.session(session_id)
        if after == session and _are_as_before(reader, session_id, subagents):
            return replace(found, settled=True)
        session = after
    return found


def _events(
    reader: Reader, session_id: str, wanted: bool | Literal["for_subagents"], has_subagents: bool
) -> tuple[Resource, ...] | None:
    if wanted == "for_subagents":
        try:
            return tuple(reader.events(session_id)) if has_subagents else None
        except Unreadable:
            return None  # another server's, or too old: instructions and order have to do
    return tuple(reader.events(session_id)) if wanted else None


def _are_as_before(reader: Reader, session_id: str, parts: tuple[Thread, ...]) -> bool:
    """Whether no subagent has gone on: they may work while the session is idle and looks the same."""
    if not parts:
        return True
    if tuple(reader.subagents(session_id)) != tuple(part.subagent for part in parts):
        return False
    own = [str((part.subagent or {}).get("id")) for part in parts]
    return all(
        tuple(reader.turns(session_id, name)) == part.turns for name, part in zip(own, parts, strict=True)
    )


def _share(reader: Reader, session_id: str, subagent: Resource) -> Thread:
    own = str(subagent.get("id"))
    return Thread(tuple(reader.turns(session_id, own)), tuple(reader.items(session_id, own)), subagent)
