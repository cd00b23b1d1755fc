"""Stored events, rebuilt from their small form and the rows they refer to.

Deltas are never stored: the text of a part is in its `output_text.done` and in the item.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, Row, select

from perdure.store.blobs import item_rows
from perdure.store.configs import load_config
from perdure.store.rows import (
    ItemRow,
    SubagentRow,
    TurnRow,
    call_row,
    session_resource,
    subagent_row,
    turn_row,
)
from perdure.store.sessions import find_session
from perdure.store.speaking import event_id
from perdure.store.tables import calls, events, items, subagents, turns
from perdure.store.tx import Tx
from perdure.wire import events as wire
from perdure.wire.errors import ErrorBody, InvalidRequest
from perdure.wire.items import OutputText, SummaryText
from perdure.wire.turns import error_type

Entry = Mapping[str, Any]

ITEMS = 500
"""How many items one statement names."""

_SESSION_KINDS: dict[str, type[wire.SessionStateEvent]] = {
    "agent.session.created": wire.SessionCreated,
    "agent.session.in_progress": wire.SessionInProgress,
    "agent.session.idle": wire.SessionIdle,
    "agent.session.requires_action": wire.SessionRequiresAction,
    "agent.session.failed": wire.SessionFailed,
}
_TURN_KINDS: dict[str, type[wire.TurnStateEvent]] = {
    "agent.session.turn.created": wire.TurnCreated,
    "agent.session.turn.in_progress": wire.TurnInProgress,
    "agent.session.turn.completed": wire.TurnCompleted,
    "agent.session.turn.failed": wire.TurnFailed,
    "agent.session.turn.cancelled": wire.TurnCancelled,
}
_SUBAGENT_KINDS: dict[str, type[wire.SubagentStateEvent]] = {
    "agent.session.subagent.created": wire.SubagentCreated,
    "agent.session.subagent.active": wire.SubagentActive,
    "agent.session.subagent.closed": wire.SubagentClosed,
}


@dataclass(frozen=True, slots=True)
class Stored:
    """A stored event and its place in the session's sequence."""

    seq: int
    event: wire.Event


@dataclass(frozen=True, slots=True)
class Replayed:
    """A stretch of stored events: go on behind `reached` while there is `more`."""

    events: tuple[Stored, ...]
    reached: int
    more: bool


def sequence_of(session_id: str, cursor: str) -> int:
    """The sequence that an event id stands for; ids of deltas and snapshots mean the event before them.

    Raises:
        InvalidRequest: the id is none of the session's events.
    """
    head, _, tail = cursor.rpartition("_")
    digits = tail.partition("d")[0]
    if head != event_id(session_id, 0)[:-2] or not digits.isdecimal() or len(digits) > 18:
        raise InvalidRequest("'after' must be the event_id of an event of this session.", param="after")
    return int(digits)


def read_events(
    conn: Connection, session_id: str, project_id: str, after: int, until: int | None, limit: int
) -> Replayed:
    """Events behind `after`, oldest first, up to `until` or the newest.

    At least one stored transaction is read whole, so a page may hold more than `limit` events.

    Raises:
        SessionGone: missing, deleted, or of another project.
        InvalidRequest: `after` is ahead of the session, or events behind it are no longer kept.
    """
    session = find_session(conn, session_id, project_id)
    last: int = session.seq if until is None else min(until, session.seq)
    if after > session.seq:
        raise InvalidRequest("'after' is ahead of this session's events.", param="after")
    return read_stretch(conn, session, after, last, limit)


def read_stretch(conn: Connection, session: Row[Any], after: int, last: int, limit: int) -> Replayed:
    """Events of a session's row behind `after` up to `last`; see `read_events`.

    Raises:
        InvalidRequest: events behind `after` are no longer kept.
    """
    session_id: str = session.id
    found: list[Stored] = []
    rebuild = _Rebuild(conn, session)
    statement = (
        select(events.c.seq, events.c.entries)
        .where(events.c.session_id == session_id, events.c.seq > after, events.c.seq <= last)
        .order_by(events.c.seq)
        .limit(limit)
    )
    expected = after + 1
    stretch = conn.execute(statement).fetchall()
    rebuild.expect(entries for seq, entries in stretch if seq - len(entries) < after + limit)
    for seq, entries in stretch:
        first = seq - len(entries) + 1
        if first > expected:
            raise _forgotten()
        expected = seq + 1
        for place, entry in enumerate(entries, first):
            event = rebuild.event(entry, event_id(session_id, place)) if place > after else None
            if event is not None:
                found.append(Stored(place, event))
        if len(found) >= limit:
            break
    if expected == after + 1 <= last:
        raise _forgotten()
    return Replayed(tuple(found), expected - 1, expected <= last)


def _forgotten() -> InvalidRequest:
    return InvalidRequest(
        "Events behind 'after' are no longer stored. Read the session's state and follow it from now on.",
        param="after",
    )


def forget_events(tx: Tx, before_us: int, limit: int) -> int:
    """Delete up to `limit` stored transactions older than `before_us`; returns how many."""
    old = select(events.c.session_id, events.c.seq).where(events.c.created_us < before_us).limit(limit)
    rows = tx.conn.execute(old).fetchall()
    for session_id, seq in rows:
        tx.conn.execute(events.delete().where(events.c.session_id == session_id, events.c.seq == seq))
    return len(rows)


