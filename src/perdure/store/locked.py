"""One session under its row lock, inside one transaction: the only way its rows change.

Sequences and positions are handed out here, and `save` writes what changed of the session's own row
together with the events that were said. Nothing here decides; callers do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

from perdure.store import hot
from perdure.store.blobs import Blobs
from perdure.store.configs import load_config
from perdure.store.rows import (
    CallRow,
    CallState,
    Config,
    ItemRow,
    SubagentRow,
    TurnRow,
    session_resource,
)
from perdure.store.speaking import Speaker
from perdure.store.tx import Tx
from perdure.wire.actions import RequiredAction
from perdure.wire.ids import ITEM, SUBAGENT, new_id
from perdure.wire.sessions import Session


class Fenced(Exception):
    """Another owner took the session over: stop silently, write and publish nothing more."""


class SessionGone(Exception):
    """There is no such session (any more)."""


class LockedSession(Speaker):
    """See the module's text. `row` is the session's row as it will be saved."""

    def __init__(self, tx: Tx, row: dict[str, Any]) -> None:
        super().__init__(tx, row)
        self.changed: dict[str, ItemRow] = {}
        # The agents that have something to look at because of this transaction.
        self.woken: set[str] = set()
        # The subagents whose turns it ends.
        self.ended: set[str] = set()
        # Who waits for subagents, as `waits` has read and changed it; None while nobody has looked.
        self.waits: list[dict[str, Any]] | None = None
        # A configuration version that this transaction adds.
        self.new_version: int | None = None
        self._blobs = Blobs(tx.conn, self.id)
        self._before = dict(row)
        self._turns: dict[str, TurnRow] = {}
        self._subagents: dict[str, SubagentRow] | None = None

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

    def config(self, version: int | None = None) -> Config:
        """The session's configuration in one version (default: the newest)."""
        wanted: int = self.row["config_version"] if version is None else version
        return load_config(self.tx.conn, self.row, wanted, keep=wanted != self.new_version)

    def turn(self, agent_id: str | None = None) -> TurnRow | None:
        """The unfinished turn of an agent (default: the root)."""
        turn_id: str | None
        if agent_id is None or agent_id == self.root:
            turn_id = self.row["turn_id"]
        else:
            subagent = self.subagent(agent_id)
            turn_id = None if subagent is None else subagent.turn_id
        if turn_id is None:
            return None
        held = self._turns.get(turn_id)
        return held or TurnRow(**hot.TURN.fetch(self.tx.conn, {"turn_id": turn_id})[0])

    def as_changed(self, turn: TurnRow) -> TurnRow:
        """A turn that was read, as this transaction has left it up to now."""
        return self._turns.get(turn.id, turn)

    def subagents(self) -> list[SubagentRow]:
        """All subagents, oldest first."""
        if self._subagents is None:
            found = self.row["subagents"] and hot.SUBAGENTS.fetch(self.tx.conn, {"session_id": self.id})
            self._subagents = {row["id"]: SubagentRow(**row) for row in found or ()}
        return list(self._subagents.values())

    def subagent(self, agent_id: str) -> SubagentRow | None:
        """A subagent by its id."""
        self.subagents()
        assert self._subagents is not None
        return self._subagents.get(agent_id)

    def children(self, agent_id: str) -> list[SubagentRow]:
        """The subagents that an agent created, oldest first."""
        return [each for each in self.subagents() if each.parent_agent_id == agent_id]

    def calls(self, state: CallState) -> list[CallRow]:
        """Calls in one state, in the order they were made."""
        if state == "open" and not self.row["open_calls"]:
            return []
        found = hot.CALLS.fetch(self.tx.conn, {"session_id": self.id, "state": state})
        return [CallRow(**row) for row in self._blobs.whole(found, "result")]

    def call(self, call_id: str) -> CallRow | None:
        found = hot.CALL.fetch(self.tx.conn, {"session_id": self.id, "call_id": call_id})
        return CallRow(**self._blobs.whole(found, "result")[0]) if found else None

    def item(self, item_id: str) -> ItemRow:
        found = hot.ITEM.fetch(self.tx.conn, {"item_id": item_id})
        return ItemRow(**self._blobs.whole(found, "data")[0])

    def inbox(self, agent_id: str | None = None) -> Sequence[Mapping[str, Any]]:
        """Accepted and not yet applied input of an agent (default: the root), oldest first."""
        if not self.row["inbox_count"]:
            return []
        rows = hot.INBOX.fetch(self.tx.conn, {"session_id": self.id})
        if self.row["subagents"]:
            wanted = agent_id or self.root
            rows = [row for row in rows if row["agent_id"] == wanted]
        return self._blobs.whole(rows, "payload")

    def is_cancelling(self) -> bool:
        """Whether an accepted cancel waits in the inbox."""
        if not self.row["inbox_count"]:
            return False
        return any(row["kind"] == "cancel" for row in hot.INBOX.fetch(self.tx.conn, {"session_id": self.id}))

    def said(self, turn: TurnRow) -> list[ItemRow]:
        """The messages that a model wrote in a turn, oldest first."""
        found = hot.SAID.fetch(self.tx.conn, {"turn_id": turn.id, "type": "message"})
        return [ItemRow(**row) for row in self._blobs.whole(found, "data")]

    def note_items(self, turn: TurnRow) -> None:
        """Count the items of a turn as changed by this transaction."""
        found = hot.TURN_ITEMS.fetch(self.tx.conn, {"turn_id": turn.id})
        for row in self._blobs.whole(found, "data"):
            item = ItemRow(**row)
            self.changed[item.id] = item

    # ---- writing

    def queue_input(self, kind: str, payload: Any, agent_id: str | None = None) -> None:
        """Leave input for an agent (default: the root)."""
        self.woken.add(agent_id or self.root)
        self.row["inbox_pos"] += 1
        self.row["inbox_count"] += 1
        hot.INSERT_INBOX.execute(
            self.tx.conn,
            {
                "session_id": self.id,
                "pos": self.row["inbox_pos"],
                "agent_id": agent_id or self.root,
                "kind": kind,
                "payload": self._blobs.put(payload),
                "accepted_us": self.tx.now_us,
            },
        )

    def drop_inbox(self, positions: Sequence[int]) -> None:
        for position in positions:
            hot.DROP_INBOX.execute(self.tx.conn, {"session_id": self.id, "pos": position})
        self.row["inbox_count"] -= len(positions)

    def insert_turn(self, subagent: SubagentRow | None = None) -> TurnRow:
        """A queued turn under the newest configuration; it becomes the unfinished one of its agent."""
        self.row["turn_pos"] += 1
        turn = TurnRow(
            id=new_id("turn"),
            session_id=self.id,
            agent_id=self.root if subagent is None else subagent.id,
            subagent_id=None if subagent is None else subagent.id,
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
        if subagent is None:
            self.row["turn_id"] = turn.id
        else:
            self.row["subagents_running"] += subagent.turn_id is None
            self.update_subagent(subagent, turn_id=turn.id)
        self.woken.add(turn.agent_id)
        return turn

    def close_turn(self, turn: TurnRow) -> None:
        """The agent of a turn that has ended has none that is unfinished."""
        if turn.subagent_id is None:
            self.row["turn_id"] = None
            return
        subagent = self.subagent(turn.subagent_id)
        assert subagent is not None
        self.row["subagents_running"] -= 1
        self.update_subagent(subagent, turn_id=None)
        self.woken.add(turn.subagent_id)
        self.ended.add(turn.subagent_id)

    def insert_subagent(
        self, parent_agent_id: str, depth: int, name: str, instructions: Sequence[Mapping[str, str]]
    ) -> SubagentRow:
        self.subagents()
        self.row["subagents"] += 1
        subagent = SubagentRow(
            session_id=self.id,
            pos=self.row["subagents"],
            id=new_id(SUBAGENT),
            parent_agent_id=parent_agent_id,
            depth=depth,
            name=name,
            instructions=instructions,
            status="active",
            opened_us=self.tx.now_us,
            closed_us=None,
            turn_id=None,
        )
        hot.INSERT_SUBAGENT.execute(self.tx.conn, values_of(subagent))
        assert self._subagents is not None
        self._subagents[subagent.id] = subagent
        return subagent

    def update_subagent(self, subagent: SubagentRow, **changes: Any) -> SubagentRow:
        self.subagents()
        assert self._subagents is not None
        changed = self._subagents[subagent.id] = replace(subagent, **changes)
        keys = {"key_id": changed.id, "status": changed.status}
        hot.UPDATE_SUBAGENT.execute(
            self.tx.conn, {**keys, "closed_us": changed.closed_us, "turn_id": changed.turn_id}
        )
        return changed

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
        hot.INSERT_ITEM.execute(self.tx.conn, {**values_of(item), "data": self._blobs.put_item(item)})
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
                "data": self._blobs.put_item(item),
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
            hot.UPDATE_CALL.execute(self.tx.conn, {**keys, "result": self._blobs.put(changed.result)})
        return changed

    def insert_call(self, call: CallRow) -> None:
        self.row["open_calls"] += call.state == "open"
        hot.INSERT_CALL.execute(self.tx.conn, {**values_of(call), "result": self._blobs.put(call.result)})

    def touch(self) -> None:
        """Note activity: accepted input, a turn's start or end, a result."""
        self.row["last_active_us"] = max(self.row["last_active_us"], self.tx.now_us)

    def save(self) -> None:
        """Write the session's row and its events; fenced by the epoch it was locked with."""
        conn = self.tx.conn
        for turn in self._turns.values():
            hot.UPDATE_TURN.execute(conn, {"key_id": turn.id, **values_of(turn)})
        self._turns.clear()
        if self.entries:
            hot.INSERT_EVENTS.execute(
                conn,
                {
                    "session_id": self.id,
                    "seq": self.row["seq"],
                    "created_us": self.tx.now_us,
                    "entries": self.entries,
                },
            )
            self.entries = []
        if self.row == self._before:
            return
        keys = {"key_id": self.id, "key_epoch": self._before["epoch"]}
        # In a pipeline the count is not known yet; the lock that was taken keeps the epoch as it was.
        if hot.UPDATE_SESSION.execute(conn, {**keys, **self.row}) == 0:
            raise Fenced(self.id)
        self._before = dict(self.row)

    # ---- as the protocol shows it

    def resource(self) -> Session:
        return session_resource(self.row, self.config(), self.required_actions())

    def required_actions(self) -> list[RequiredAction]:
        return [call.action for call in self.calls("open")]


_FIELDS = {kind: tuple(kind.__slots__) for kind in (TurnRow, ItemRow, CallRow, SubagentRow)}
_VALUES = {kind: attrgetter(*names) for kind, names in _FIELDS.items()}


def values_of(row: TurnRow | ItemRow | CallRow | SubagentRow) -> dict[str, Any]:
    """A row's fields by name, values untouched."""
    return dict(zip(_FIELDS[type(row)], _VALUES[type(row)](row), strict=True))
