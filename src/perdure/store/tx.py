"""What one store operation works on: a connection inside a transaction, and what to say afterwards."""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlalchemy import Connection

from perdure.wire.events import Event


@dataclass(frozen=True, slots=True)
class Published:
    """An event whose rows are part of the transaction; it may leave once that has committed."""

    session_id: str
    epoch: int
    seq: int
    event: Event


@dataclass(frozen=True, slots=True)
class Closed:
    """The session was deleted in this transaction: its streams end."""

    session_id: str


@dataclass(frozen=True, slots=True)
class Woken:
    """Input for the session was accepted in this transaction: its owner has something to do."""

    session_id: str


Announcement = Published | Closed | Woken


@dataclass(slots=True)
class Tx:
    """One operation inside a write transaction.

    `now_us` is the operation's time; `announcements` leave, in order, only after COMMIT.
    """

    conn: Connection
    now_us: int
    announcements: list[Announcement] = field(default_factory=list)
