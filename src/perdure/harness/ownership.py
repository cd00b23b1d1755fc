"""What entitles a process to run sessions, and when it has to stop without being told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class Ownership(Protocol):
    """The right of this process to run sessions. Asked often: before each call, write and delta.

    Once `alive` has said no, it says no for ever: others may have taken the sessions over since.
    """

    @property
    def owner(self) -> str:
        """The worker that the sessions name as their owner."""
        ...

    def alive(self) -> bool:
        """Whether nobody else can have taken over what this process runs. May be asked from any thread."""
        ...


class OwnershipLost(Exception):
    """This process no longer owns what it runs: stop silently, write, call and publish nothing more."""


@dataclass(frozen=True, slots=True)
class Unending:
    """The ownership of the only process that can open its database: nobody can take over from it."""

    owner: str

    def alive(self) -> bool:
        return True
