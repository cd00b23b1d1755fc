"""Events: what a session's stream says, one model per kind."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from perdure.wire.environment_resources import EnvironmentState
from perdure.wire.errors import ErrorBody
from perdure.wire.items import Item, OutputItem, OutputText, SummaryText
from perdure.wire.sessions import Session
from perdure.wire.shapes import Resource, absent
from perdure.wire.subagents import Subagent
from perdure.wire.turns import Turn
from perdure.wire.usage import TokenUsage


class Event(Resource):
    """What every event has; `obfuscation` is padding, left out when None."""

    event_id: str
    obfuscation: Annotated[str | None, Field(exclude_if=absent)] = None


def type_of(event: Event) -> str:
    """The protocol's name of an event's kind."""
    name: str = event.type  # type: ignore[attr-defined]
    return name


class SessionStateEvent(Event):
    """A snapshot of the session in a new status."""

    session: Session


class SessionCreated(SessionStateEvent):
    type: Literal["agent.session.created"] = "agent.session.created"


class SessionInProgress(SessionStateEvent):
    type: Literal["agent.session.in_progress"] = "agent.session.in_progress"


class SessionIdle(SessionStateEvent):
    type: Literal["agent.session.idle"] = "agent.session.idle"


class SessionRequiresAction(SessionStateEvent):
    type: Literal["agent.session.requires_action"] = "agent.session.requires_action"


class SessionFailed(SessionStateEvent):
    type: Literal["agent.session.failed"] = "agent.session.failed"


class SessionError(Event):
    """A turn or the session failed; the state events follow."""

    type: Literal["error"] = "error"
    session_id: str
    error: ErrorBody


class TurnStateEvent(Event):
    """A snapshot of the turn in a new status."""

    session_id: str
    turn_id: str
    turn: Turn


class TurnCreated(TurnStateEvent):
    type: Literal["agent.session.turn.created"] = "agent.session.turn.created"


class TurnInProgress(TurnStateEvent):
    type: Literal["agent.session.turn.in_progress"] = "agent.session.turn.in_progress"


class TurnEndedEvent(TurnStateEvent):
    """The turn is over, for one of three reasons."""

    usage: TokenUsage | None = None


class TurnCompleted(TurnEndedEvent):
    type: Literal["agent.session.turn.completed"] = "agent.session.turn.completed"


class TurnFailed(TurnEndedEvent):
    type: Literal["agent.session.turn.failed"] = "agent.session.turn.failed"


class TurnCancelled(TurnEndedEvent):
    type: Literal["agent.session.turn.cancelled"] = "agent.session.turn.cancelled"


class _TurnPart(Event):
    session_id: str
    turn_id: str | None = None


class ItemAdded(_TurnPart):
    """An item appeared; `output_index` is null for items that are not output."""

    type: Literal["agent.session.turn.item.added"] = "agent.session.turn.item.added"
    item: Item
    output_index: int | None = None


class ItemDone(_TurnPart):
    """An output item is final."""

    type: Literal["agent.session.turn.item.done"] = "agent.session.turn.item.done"
    item: OutputItem
    output_index: int


class ItemPartEvent(_TurnPart):
    """About a part of an output item."""

    item_id: str
    output_index: int


class ContentPartAdded(ItemPartEvent):
    type: Literal["agent.session.turn.content_part.added"] = "agent.session.turn.content_part.added"
    content_index: int
    part: OutputText


class ContentPartDone(ItemPartEvent):
    type: Literal["agent.session.turn.content_part.done"] = "agent.session.turn.content_part.done"
    content_index: int
    part: OutputText


class OutputTextDelta(ItemPartEvent):
    type: Literal["agent.session.turn.output_text.delta"] = "agent.session.turn.output_text.delta"
    content_index: int
    delta: str


class OutputTextDone(ItemPartEvent):
    type: Literal["agent.session.turn.output_text.done"] = "agent.session.turn.output_text.done"
    content_index: int
    text: str


class ReasoningSummaryPartAdded(ItemPartEvent):
    type: Literal["agent.session.turn.reasoning_summary_part.added"] = (
        "agent.session.turn.reasoning_summary_part.added"
    )
    summary_index: int
    part: SummaryText


class ReasoningSummaryPartDone(ItemPartEvent):
    """`status` is `incomplete` when the summary was interrupted."""

    type: Literal["agent.session.turn.reasoning_summary_part.done"] = (
        "agent.session.turn.reasoning_summary_part.done"
    )
    summary_index: int
    part: SummaryText
    status: Literal["incomplete"] | None = None


class ReasoningSummaryTextDelta(ItemPartEvent):
    type: Literal["agent.session.turn.reasoning_summary_text.delta"] = (
        "agent.session.turn.reasoning_summary_text.delta"
    )
    summary_index: int
    delta: str


class ReasoningSummaryTextDone(ItemPartEvent):
    type: Literal["agent.session.turn.reasoning_summary_text.done"] = (
        "agent.session.turn.reasoning_summary_text.done"
    )
    summary_index: int
    text: str


class CommandOutputDelta(ItemPartEvent):
    type: Literal["agent.output.command_execution_output.delta"] = (
        "agent.output.command_execution_output.delta"
    )
    delta: str


class SubagentStateEvent(Event):
    subagent: Subagent


class SubagentCreated(SubagentStateEvent):
    type: Literal["agent.session.subagent.created"] = "agent.session.subagent.created"


class SubagentActive(SubagentStateEvent):
    """A closed subagent was resumed."""

    type: Literal["agent.session.subagent.active"] = "agent.session.subagent.active"


class SubagentClosed(SubagentStateEvent):
    type: Literal["agent.session.subagent.closed"] = "agent.session.subagent.closed"


class EnvironmentStateEvent(_TurnPart):
    environment: EnvironmentState


class EnvironmentPending(EnvironmentStateEvent):
    type: Literal["agent.session.environment.pending"] = "agent.session.environment.pending"


class EnvironmentReady(EnvironmentStateEvent):
    type: Literal["agent.session.environment.ready"] = "agent.session.environment.ready"


class EnvironmentConnected(EnvironmentStateEvent):
    type: Literal["agent.session.environment.connected"] = "agent.session.environment.connected"


class EnvironmentDisconnected(EnvironmentStateEvent):
    type: Literal["agent.session.environment.disconnected"] = "agent.session.environment.disconnected"


class EnvironmentFailed(EnvironmentStateEvent):
    type: Literal["agent.session.environment.failed"] = "agent.session.environment.failed"


class EnvironmentSuspended(EnvironmentStateEvent):
    type: Literal["agent.session.environment.suspended"] = "agent.session.environment.suspended"


class EnvironmentExpired(EnvironmentStateEvent):
    type: Literal["agent.session.environment.expired"] = "agent.session.environment.expired"


class EnvironmentReset(_TurnPart):
    """The sandbox was replaced; its files and processes are gone, the conversation is not."""

    type: Literal["agent.session.environment.reset"] = "agent.session.environment.reset"
    environment_id: str
    reset_count: int


SessionEvent = Annotated[
    SessionCreated
    | SessionInProgress
    | SessionIdle
    | SessionRequiresAction
    | SessionFailed
    | SessionError
    | TurnCreated
    | TurnInProgress
    | TurnCompleted
    | TurnFailed
    | TurnCancelled
    | ItemAdded
    | ItemDone
    | ContentPartAdded
    | ContentPartDone
    | OutputTextDelta
    | OutputTextDone
    | ReasoningSummaryPartAdded
    | ReasoningSummaryPartDone
    | ReasoningSummaryTextDelta
    | ReasoningSummaryTextDone
    | CommandOutputDelta
    | SubagentCreated
    | SubagentActive
    | SubagentClosed
    | EnvironmentPending
    | EnvironmentReady
    | EnvironmentConnected
    | EnvironmentDisconnected
    | EnvironmentFailed
    | EnvironmentSuspended
    | EnvironmentExpired
    | EnvironmentReset,
    Field(discriminator="type"),
]
SessionEventAdapter: TypeAdapter[SessionEvent] = TypeAdapter(SessionEvent)