class _Rebuild:
    """Events of one session, as they were said."""

    def __init__(self, conn: Connection, session: Row[Any]) -> None:
        self._conn = conn
        self._session = dict(session._mapping)
        self._items: dict[str, ItemRow | None] = {}
        self._turns: dict[str, TurnRow | None] = {}
        self._subagents: dict[str, SubagentRow | None] = {}

    def expect(self, stretch: Iterable[Sequence[Entry]]) -> None:
        """Read the items that stored transactions refer to, all at once."""
        wanted = sorted({entry["item"] for entries in stretch for entry in entries if "item" in entry})
        for start in range(0, len(wanted), ITEMS):
            self._load(wanted[start : start + ITEMS])

    def event(self, entry: Entry, identity: str) -> wire.Event | None:
        """The event; None for a delta, and for what refers to rows that are gone."""
        kind: str = entry["type"]
        if kind in _SESSION_KINDS:
            return self._session_event(_SESSION_KINDS[kind], entry, identity)
        if kind in _TURN_KINDS:
            return self._turn_event(_TURN_KINDS[kind], entry, identity)
        if kind in _SUBAGENT_KINDS:
            return self._subagent_event(_SUBAGENT_KINDS[kind], entry, identity)
        if kind == "error":
            error = ErrorBody(type=error_type(entry["error"]["code"]), **entry["error"])
            return wire.SessionError(event_id=identity, session_id=self._session["id"], error=error)
        item = self._item(entry["item"])
        return None if item is None else self._item_event(kind, entry, item, identity)

    def _session_event(self, kind: type[wire.SessionStateEvent], entry: Entry, identity: str) -> wire.Event:
        row = {**self._session, **{key: entry[key] for key in ("status", "usage", "last_active_us")}}
        actions = []
        if entry["actions"]:
            found = self._conn.execute(
                select(calls)
                .where(calls.c.session_id == row["id"], calls.c.call_id.in_(entry["actions"]))
                .order_by(calls.c.pos)
            )
            actions = [call_row(call).action for call in found]
        config = load_config(self._conn, row, entry["version"])
        return kind(event_id=identity, session=session_resource(row, config, actions))

    def _turn_event(self, kind: type[wire.TurnStateEvent], entry: Entry, identity: str) -> wire.Event | None:
        turn = self._turn(entry["turn"])
        if turn is None:
            return None
        status = entry["status"]
        if status in ("queued", "in_progress"):
            turn = replace(turn, status=status, completed_us=None, error=None, usage=None)
            if status == "queued":
                turn = replace(turn, started_us=None)
        fields: dict[str, Any] = {"session_id": turn.session_id, "turn_id": turn.id, "turn": turn.resource}
        if issubclass(kind, wire.TurnEndedEvent):
            fields["usage"] = fields["turn"].usage
        return kind(event_id=identity, **fields)

    def _subagent_event(
        self, kind: type[wire.SubagentStateEvent], entry: Entry, identity: str
    ) -> wire.Event | None:
        subagent = self._subagent(entry["subagent"])
        if subagent is None:
            return None
        then = replace(subagent, status=entry["status"], closed_us=entry["closed_us"])
        return kind(event_id=identity, subagent=then.resource)

    def _item_event(self, kind: str, entry: Entry, item: ItemRow, identity: str) -> wire.Event | None:
        where: dict[str, Any] = {
            "event_id": identity,
            "session_id": item.session_id,
            "turn_id": item.turn_id,
            "output_index": item.output_index,
        }
        match kind.removeprefix("agent.session.turn."):
            case "item.added":
                began = item.step is not None and item.type in ("message", "reasoning")
                shown = replace(item.emptied() if began else item, status=entry["status"])
                return wire.ItemAdded(**where, item=shown.resource)
            case "item.done":
                return wire.ItemDone(**where, item=replace(item, status=entry["status"]).resource)
            case part:
                return _part_event(part, {**where, "item_id": item.id}, entry["part"], item)

    def _item(self, item_id: str) -> ItemRow | None:
        if item_id not in self._items:
            self._load([item_id])
        return self._items[item_id]

    def _load(self, item_ids: Sequence[str]) -> None:
        self._items |= dict.fromkeys(item_ids)
        query = select(items).where(items.c.id.in_(item_ids))
        self._items |= {item.id: item for item in item_rows(self._conn, query)}

    def _turn(self, turn_id: str) -> TurnRow | None:
        if turn_id not in self._turns:
            row = self._conn.execute(select(turns).where(turns.c.id == turn_id)).first()
            self._turns[turn_id] = None if row is None else turn_row(row)
        return self._turns[turn_id]

    def _subagent(self, subagent_id: str) -> SubagentRow | None:
        if subagent_id not in self._subagents:
            row = self._conn.execute(select(subagents).where(subagents.c.id == subagent_id)).first()
            self._subagents[subagent_id] = None if row is None else subagent_row(row)
        return self._subagents[subagent_id]


def _part_event(kind: str, where: Mapping[str, Any], index: int, item: ItemRow) -> wire.Event | None:
    parts = item.data["content"] if item.type == "message" else item.data["summary"]
    text: str = parts[index]["text"] if index < len(parts) else ""
    match kind:
        case "content_part.added":
            return wire.ContentPartAdded(**where, content_index=index, part=OutputText(text=""))
        case "output_text.done":
            return wire.OutputTextDone(**where, content_index=index, text=text)
        case "content_part.done":
            return wire.ContentPartDone(**where, content_index=index, part=OutputText(text=text))
        case "reasoning_summary_part.added":
            return wire.ReasoningSummaryPartAdded(**where, summary_index=index, part=SummaryText(text=""))
        case "reasoning_summary_text.done":
            return wire.ReasoningSummaryTextDone(**where, summary_index=index, text=text)
        case "reasoning_summary_part.done":
            status = "incomplete" if item.status == "incomplete" else None
            return wire.ReasoningSummaryPartDone(
                **where, summary_index=index, part=SummaryText(text=text), status=status
            )
        case _:
            return None
