"""Reading a session whole, from whatever holds it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from perdure.inspect.exports import Export, Resource, Thread

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


def read_export(reader: Reader, session_id: str, *, events: bool = False) -> Export:
    """Read a session with its turns, items and subagents.

    A session that changes meanwhile is read again, since a call that was answered between two requests
    would look owed and answered at once; one that never rests is returned with `settled` false.

    Raises:
        Unreadable: there is no such session, or what holds it cannot be read.
    """
    session = reader.session(session_id)
    for _ in range(ATTEMPTS):
        found = Export(
            session=session,
            turns=tuple(reader.turns(session_id, None)),
            items=tuple(reader.items(session_id, None)),
            subagents=tuple(_share(reader, session_id, each) for each in reader.subagents(session_id)),
            events=tuple(reader.events(session_id)) if events else None,
            settled=reader.is_snapshot,
            exported_at=int(time.time()),
        )
        if reader.is_snapshot:
            return found
        after = reader.session(session_id)
        if after == session:
            return replace(found, settled=True)
        session = after
    return found


def _share(reader: Reader, session_id: str, subagent: Resource) -> Thread:
    own = str(subagent.get("id"))
    return Thread(tuple(reader.turns(session_id, own)), tuple(reader.items(session_id, own)), subagent)
