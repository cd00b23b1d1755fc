"""What a run comes to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from perdure.schema import Failure
from perdure.sdk.errors import InvalidFinalOutput

if TYPE_CHECKING:
    from openai.types.beta.agent_session_item import AgentSessionItem
    from openai.types.beta.agents.sessions.turn import Turn
    from openai.types.beta.token_usage import TokenUsage

    from perdure.sdk.agent import Agent
    from perdure.sdk.handoff import HandoffRecord
    from perdure.sdk.session import Session

OutputT_co = TypeVar("OutputT_co", covariant=True)


@dataclass(frozen=True)
class RunResult(Generic[OutputT_co]):
    """A turn that completed, and its validated answer.

    A completed turn does not mean that every tool succeeded: `items` has the results of the calls.

    Attributes:
        final_output: the answer: of the agent's `output_type`, or text without one.
        text: the answer as the model wrote it.
        agent: who answered; after a handoff another agent than the one that was asked.
        session: where the conversation goes on: that agent's session.
        turn: the last turn, as the server tells it.
        items: the items of that turn, in their order.
        handoffs: the records of the handoffs on the way, first to last.
    """

    final_output: OutputT_co
    text: str
    agent: Agent[Any] = field(repr=False)
    session: Session[Any] = field(repr=False)
    turn: Turn = field(repr=False)
    items: tuple[AgentSessionItem, ...] = field(repr=False)
    handoffs: tuple[HandoffRecord, ...] = ()

    @property
    def session_id(self) -> str:
        """The session that the turn is of: the target's after a handoff."""
        return self.turn.session_id

    @property
    def turn_id(self) -> str:
        """The last turn."""
        return self.turn.id

    @property
    def usage(self) -> TokenUsage | None:
        """Tokens of the turn, as far as the server knows them by now."""
        return self.turn.usage


def answer_text(items: tuple[AgentSessionItem, ...]) -> str:
    """The final answer of a turn: its completed messages of the assistant that are no commentary."""
    return "".join(
        part.text
        for item in items
        if item.type == "message" and item.role == "assistant" and item.status == "completed"
        if item.phase != "commentary"
        for part in item.content
        if part.type == "output_text"
    )


def final_output(agent: Agent[Any], turn: Turn, text: str) -> Any:
    """The validated answer. Raises InvalidFinalOutput, ValidatorFault."""
    if agent.output_schema is None:
        return text
    outcome = agent.output_schema.parse_output(text)
    if isinstance(outcome, Failure):
        heading = f"The answer of {agent.name} does not match {agent.output_schema.name}:"
        raise InvalidFinalOutput(turn.session_id, turn.id, text, outcome.issues, outcome.describe(heading))
    return outcome.value
