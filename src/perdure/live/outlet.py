"""What a hub tells the rest of the fleet, and asks of it; a process that is alone has none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from perdure.live.writing import LiveItem, Unfinished


class Outlet(Protocol):
    """Between the hub of a process and the other processes.

    With an outlet, the hub shows its readers only what the outlet hands it (`publish`, `show_item`),
    in the order of the session, whichever process it comes from.
    """

    def open_item(
        self, session_id: str, turn_id: str, item_id: str, output_index: int, epoch: int, after: int
    ) -> LiveItem:
        """This process begins to write an item that the stored event `after` has announced."""
        ...

    def abandon(self, session_id: str) -> None:
        """This process writes nothing more of the session."""
        ...

    def listen(self, session_id: str) -> None:
        """The session has its first reader here."""
        ...

    def ignore(self, session_id: str) -> None:
        """The session's last reader here is gone."""
        ...

    async def ready(self, session_id: str) -> None:
        """Return when what other processes say of the session arrives here, or after a moment."""
        ...

    def reaches_back(self, session_id: str, seq: int) -> bool:
        """Whether readers here were told every event behind `seq` that was told to anyone.

        Not, if another reader's snapshot came first and was later: then an event in between is told
        by neither.
        """
        ...

    def attach(self, session_id: str, seq: int, unfinished: Sequence[Unfinished]) -> None:
        """A reader starts from a snapshot taken at `seq`."""
        ...
