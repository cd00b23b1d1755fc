"""How the step of an agent is told to break off."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class Halt:
    """`requested` is set when the step has to break off and its boundary to be passed: the rows say why.

    It is cleared in front of the transaction that reads them, so that what comes later is not forgotten.
    `held_by`: the agents that are about to end the turn; until they have done so, no other step is begun.
    """

    requested: asyncio.Event = field(default_factory=asyncio.Event)
    held_by: set[str] = field(default_factory=set)

    @property
    def is_held(self) -> bool:
        """Whether another agent is about to end the turn."""
        return bool(self.held_by)
