"""What the loop tells a trace of its work. This one listens to nobody: traces are off unless asked for.

`perdure.harness.spans` makes spans of it. Nothing here is called for a delta, and nothing that is told
holds a text, an argument or a result.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from perdure.store.boundary import Boundary
from perdure.store.rows import TurnRow

if TYPE_CHECKING:
    from perdure.harness.spending import CallRecord

_NOTHING: AbstractContextManager[None] = nullcontext()


class Tracing:
    """What is told is forgotten. No method raises or waits, whatever becomes of a trace."""

    def claimed(self, boundary: Boundary) -> None:
        """This process has taken a session over; the boundary is the root's."""

    def works(self, boundary: Boundary, above: str | None) -> None:
        """An agent is about to make a step of the boundary's turn. Said before each step.

        Args:
            above: the agent that created it, None for the root.
        """

    def calls(self, turn: TurnRow, call: CallRecord, step: int | None) -> AbstractContextManager[None]:
        """A model call of a turn, from where its request leaves to its end.

        Args:
            step: the number under which its items are listed; None for a call beside the steps.
        """
        return _NOTHING

    def committed(self, turn: TurnRow, step: int, boundary: Boundary) -> None:
        """A step of a turn is committed; `boundary` is the one behind it."""

    def rests(self, session_id: str, agent_id: str, boundary: Boundary | None) -> None:
        """An agent makes no step now: at a boundary, or broken off without one."""

    def left(self, session_id: str) -> None:
        """This process does not run the session any more."""

    def ended(self, turn: TurnRow) -> None:
        """The end of a turn is committed, whoever ended it."""

    def recovered(self, session_id: str, turn_id: str) -> None:
        """A turn was taken up that another owner left in the middle."""

    async def close(self, seconds: float) -> None:
        """Hand over what was recorded, for at most so many seconds."""


OFF = Tracing()
