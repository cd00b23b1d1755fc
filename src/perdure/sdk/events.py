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


if TYPE_CHECKING:
    Event: TypeAlias = AgentSessionEvent | ToolStarted | ToolFinished | Recovered | HandedOff
else:
    Event = Any
