"""How the step of an agent is told to break off."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class Halt:
    """`requested` is set when the step has to break off and its boundary to be passed: the rows say why.

    It is cleared in front of the transaction that reads them, so that what comes later is not forgotten.
    `is_held`: the step that comes next is not begun until whoever holds the agent has ended its turn.
    """

    requested: asyncio.Event = field(default_factory=asyncio.Event)
    is_held: bool = False
