"""What a run tells of subagents: typed events, read from those of the server."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from perdure.sdk.events import (
    AgentMessage,
    Recovered,
    SubagentCall,
    SubagentCallKind,
    SubagentChanged,
    SubagentEvent,
)
from perdure.sdk.requests import persistently
from perdure.sdk.subagents import Subagent, subagents_of, text_of, typed_subagent

if TYPE_CHECKING:
    from perdure.sdk.picture import Picture
    from perdure.sdk.session import Session

log = logging.getLogger(__name__)

KINDS: Mapping[str, SubagentCallKind] = {
    "create_subagent_call": "create",
    "send_subagent_input_call": "send",
    "wait_for_subagents_call": "wait",
    "interrupt_subagent_call": "interrupt",
    "resume_subagent_call": "resume",
    "close_subagent_call": "close",
}


class Crew:
    """The subagents of a session, as far as one run has seen them. Nothing is told twice."""

    def __init__(self, session: Session[Any], picture: Picture) -> None:
        self._session = session
        self._picture = picture
        self._known: dict[str, Subagent] = {}
        self._status: dict[str, str] = {}
        self._has_looked = False
        self._told: set[tuple[str, str | None]] = set()
        self._created: dict[str, Subagent] = {}
        self._creating: Any = None

    async def events(self, event: Any) -> AsyncIterator[SubagentEvent]:
        """What an event of the run says of subagents. What a break has hidden is read and told."""
        if isinstance(event, Recovered):
            if event.session.agent.multi_agent.enabled:
                await self._look()
                for subagent in list(self._known.values()):
                    for told in self._news_of(subagent):
                        yield told
            for item in event.items:
                async for said in self._item(item):
                    yield said
            return
        creating, self._creating = self._creating, None
        match event.type:
            case (
                "agent.session.subagent.created"
                | "agent.session.subagent.active"
                | "agent.session.subagent.closed"
            ):
                now = typed_subagent(self._session, event.subagent)
                if (
                    event.type == "agent.session.subagent.created"
                    and creating is not None
                    and creating.agent_id == now.parent_agent_id
                ):
                    # The item does not name it; a server that tells both in a row does.
                    self._created[creating.id] = now
                self._known[now.id] = now
                is_new = event.type == "agent.session.subagent.created"
                for told in self._news_of(now) if is_new else self._change_of(now):
                    yield told
            case "agent.session.turn.item.added" | "agent.session.turn.item.done":
                if (
                    event.type == "agent.session.turn.item.added"
                    and event.item.type == "create_subagent_call"
                ):
                    self._creating = event.item
                async for said in self._item(event.item):
                    yield said
            case _:
                pass

    async def _look(self) -> None:
        """Read the subagents."""
        from openai import APIConnectionError, APIStatusError

        async def read() -> list[Subagent]:
            return [each async for each in subagents_of(self._session)]

        try:
            listed = await persistently(read, self._session.sessions.patience)
        except (APIConnectionError, APIStatusError) as error:
            # The run goes on without: what is owed, and what came of the turn, does not depend on it.
            log.warning("The subagents of session %s could not be read: %s", self._session.id, error)
            return
        self._known |= {each.id: each for each in listed}

    def _news_of(self, now: Subagent) -> Iterator[SubagentChanged]:
        """What was not told of a subagent; that it was created, if nothing was."""
        if now.id not in self._status:
            self._status[now.id] = "active"
            yield SubagentChanged(now, "created")
        yield from self._change_of(now)

    def _change_of(self, now: Subagent) -> Iterator[SubagentChanged]:
        if self._status.get(now.id) != now.status:
            self._status[now.id] = now.status
            yield SubagentChanged(now, now.status)

    async def _item(self, item: Any) -> AsyncIterator[AgentMessage | SubagentCall]:
        if item.turn_id in self._picture.subagent_turns:
            return
        key = item.id, getattr(item, "status", None)
        kind = KINDS.get(item.type)
        if (kind is None and item.type != "agent_message") or key in self._told:
            return
        self._told.add(key)
        text = text_of(getattr(item, "content", ()))
        named = [
            getattr(item, "sender_agent_id", None) if kind is None else None,
            getattr(item, "recipient_agent_id", None) if kind is not None else None,
            *(getattr(item, "recipient_agent_ids", None) or ()),
        ]
        if any(name is not None and self._named(name) is None for name in named) and not self._has_looked:
            # An earlier run has seen it created.
            self._has_looked = True
            await self._look()
        if kind is None:
            sender, recipient = item.sender_agent_id, item.recipient_agent_id
            yield AgentMessage(sender, recipient, self._named(sender), text, item)
            return
        found = [self._created.get(item.id)] if kind == "create" else map(self._named, named)
        subagents = tuple(each for each in found if each is not None)
        yield SubagentCall(kind, item.status, subagents, text, item)

    def _named(self, name: str | None) -> Subagent | None:
        """A subagent by its id, or else the newest of its name."""
        if name is None or name in self._known:
            return self._known.get(name or "")
        return next((each for each in reversed(self._known.values()) if each.name == name), None)
