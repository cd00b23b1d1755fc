"""What a session says: its events, recorded in small form and published after the commit.

What subagents do is seen under their own routes, and is not among the session's events: whatever speaks of
a turn or an item of another agent than the root is dropped here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from perdure.store.rows import ItemRow, SessionStatus, SubagentRow, TurnRow
from perdure.store.tx import Published, Tx
from perdure.wire import events as wire
from perdure.wire.errors import ErrorBody
from perdure.wire.items import OUTPUT_ITEM_TYPES
from perdure.wire.sessions import Session
from perdure.wire.turns import TurnErrorCode, error_type


class Speaker(ABC):
    """A session under its lock, as far as its events go. `row` is the session's row as it will be saved."""

    def __init__(self, tx: Tx, row: dict[str, Any]) -> None:
        self.tx = tx
        self.row = row
        self.id: str = row["id"]
        self.entries: list[dict[str, Any]] = []
        self._unstored = 0

    @property
    def root(self) -> str:
        """The id of the root agent."""
        return self.row["agent_id"]  # type: ignore[no-any-return]

    @property
    def status(self) -> SessionStatus:
        return self.row["status"]  # type: ignore[no-any-return]

    @abstractmethod
    def resource(self) -> Session:
        """The session as the protocol shows it now."""

    def say_session(self, kind: type[wire.SessionStateEvent]) -> None:
        snapshot = self.resource()
        actions = [action.call_id for action in snapshot.required_actions if action.type == "function_call"]
        entry = {"status": self.status, "version": self.row["config_version"], "usage": self.row["usage"]}
        self._say(
            kind(event_id=self._next_event_id(), session=snapshot),
            {**entry, "last_active_us": self.row["last_active_us"], "actions": actions},
        )

    def say_turn(self, kind: type[wire.TurnStateEvent], turn: TurnRow) -> None:
        if turn.agent_id != self.root:
            return
        fields: dict[str, Any] = {"session_id": self.id, "turn_id": turn.id, "turn": turn.resource}
        if issubclass(kind, wire.TurnEndedEvent):
            fields["usage"] = fields["turn"].usage
        self._say(kind(event_id=self._next_event_id(), **fields), {"turn": turn.id, "status": turn.status})

    def say_item_added(self, item: ItemRow) -> None:
        if item.agent_id != self.root:
            return
        self._say(
            wire.ItemAdded(
                event_id=self._next_event_id(),
                session_id=self.id,
                turn_id=item.turn_id,
                item=item.resource,
                output_index=item.output_index,
            ),
            {"item": item.id, "status": item.status},
        )

    def say_item_done(self, item: ItemRow) -> None:
        assert item.type in OUTPUT_ITEM_TYPES
        if item.agent_id != self.root:
            return
        assert item.output_index is not None
        self._say(
            wire.ItemDone(
                event_id=self._next_event_id(),
                session_id=self.id,
                turn_id=item.turn_id,
                item=item.resource,
                output_index=item.output_index,
            ),
            {"item": item.id, "status": item.status},
        )

    def say_error(self, code: TurnErrorCode, message: str) -> None:
        error = ErrorBody(type=error_type(code), code=code, message=message, param=None)
        self._say(
            wire.SessionError(event_id=self._next_event_id(), session_id=self.id, error=error),
            {"error": {"code": code, "message": message}},
        )

    def say_part(self, event: wire.Event, item: ItemRow) -> None:
        """An event about a part of an item; its id is set here."""
        if item.agent_id != self.root:
            return
        part = getattr(event, "content_index", getattr(event, "summary_index", None))
        self._say(
            event.model_copy(update={"event_id": self._next_event_id()}), {"item": item.id, "part": part}
        )

    def say_subagent(self, kind: type[wire.SubagentStateEvent], subagent: SubagentRow) -> None:
        self._say(
            kind(event_id=self._next_event_id(), subagent=subagent.resource),
            {"subagent": subagent.id, "status": subagent.status, "closed_us": subagent.closed_us},
        )

    def say_unstored(self, event: wire.Event, item: ItemRow) -> None:
        """A delta of an item: it leaves with the commit and in its order, and is never stored."""
        if item.agent_id != self.root:
            return
        self._unstored += 1
        named = event.model_copy(
            update={"event_id": event_id(self.id, self.row["seq"], f"d{self._unstored}e{self.row['epoch']}")}
        )
        self.tx.announcements.append(Published(self.id, self.row["epoch"], self.row["seq"], named))

    def _next_event_id(self) -> str:
        self.row["seq"] += 1
        return event_id(self.id, self.row["seq"])

    def _say(self, event: wire.Event, entry: dict[str, Any]) -> None:
        self.entries.append({"type": wire.type_of(event), **entry})
        self.tx.announcements.append(Published(self.id, self.row["epoch"], self.row["seq"], event))


def event_id(session_id: str, seq: int, suffix: str = "") -> str:
    """The id of a stored event; deltas and snapshots add a suffix to that of the event before them."""
    return f"evt_{session_id[-16:]}_{seq}{suffix}"
