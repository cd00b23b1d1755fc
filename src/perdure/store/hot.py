"""The statements that every turn runs, compiled once per database."""

from __future__ import annotations

from sqlalchemy import ColumnElement, bindparam, delete, literal_column, select

from perdure.store.statements import Statement, insert_into, update_where
from perdure.store.tables import (
    calls,
    compactions,
    events,
    inbox,
    items,
    model_calls,
    session_configs,
    sessions,
    subagents,
    turns,
    waits,
)

# Without one, SQLite's dialect adds a parameter of its own.
_NO_OFFSET: ColumnElement[int] = literal_column("0")

LOCK = Statement(select(sessions).where(sessions.c.id == bindparam("session_id")).with_for_update())
TURN = Statement(select(turns).where(turns.c.id == bindparam("turn_id")))
CALLS = Statement(
    select(calls)
    .where(calls.c.session_id == bindparam("session_id"), calls.c.state == bindparam("state"))
    .order_by(calls.c.pos)
)
CALL = Statement(
    select(calls).where(
        calls.c.session_id == bindparam("session_id"), calls.c.call_id == bindparam("call_id")
    )
)
TURN_ITEMS = Statement(select(items).where(items.c.turn_id == bindparam("turn_id")).order_by(items.c.pos))
ITEM = Statement(select(items).where(items.c.id == bindparam("item_id")))
INBOX = Statement(select(inbox).where(inbox.c.session_id == bindparam("session_id")).order_by(inbox.c.pos))
SUBAGENTS = Statement(
    select(subagents).where(subagents.c.session_id == bindparam("session_id")).order_by(subagents.c.pos)
)
LAST_TURN = Statement(
    select(turns)
    .where(turns.c.session_id == bindparam("session_id"), turns.c.subagent_id == bindparam("subagent_id"))
    .order_by(turns.c.pos.desc())
    .limit(bindparam("limit"))
    .offset(_NO_OFFSET)
)
SAID = Statement(
    select(items)
    .where(
        items.c.turn_id == bindparam("turn_id"), items.c.type == bindparam("type"), items.c.step.is_not(None)
    )
    .order_by(items.c.pos)
)
WAITS = Statement(
    select(waits).where(waits.c.session_id == bindparam("session_id")).order_by(waits.c.item_id)
)
INSERT_WAIT = insert_into(waits)
DELETE_WAIT = Statement(
    delete(waits).where(
        waits.c.session_id == bindparam("session_id"), waits.c.item_id == bindparam("item_id")
    )
)
COMPACTIONS = Statement(
    select(compactions)
    .where(
        compactions.c.session_id == bindparam("session_id"), compactions.c.agent_id == bindparam("agent_id")
    )
    .order_by(compactions.c.number.desc())
    .limit(bindparam("limit"))
    .offset(_NO_OFFSET)
)
ITEMS_BEHIND = Statement(
    select(items)
    .where(
        items.c.session_id == bindparam("session_id"),
        items.c.agent_id == bindparam("agent_id"),
        items.c.pos > bindparam("pos"),
    )
    .order_by(items.c.pos)
)
INSERT_SUBAGENT = insert_into(subagents)
UPDATE_SUBAGENT = update_where(subagents, ("status", "closed_us", "turn_id"), "id")
INSERT_ITEM = insert_into(items)
INSERT_SESSION = insert_into(sessions)
INSERT_CONFIG = insert_into(session_configs)
INSERT_TURN = insert_into(turns)
INSERT_CALL = insert_into(calls)
INSERT_EVENTS = insert_into(events)
INSERT_INBOX = insert_into(inbox)
INSERT_MODEL_CALL = insert_into(model_calls)
UPDATE_ITEM = update_where(items, ("status", "data", "private"), "session_id", "pos")
UPDATE_CALL = update_where(calls, ("state", "result"), "session_id", "call_id")
UPDATE_CALL_STATE = update_where(calls, ("state",), "session_id", "call_id")
DROP_INBOX = Statement(
    delete(inbox).where(inbox.c.session_id == bindparam("session_id"), inbox.c.pos == bindparam("pos"))
)

# What changes of a turn's row after its insertion, written whole.
_TURN_MUTABLE = (
    "status", "started_us", "completed_us", "active_us", "error", "usage", "usage_unknown", "outputs",
    "model_calls", "tool_calls", "spent",
)  # fmt: skip
UPDATE_TURN = update_where(turns, _TURN_MUTABLE, "id")

# What owners and the API change of a session's row, written whole at each save.
_MUTABLE = (
    "status", "epoch", "owner", "seq", "item_pos", "inbox_pos", "turn_pos", "inbox_count", "open_calls",
    "last_active_us", "config_version", "metadata", "prompt_cache", "review", "error", "usage",
    "usage_unknown", "turn_id", "subagents", "subagents_running", "wake_at", "deleted_us", "spent", "limits",
)  # fmt: skip
UPDATE_SESSION = update_where(sessions, _MUTABLE, "id", "epoch")
