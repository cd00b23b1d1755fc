"""What a run tells while it goes on: the events of the server as they are, and some of our own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from perdure.sdk.calls import CallPair, ToolResult

if TYPE_CHECKING:
    from openai.types.beta.agent_session import AgentSession
    from openai.types.beta.agent_session_event import AgentSessionEvent
    from openai.types.beta.agent_session_item import AgentSessionItem

    from perdure.sdk.handoff import HandoffRecord
    from perdure.sdk.subagents import Subagent


@dataclass(frozen=True)
class ToolStarted:
    """A call is about to be answered here. Its function may run, or its stored result be sent again."""

    pair: CallPair
    tool: str
    type: Literal["perdure.tool.started"] = "perdure.tool.started"


@dataclass(frozen=True)
class ToolFinished:
    """A result was sent. `is_accepted` is False when the server had no more use for it."""

    pair: CallPair
    tool: str
    result: ToolResult
    is_accepted: bool
    type: Literal["perdure.tool.finished"] = "perdure.tool.finished"


@dataclass(frozen=True)
class Recovered:
    """The present state was read: at the start of `follow`, and when a stream had broken.

    After a break, deltas are missing, and nothing else.

    `session` is the session as it was read, `items` are all items of the turn, as far as they are stored.
    """

    session: AgentSession
    items: tuple[AgentSessionItem, ...]
    type: Literal["perdure.recovered"] = "perdure.recovered"


@dataclass(frozen=True)
class HandedOff:
    """The conversation goes on in another session; the events that follow are of that one."""

    record: HandoffRecord
    type: Literal["perdure.handed_off"] = "perdure.handed_off"


@dataclass(frozen=True)
class SubagentChanged:
    """A subagent was created, closed, or made active again. `subagent` is as it was then.

    A run that begins with what is there already tells of those that are there as created.
    """

    subagent: Subagent
    change: Literal["created", "active", "closed"]
    type: Literal["perdure.subagent.changed"] = "perdure.subagent.changed"


SubagentCallKind: TypeAlias = Literal["create", "send", "wait", "interrupt", "resume", "close"]


@dataclass(frozen=True)
class SubagentCall:
    """The main agent does something with its subagents; told when it begins, and when `status` changes.

    Attributes:
        kind, status: `status` is in_progress, completed, failed or incomplete. A creation that completed has
            handed its task out, and says nothing of the result.
        subagents: whom it is about, as far as they are known; for a creation, whom it created.
        text: what it says to them.
        item: the item of the protocol.
    """

    kind: SubagentCallKind
    status: str
    subagents: tuple[Subagent, ...]
    text: str
    item: AgentSessionItem
    type: Literal["perdure.subagent.call"] = "perdure.subagent.call"


@dataclass(frozen=True)
class AgentMessage:
    """A message between agents: most are what a subagent reports of a turn that it has ended.

    `sender` is the subagent; None if another one sent it. `text` is "" for one that the server encrypts.
    """

    sender_id: str
    recipient_id: str
    sender: Subagent | None
    text: str
    item: AgentSessionItem
    type: Literal["perdure.agent_message"] = "perdure.agent_message"


SubagentEvent: TypeAlias = SubagentChanged | SubagentCall | AgentMessage

if TYPE_CHECKING:
    Event: TypeAlias = AgentSessionEvent | ToolStarted | ToolFinished | Recovered | HandedOff | SubagentEvent
else:
    Event = Any
