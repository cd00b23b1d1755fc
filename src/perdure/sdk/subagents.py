"""The agents of a session: the main agent and its subagents, with what each of them did."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from perdure.sdk.requests import persistently
from perdure.sdk.results import answer_text

if TYPE_CHECKING:
    from openai.types.beta.agent_session_item import AgentSessionItem
    from openai.types.beta.agents.sessions.turn import Turn
    from openai.types.beta.subagent import Subagent as SubagentResource
    from openai.types.beta.token_usage import TokenUsage

    from perdure.sdk.session import Session

Order: TypeAlias = Literal["asc", "desc"]
PAGE = 100
RUNNING = frozenset({"queued", "in_progress", "waiting"})


class SessionAgent(ABC):
    """What the main agent and subagents have in common. Everything is read when it is asked for."""

    session: Session[Any]

    @abstractmethod
    def turns(self, *, order: Order = "asc") -> AsyncIterator[Turn]:
        """Its turns, page by page; oldest first unless `order` says otherwise."""

    @abstractmethod
    def items(self, *, order: Order = "asc") -> AsyncIterator[AgentSessionItem]:
        """Its items, page by page; oldest first unless `order` says otherwise."""

    @abstractmethod
    def items_of(self, turn_id: str) -> AsyncIterator[AgentSessionItem]:
        """The items of one of its turns, oldest first, page by page."""

    async def newest_turn(self) -> Turn | None:
        """Its newest turn; None if it has none yet."""
        async for turn in self.turns(order="desc"):
            return turn
        return None

    async def is_running(self) -> bool:
        """Whether a turn of it has not ended. A subagent that is active may well be idle."""
        turn = await self.newest_turn()
        return turn is not None and turn.status in RUNNING

    async def last_text(self) -> str:
        """The answer of its newest turn, or what it has written last in it; "" for nothing."""
        turn = await self.newest_turn()
        if turn is None:
            return ""
        items = tuple([item async for item in self.items_of(turn.id)])
        return (answer_text(items) if turn.status == "completed" else "") or _last_text(items)

    async def usage(self) -> TokenUsage | None:
        """What its ended turns have used, without its subagents; None if that of one is not known."""
        known = []
        async for turn in self.turns():
            if turn.status in RUNNING:
                continue
            if turn.usage is None:
                return None
            known.append(turn.usage)
        return _sum(known)


@dataclass(frozen=True)
class MainAgent(SessionAgent):
    """The agent of the session itself, which creates the first subagents. `status` is the session's."""

    session: Session[Any] = field(repr=False, compare=False)
    id: str
    name: str
    status: str

    def turns(self, *, order: Order = "asc") -> AsyncIterator[Turn]:
        """See `SessionAgent.turns`."""
        listed = self.session.sessions.resource.turns.list(self.session.id, order=order, limit=PAGE)
        return _main(listed)

    def items(self, *, order: Order = "asc") -> AsyncIterator[AgentSessionItem]:
        """See `SessionAgent.items`."""
        return _each(self.session.sessions.resource.items.list(self.session.id, order=order, limit=PAGE))

    def items_of(self, turn_id: str) -> AsyncIterator[AgentSessionItem]:
        """See `SessionAgent.items_of`."""
        resource = self.session.sessions.resource.turns.items
        return _each(resource.list(turn_id, session_id=self.session.id, order="asc", limit=PAGE))


@dataclass(frozen=True)
class Subagent(SessionAgent):
    """A subagent as it was when it was read.

    Attributes:
        session: the session it is of.
        id, name, status: `status` is active or closed; an active one may work or be idle.
        parent_agent_id: who created it, the main agent or another subagent.
        task: what it was created to do, as far as that can be read.
        opened_at, closed_at: seconds since 1970.
    """

    session: Session[Any] = field(repr=False, compare=False)
    id: str
    name: str | None
    status: Literal["active", "closed"]
    parent_agent_id: str
    task: str
    opened_at: int
    closed_at: int | None = None

    async def retrieve(self) -> Subagent:
        """The same subagent as it is now."""
        resource, own = self.session.sessions.resource.subagents, self.session.id
        found: SubagentResource = await persistently(
            lambda: resource.retrieve(self.id, session_id=own), self.session.sessions.patience
        )
        return typed_subagent(self.session, found)

    def turns(self, *, order: Order = "asc") -> AsyncIterator[Turn]:
        """See `SessionAgent.turns`."""
        resource = self.session.sessions.resource.subagents.turns
        return _each(resource.list(self.id, session_id=self.session.id, order=order, limit=PAGE))

    def items(self, *, order: Order = "asc") -> AsyncIterator[AgentSessionItem]:
        """See `SessionAgent.items`."""
        resource = self.session.sessions.resource.subagents.items
        return _each(resource.list(self.id, session_id=self.session.id, order=order, limit=PAGE))

    def items_of(self, turn_id: str) -> AsyncIterator[AgentSessionItem]:
        """See `SessionAgent.items_of`."""
        resource, own = self.session.sessions.resource.subagents.turns.items, self.session.id
        return _each(resource.list(turn_id, session_id=own, subagent_id=self.id, order="asc", limit=PAGE))


def typed_subagent(session: Session[Any], resource: SubagentResource) -> Subagent:
    """A subagent of the protocol as one of ours."""
    return Subagent(
        session,
        resource.id,
        resource.name,
        resource.status,
        resource.parent_agent_id,
        text_of(resource.instructions or ()),
        resource.opened_at,
        resource.closed_at,
    )


def text_of(content: Any) -> str:
    """What agents say to each other, as far as it is text; a server may encrypt it."""
    return "".join(part.text for part in content if part.type == "output_text")


async def subagents_of(session: Session[Any], order: Order = "asc") -> AsyncIterator[Subagent]:
    """The subagents of a session, nested and closed ones included, page by page."""
    async for each in session.sessions.resource.subagents.list(session.id, order=order, limit=PAGE):
        yield typed_subagent(session, each)


async def _each(listed: Any) -> AsyncIterator[Any]:
    async for each in listed:
        yield each


async def _main(listed: Any) -> AsyncIterator[Turn]:
    """The main agent's turns alone; a server might list all."""
    async for turn in listed:
        if turn.subagent_id is None:
            yield turn


def _last_text(items: tuple[AgentSessionItem, ...]) -> str:
    for item in reversed(items):
        if item.type == "message" and item.role == "assistant" and (text := text_of(item.content)):
            return text
    return ""


def _sum(known: list[TokenUsage]) -> TokenUsage | None:
    from openai.types.beta.token_usage import InputTokensDetails, OutputTokensDetails, TokenUsage

    if not known:
        return None
    return TokenUsage(
        input_tokens=sum(each.input_tokens for each in known),
        input_tokens_details=InputTokensDetails(
            cached_tokens=sum(each.input_tokens_details.cached_tokens for each in known)
        ),
        output_tokens=sum(each.output_tokens for each in known),
        output_tokens_details=OutputTokensDetails(
            reasoning_tokens=sum(each.output_tokens_details.reasoning_tokens for each in known)
        ),
        total_tokens=sum(each.total_tokens for each in known),
    )
