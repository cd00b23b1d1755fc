"""One session under its row lock, inside one transaction: the only way its rows change.

Sequences and positions are handed out here, events are recorded here, and `save` writes what
changed of the session's own row together with the events. Nothing here decides; callers do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

from perdure.store import hot
from perdure.store.configs import load_config
from perdure.store.rows import (
    CallRow,
    CallState,
    Config,
    ItemRow,
    SessionStatus,
    TurnRow,
    session_resource,
)
from perdure.store.tx import Published, Tx
from perdure.wire import events as wire
from perdure.wire.actions import RequiredAction
from perdure.wire.errors import ErrorBody
from perdure.wire.ids import ITEM, new_id
from perdure.wire.items import OUTPUT_ITEM_TYPES
from perdure.wire.sessions import Session
from perdure.wire.turns import TurnErrorCode, error_type


class Fenced(Exception):
    """Another owner took the session over: stop silently, write and publish nothing more."""


class SessionGone(Exception):
    """There is no such session (any more)."""


class LockedSession:
    """See the module's text. `row` is the session's row as it will be saved."""

    def __init__(self, tx: Tx, row: dict[str, Any]) -> None:
        self.tx = tx
        self.row = row
        self.id: str = row["id"]
        self.changed: dict[str, ItemRow] = {}
        # A configuration version that this transaction adds.
        self.new_version: int | None = None
        self._before = dict(row)
        self._turns: dict[str, TurnRow] = {}
        self._entries: list[dict[str, Any]] = []
        self._unstored = 0

    @classmethod
    def lock(
        cls, tx: Tx, session_id: str, *, project_id: str | None = None, epoch: int | None = None
    ) -> LockedSession:
        """Take the session's row lock.

        Raises:
            SessionGone: missing, deleted, or of another project.
            Fenced: an `epoch` was given and is no longer the session's.
        """
        found = hot.LOCK.fetch(tx.conn, {"session_id": session_id})
        if not found or found[0]["deleted_us"] is not None:
            raise SessionGone(session_id)
        row = found[0]
        if project_id is not None and row["project_id"] != project_id:
            raise SessionGone(session_id)
        if epoch is not None and row["epoch"] != epoch:
            raise Fenced(session_id)
        return cls(tx, row)

    # ---- reading

    @property
    def status(self) -> SessionStatus:
        return self.row["status"]  # type: ignore[no-any-return]

    def config(self, version: int | None = None) -> Config:
        """The session's configuration in one version (default: the newest)."""
        wanted: int = self.row["config_version"] if version is None else version
        return load_config(self.tx.conn, self.row, wanted, keep=wanted != self.new_version)

    def turn(self) -> TurnRow | None:
        """The unfinished root turn."""
        turn_id: str | None = self.row["turn_id"]
        if turn_id is None:
            return None
        held = self._turns.get(turn_id)
        return held or TurnRow(**hot.TURN.fetch(self.tx.conn, {"turn_id": turn_id})[0])

    def calls(self, state: CallState) -> list[CallRow]:
        """Calls in one state, in the order they were made."""
        if state == "open" and not self.row["open_calls"]:
            return []
        found = hot.CALLS.fetch(self.tx.conn, {"session_id": self.id, "state": state})
        return [CallRow(**row) for row in found]

    def call(self, call_id: str) -> CallRow | None:
        found = hot.CALL.fetch(self.tx.conn, {"session_id": self.id, "call_id": call_id})
        return CallRow(**found[0]) if found else None

    def item(self, item_id: str) -> ItemRow:
        return ItemRow(**hot.ITEM.fetch(self.tx.conn, {"item_id": item_id})[0])

    def inbox(self) -> list[dict[str, Any]]:
        """Accepted and not yet applied input, oldest first."""
        if not self.row["inbox_count"]:
            return []
        return hot.INBOX.fetch(self.tx.conn, {"session_id": self.id})

    def note_items(self, turn: TurnRow) -> None:
        """Count the items of a turn as changed by this transaction."""
        for row in hot.TURN_ITEMS.fetch(self.tx.conn, {"turn_id": turn.id}):
            item = ItemRow(**row)
            self.changed[item.id] = item

    # ---- writing

    def queue_input(self, kind: str, payload: Any) -> None:
        self.row["inbox_pos"] += 1
        self.row["inbox_count"] += 1
        hot.INSERT_INBOX.execute(
            self.tx.conn,
            {
                "session_id": self.id,
                "pos": self.row["inbox_pos"],
                "agent_id": self.row["agent_id"],
                "kind": kind,
                "payload": payload,
                "accepted_us": self.tx.now_us,
            },
        )

    def drop_inbox(self, positions: Sequence[int]) -> None:
        for position in positions:
            hot.DROP_INBOX.execute(self.tx.conn, {"session_id": self.id, "pos": position})
        self.row["inbox_count"] -= len(positions)

    def insert_turn(self) -> TurnRow:
        """A queued root turn under the newest configuration; it becomes the session's unfinished turn."""
        self.row["turn_pos"] += 1
        turn = TurnRow(
            id=new_id("turn"),
            session_id=self.id,
            agent_id=self.row["agent_id"],
            subagent_id=None,
            pos=self.row["turn_pos"],
            status="queued",
            config_version=self.row["config_version"],
            created_us=self.tx.now_us,
            started_us=None,
            completed_us=None,
            active_us=0,
            error=None,
            usage=None,
            usage_unknown=False,
            prompt_cache=self.row["prompt_cache"],
            outputs=0,
            model_calls=0,
            tool_calls=0,
            spent=None,
        )
        hot.INSERT_TURN.execute(self.tx.conn, values_of(turn))
        self.row["turn_id"] = turn.id
        return turn

    def update_turn(self, turn: TurnRow, **changes: Any) -> TurnRow:
        """Change a turn; its row is written when the session is saved."""
        changed = self._turns[turn.id] = replace(turn, **changes)
        return changed

    def insert_item(
        self,
        turn: TurnRow,
        kind: str,
        data: Mapping[str, Any],
        *,
        status: str | None,
        output_index: int | None = None,
        step: int | None = None,
        private: Mapping[str, Any] | None = None,
        item_id: str | None = None,
    ) -> ItemRow:
        self.row["item_pos"] += 1
        item = ItemRow(
            session_id=self.id,
            pos=self.row["item_pos"],
            id=item_id or new_id(ITEM[kind]),
            turn_id=turn.id,
            agent_id=turn.agent_id,
            step=step,
            type=kind,
            status=status,
            output_index=output_index,
            data=data,
            private=private,
        )
        hot.INSERT_ITEM.execute(self.tx.conn, values_of(item))
        self.changed[item.id] = item
        return item

    def update_item(self, item: ItemRow, **changes: Any) -> ItemRow:
        item = replace(item, **changes)
        hot.UPDATE_ITEM.execute(
            self.tx.conn,
            {
                "key_session_id": self.id,
                "key_pos": item.pos,
                "status": item.status,
                "data": item.data,
                "private": item.private,
            },
        )
        self.changed[item.id] = item
        return item

    def update_call(self, call: CallRow, **changes: Any) -> CallRow:
        changed = replace(call, **changes)
        self.row["open_calls"] += (changed.state == "open") - (call.state == "open")
        keys = {"key_session_id": self.id, "key_call_id": call.call_id, "state": changed.state}
        if changed.result is call.result:
            # It may be large, and is there already.
            hot.UPDATE_CALL_STATE.execute(self.tx.conn, keys)
        else:
            hot.UPDATE_CALL.execute(self.tx.conn, {**keys, "result": changed.result})
        return changed

    def insert_call(self, call: CallRow) -> None:
        self.row["open_calls"] += call.state == "open"
        hot.INSERT_CALL.execute(self.tx.conn, values_of(call))

    def touch(self) -> None:
        """Note activity: accepted input, a turn's start or end, a result."""
        self.row["last_active_us"] = max(self.row["last_active_us"], self.tx.now_us)

    def save(self) -> None:
        """Write the session's row and its events; fenced by the epoch it was locked with."""
        conn = self.tx.conn
        for turn in self._turns.values():
            hot.UPDATE_TURN.execute(conn, {"key_id": turn.id, **values_of(turn)})
        self._turns.clear()
        if self._entries:
            hot.INSERT_EVENTS.execute(
                conn,
                {
                    "session_id": self.id,
                    "seq": self.row["seq"],
                    "created_us": self.tx.now_us,
                    "entries": self._entries,
                },
            )
            self._entries = []
        if self.row == self._before:
            return
        keys = {"key_id": self.id, "key_epoch": self._before["epoch"]}
        # In a pipeline the count is not known yet; the lock that was taken keeps the epoch as it was.
        if hot.UPDATE_SESSION.execute(conn, {**keys, **self.row}) == 0:
            raise Fenced(self.id)
        self._before = dict(self.row)

    # ---- saying

    def resource(self) -> Session:
        return session_resource(self.row, self.config(), self.required_actions())

    def required_actions(self) -> list[RequiredAction]:
        return [call.action for call in self.calls("open")]

    def say_session(self, kind: type[wire.SessionStateEvent]) -> None:
        snapshot = self.resource()
        actions = [action.call_id for action in snapshot.required_actions if action.type == "function_call"]
        entry = {"status": self.status, "version": self.row["config_version"], "usage": self.row["usage"]}
        self._say(
            kind(event_id=self._next_event_id(), session=snapshot),
            {**entry, "last_active_us": self.row["last_active_us"], "actions": actions},
        )

    def say_turn(self, kind: type[wire.TurnStateEvent], turn: TurnRow) -> None:
        fields: dict[str, Any] = {"session_id": self.id, "turn_id": turn.id, "turn": turn.resource}
        if issubclass(kind, wire.TurnEndedEvent):
            fields["usage"] = fields["turn"].usage
        self._say(kind(event_id=self._next_event_id(), **fields), {"turn": turn.id, "status": turn.status})

    def say_item_added(self, item: ItemRow) -> None:
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
        part = getattr(event, "content_index", getattr(event, "summary_index", None))
        self._say(
            event.model_copy(update={"event_id": self._next_event_id()}), {"item": item.id, "part": part}
        )

    def say_unstored(self, event: wire.Event) -> None:
        """A delta: it leaves with the commit and in its order, and is never stored."""
        self._unstored += 1
        named = event.model_copy(
            update={"event_id": event_id(self.id, self.row["seq"], f"d{self._unstored}e{self.row['epoch']}")}
        )
        self.tx.announcements.append(Published(self.id, self.row["epoch"], self.row["seq"], named))

    def _next_event_id(self) -> str:
        self.row["seq"] += 1
        return event_id(self.id, self.row["seq"])

    def _say(self, event: wire.Event, entry: dict[str, Any]) -> None:
        self._entries.append({"type": wire.type_of(event), **entry})
        self.tx.announcements.append(Published(self.id, self.row["epoch"], self.row["seq"], event))


def event_id(session_id: str, seq: int, suffix: str = "") -> str:
    """The id of a stored event; deltas and snapshots add a suffix to that of the event before them."""
    return f"evt_{session_id[-16:]}_{seq}{suffix}"


_FIELDS = {kind: tuple(kind.__slots__) for kind in (TurnRow, ItemRow, CallRow)}
_VALUES = {kind: attrgetter(*names) for kind, names in _FIELDS.items()}


def values_of(row: TurnRow | ItemRow | CallRow) -> dict[str, Any]:
    """A row's fields by name, values untouched."""
    return dict(zip(_FIELDS[type(row)], _VALUES[type(row)](row), strict=True))
