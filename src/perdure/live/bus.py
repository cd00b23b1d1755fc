"""The way between processes: at most once, unordered between publishers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from perdure.live.messages import Letter

Receive = Callable[[bytes], None]
Unsubscribe = Callable[[], Awaitable[None]]


class BusDown(Exception):
    """The bus does not take messages now; what was to leave is lost."""


class Bus(Protocol):
    """Carries letters to every other process.

    Nothing a process publishes comes back to it. Letters that name a session arrive at least where
    somebody subscribed to it; all others arrive everywhere.
    """

    async def start(self, receive: Receive, reconnected: Callable[[], None]) -> None:
        """Connect, and stay connected until `stop`. Returns after a moment even if that takes longer.

        Args:
            receive: gets every payload, on the event loop; it may not raise.
            reconnected: called after the connection was lost and is there again.
        """
        ...

    async def stop(self) -> None: ...

    async def publish(self, letters: Sequence[Letter]) -> None:
        """Send in order.

        Raises:
            BusDown: the bus cannot be reached.
        """
        ...

    async def subscribe(self, session_id: str) -> Unsubscribe:
        """Return once letters about the session arrive."""
        ...
