"""What a session shows about itself: its resource and its items, from a server or from an export."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perdure.sdk.journal_json import Json

if TYPE_CHECKING:
    from openai import AsyncOpenAI, OpenAI

PAGE = 100


@dataclass(frozen=True, slots=True)
class SessionFacts:
    """A session and the items of its root agent, oldest first, as plain data.

    Function calls belong to the root agent alone, so nothing of subagents is needed.
    """

    session: Mapping[str, Json]
    items: Sequence[Mapping[str, Json]]

    @classmethod
    def of_export(cls, document: Mapping[str, Json]) -> SessionFacts:
        """The facts in an export, as `perdure export` writes it."""
        return cls(document.get("session") or {}, document.get("items") or [])

    @property
    def session_id(self) -> str | None:
        """The session's id, if it is known."""
        found = self.session.get("id")
        return found if isinstance(found, str) else None

    @property
    def required_actions(self) -> Sequence[Mapping[str, Json]]:
        """What the application owes. Nothing else says so."""
        return self.session.get("required_actions") or []


def read_session(client: OpenAI, session_id: str) -> SessionFacts:
    """Read a session and its items with the official client.

    Read it while it rests: a result that arrives between the two requests looks owed and answered at once.
    """
    sessions = client.beta.agents.sessions
    session = sessions.retrieve(session_id).to_dict(mode="json")
    items = sessions.items.list(session_id, order="asc", limit=PAGE)
    return SessionFacts(session, [item.to_dict(mode="json") for item in items])


async def read_session_async(client: AsyncOpenAI, session_id: str) -> SessionFacts:
    """See `read_session`."""
    sessions = client.beta.agents.sessions
    session = (await sessions.retrieve(session_id)).to_dict(mode="json")
    items = sessions.items.list(session_id, order="asc", limit=PAGE)
    return SessionFacts(session, [item.to_dict(mode="json") async for item in items])
