"""One session under its row lock, inside one transaction: the only way its rows change.

Sequences and positions are handed out here, events are recorded here, and `save` writes what
changed of the session's own row together with the events. Nothing here decides; callers do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from sqlalchemy import bindparam, insert, select, update

from perdure.store.rows import CallRow, CallState, Config, ItemRow, SessionStatus, TurnRow, call_row, config_of
from perdure.store.rows import item_row, session_resource, turn_row
from perdure.store.tables import calls, events, inbox, items, session_configs, sessions, turns
from perdure.store.tx import Published, Tx
from perdure.wire import events as wire
from perdure.wire.actions import RequiredAction
from perdure.wire.errors import ErrorBody
from perdure.wire.ids import new_id
from perdure.wire.items import OUTPUT_ITEM_TYPES
from perdure.wire.sessions import Session
from perdure.wire.turns import TurnError, TurnErrorCode

ITEM_PREFIX = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "function_call_output": "fco",
}


class Fenced(Exception):
    """Another owner took the session over: stop silently, write and publish nothing more."""


class SessionGone(Exception):
    """There is no such session (any more)."""


_LOCK = select(sessions).where(sessions.c.id == bindparam("session_id")).with_for_update()
_CONFIG = select(session_configs.c.settings).where(
    session_configs.c.session_id == bindparam("session_id"), session_configs.c.version == bindparam("version")
)
_TURN = select(turns).where(turns.c.id == bindparam("turn_id"))
_OPEN_CALLS = (
    select(calls)
    .where(calls.c.session_id == bindparam("session_id"), calls.c.state == bindparam("state"))
    .order_by(calls.c.pos)
)
_CALL = select(calls).where(
    calls.c.session_id == bindparam("session_id"), calls.c.call_id == bindparam("call_id")
)
_ITEM = select(items).where(items.c.id == bindparam("item_id"))
_INSERT_ITEM = insert(items)
_INSERT_TURN = insert(turns)
_INSERT_EVENTS = insert(events)
_INSERT_INBOX = insert(inbox)
_INBOX = select(inbox).where(inbox.c.session_id == bindparam("session_id")).order_by(inbox.c.pos)

# What owners and the API change of a session's row, written whole at each save.
_MUTABLE = (
    "status", "epoch", "seq", "item_pos", "inbox_pos", "turn_pos", "last_active_us", "config_version",
    "metadata", "prompt_cache", "review", "error", "usage", "usage_unknown", "turn_id", "wake_at",
    "deleted_us",
)  # fmt: skip


_configs: dict[tuple[str, int], Config] = {}
_CONFIGS_KEPT = 4096


class LockedSession:
    """See the module's text. `row` is the session's row as it will be saved."""

    def __init__(self, tx: Tx, row: dict[str, Any]) -> None:
        self.tx = tx
        self.row = row
        self.id: str = row["id"]
        self.changed: dict[str, ItemRow] = {}
        self._before = dict(row)
        self._epoch_before: int = row["epoch"]
        self._entries: list[dict[str, Any]] = []

    @classmethod
    def lock(
        cls, tx: Tx, session_id: str, *, project_id: str | None = None, epoch: int | None = None
    ) -> LockedSession:
        """Take the session's row lock.

        Raises:
            SessionGone: missing, deleted, or of another project.
            Fenced: an `epoch` was given and is no longer the session's.
        """
        found = tx.conn.execute(_LOCK, {"session_id": session_id}).first()
        if found is None or found.deleted_us is not None:
            raise SessionGone(session_id)
        if project_id is not None and found.project_id != project_id:
            raise SessionGone(session_id)
        if epoch is not None and found.epoch != epoch:
            raise Fenced(session_id)
        return cls(tx, dict(found._mapping))

    # ---- reading

    @property
    def status(self) -> SessionStatus:
        return self.row["status"]  # type: ignore[no-any-return]

    def config(self, version: int | None = None) -> Config:
        """The session's configuration in one version (default: the newest)."""
        wanted: int = self.row["config_version"] if version is None else version
        return load_config(self.tx.conn, self.row, wanted)

    def turn(self) -> TurnRow | None:
        """The unfinished root turn."""
        if self.row["turn_id"] is None:
            return None
        return turn_row(self.tx.conn.execute(_TURN, {"turn_id": self.row["turn_id"]}).one())

    def calls(self, state: CallState) -> list[CallRow]:
        """Calls in one state, in the order they were made."""
        found = self.tx.conn.execute(_OPEN_CALLS, {"session_id": self.id, "state": state})
        return [call_row(row) for row in found]

    def call(self, call_id: str) -> CallRow | None:
        found = self.tx.conn.execute(_CALL, {"session_id": self.id, "call_id": call_id}).first()
        return None if found is None else call_row(found)

    def item(self, item_id: str) -> ItemRow:
        return item_row(self.tx.conn.execute(_ITEM, {"item_id": item_id}).one())

    def inbox(self) -> list[Mapping[str, Any]]:
        """Accepted and not yet applied input, oldest first."""
        return [row._mapping for row in self.tx.conn.execute(_INBOX, {"session_id": self.id})]

    # ---- writing

    def queue_input(self, kind: str, payload: Any) -> None:
        self.row["inbox_pos"] += 1
        self.tx.conn.execute(
            _INSERT_INBOX,
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
        if positions:
            self.tx.conn.execute(
                inbox.delete().where(inbox.c.session_id == self.id, inbox.c.pos.in_(positions))
            )

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
        )
        self.tx.conn.execute(_INSERT_TURN, asdict(turn))
        self.row["turn_id"] = turn.id
        return turn

    def update_turn(self, turn: TurnRow, **changes: Any) -> TurnRow:
        if not changes:
            return turn
        self.tx.conn.execute(update(turns).where(turns.c.id == turn.id), changes)
        return replace(turn, **changes)

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
            id=item_id or new_id(ITEM_PREFIX[kind]),
            turn_id=turn.id,
            agent_id=turn.agent_id,
            step=step,
            type=kind,
            status=status,
            output_index=output_index,
            data=data,
            private=private,
        )
        self.tx.conn.execute(_INSERT_ITEM, asdict_shallow(item))
        self.changed[item.id] = item
        return item

    def update_item(self, item: ItemRow, **changes: Any) -> ItemRow:
        self.tx.conn.execute(
            update(items).where(items.c.session_id == self.id, items.c.pos == item.pos), changes
        )
        item = replace(item, **changes)
        self.changed[item.id] = item
        return item

    def update_call(self, call: CallRow, **changes: Any) -> CallRow:
        self.tx.conn.execute(
            update(calls).where(calls.c.session_id == self.id, calls.c.call_id == call.call_id), changes
        )
        return replace(call, **changes)

    def insert_call(self, call: CallRow) -> None:
        self.tx.conn.execute(insert(calls), asdict_shallow(call))

    def touch(self) -> None:
        """Note activity: accepted input, a turn's start or end, a result."""
        self.row["last_active_us"] = max(self.row["last_active_us"], self.tx.now_us)

    def save(self) -> None:
        """Write the session's row and its events; fenced by the epoch it was locked with."""
        if self._entries:
            self.tx.conn.execute(
                _INSERT_EVENTS,
                {
                    "session_id": self.id,
                    "seq": self.row["seq"],
                    "created_us": self.tx.now_us,
                    "entries": self._entries,
                },
            )
            self._entries = []
        changes = {key: self.row[key] for key in _MUTABLE if self.row[key] != self._before[key]}
        if not changes:
            return
        done = self.tx.conn.execute(
            update(sessions).where(sessions.c.id == self.id, sessions.c.epoch == self._epoch_before), changes
        )
        if done.rowcount != 1:
            raise Fenced(self.id)
        self._before = dict(self.row)
        self._epoch_before = self.row["epoch"]

    # ---- saying

    def resource(self) -> Session:
        return session_resource(self.row, self.config(), self.required_actions())

    def required_actions(self) -> list[RequiredAction]:
        return [call.action for call in self.calls("open")]

    def say_session(self, kind: type[wire.SessionStateEvent]) -> None:
        snapshot = self.resource()
        actions = [
            action.call_id for action in snapshot.required_actions if action.type == "function_call"
        ]
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
                item=item.resource,  # type: ignore[arg-type]
                output_index=item.output_index,
            ),
            {"item": item.id, "status": item.status},
        )

    def say_error(self, code: TurnErrorCode | str, message: str) -> None:
        error = ErrorBody(type="server_error", code=code, message=message, param=None)
        self._say(
            wire.SessionError(event_id=self._next_event_id(), session_id=self.id, error=error),
            {"error": TurnError.model_construct(code=code, message=message).model_dump()},
        )

    def say_part(self, event: wire.SessionEvent, item: ItemRow) -> None:
        """An event about a part of an item; its id is set here."""
        self._say(event.model_copy(update={"event_id": self._next_event_id()}), {"item": item.id})

    def _next_event_id(self) -> str:
        self.row["seq"] += 1
        return event_id(self.id, self.row["seq"])

    def _say(self, event: wire.SessionEvent, entry: dict[str, Any]) -> None:
        self._entries.append({"type": event.type, **entry})
        self.tx.announcements.append(Published(self.id, self.row["epoch"], self.row["seq"], event))


def event_id(session_id: str, seq: int, suffix: str = "") -> str:
    """The id of a stored event; deltas and snapshots add a suffix to that of the event before them."""
    return f"evt_{session_id[-16:]}_{seq}{suffix}"


def asdict_shallow(row: ItemRow | CallRow) -> dict[str, Any]:
    """A row's fields by name, values untouched."""
    return {name: getattr(row, name) for name in row.__slots__}


def load_config(conn: Any, row: Mapping[str, Any], version: int) -> Config:
    """A version of a session's configuration; versions never change, so they are kept parsed."""
    key = (row["id"], version)
    cached = _configs.get(key)
    if cached is None:
        settings = conn.execute(_CONFIG, {"session_id": row["id"], "version": version}).scalar_one()
        cached = config_of(version, settings, row["agent_id"], row["agent_name"])
        if len(_configs) >= _CONFIGS_KEPT:
            _configs.pop(next(iter(_configs)))
        _configs[key] = cached
    return cached
