"""What one store operation works on: a connection inside a transaction, and what to say afterwards."""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlalchemy import Connection, text

from perdure.store.rows import TurnRow
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


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """A turn ended in this transaction, after so many microseconds of active time: it is counted."""

    session_id: str
    status: str
    code: str | None
    active_us: int
    turn: TurnRow


@dataclass(frozen=True, slots=True)
class TurnRecovered:
    """A turn that another owner left in the middle was taken up in this transaction: it is counted."""

    session_id: str
    turn_id: str


Announcement = Published | Closed | Woken | TurnEnded | TurnRecovered


@dataclass(slots=True)
class Tx:
    """One operation inside a write transaction.

    `now_us` is the operation's time; `announcements` leave, in order, only after COMMIT.
    """

    conn: Connection
    now_us: int
    announcements: list[Announcement] = field(default_factory=list)

    def serialize(self, name: str) -> None:
        """Let no other transaction pass here under the same name before this one has ended.

        For what no row can be locked for, because it does not exist yet.
        """
        if self.conn.dialect.name != "sqlite":  # where one transaction writes at a time
            self.conn.execute(
                text("SELECT pg_advisory_xact_lock(hashtextextended(:name, 0))"), {"name": name}
            )
