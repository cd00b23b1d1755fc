"""What the rest of the house asks of whoever runs sessions."""

from __future__ import annotations

from typing import Protocol


class Work(Protocol):
    """Runs `advance` for the sessions that have something to do, or leaves that to other processes."""

    async def start(self) -> None:
        """Begin to run sessions; what earlier processes left unfinished is taken up.

        Raises:
            StoreError: this process cannot be told apart from a dead one, so it must not begin.
        """
        ...

    def wake(self, session_id: str) -> None:
        """Something was accepted for the session. Safe to call at any time, any number of times."""
        ...

    def owns(self, session_id: str) -> bool:
        """Whether this process runs the session now."""
        ...

    def may_publish(self) -> bool:
        """Whether what this process has to say of its sessions may still leave it."""
        ...

    def drain(self) -> None:
        """Start nothing more; what runs stops at its next step boundary."""
        ...

    def hurry(self) -> None:
        """Wait for no step: `stop` breaks off what still runs."""
        ...

    async def stop(self) -> None:
        """Hand sessions back at their next step boundary; what takes too long is repeated later."""
        ...
