"""Turns and items of a session, in the order they were recorded."""

from __future__ import annotations

from sqlalchemy import Connection, select

from perdure.store.blobs import item_rows, whole
from perdure.store.pages import PageRequest, Rows, fetch_page
from perdure.store.rows import ItemRow, turn_row
from perdure.store.sessions import find_session
from perdure.store.tables import items, turns
from perdure.wire.errors import NotFound
from perdure.wire.items import Item
from perdure.wire.turns import Turn


def list_turns(conn: Connection, session_id: str, project_id: str, page: PageRequest) -> Rows[Turn]:
    """The session's root turns."""
    find_session(conn, session_id, project_id)
    query = select(turns).where(turns.c.session_id == session_id, turns.c.subagent_id.is_(None))
    return fetch_page(conn, query, (turns.c.pos,), turns.c.id, page, lambda row: turn_row(row).resource)


def read_turn(conn: Connection, session_id: str, project_id: str, turn_id: str) -> Turn:
    find_session(conn, session_id, project_id)
    row = conn.execute(select(turns).where(turns.c.id == turn_id, turns.c.session_id == session_id)).first()
    if row is None:
        raise NotFound()
    return turn_row(row).resource


def list_items(
    conn: Connection, session_id: str, project_id: str, page: PageRequest, *, turn_id: str | None = None
) -> Rows[Item]:
    """The root agent's items, of the whole session or of one turn."""
    session = find_session(conn, session_id, project_id)
    query = select(items).where(items.c.session_id == session_id)
    if turn_id is None:
        query = query.where(items.c.agent_id == session.agent_id)
    else:
        read_turn(conn, session_id, project_id, turn_id)
        query = query.where(items.c.turn_id == turn_id)
    found = fetch_page(conn, query, (items.c.pos,), items.c.id, page, lambda row: row._mapping)
    return Rows([ItemRow(**row).resource for row in whole(conn, found.rows, "data")], found.has_more)


def load_turn_items(conn: Connection, turn_id: str) -> list[ItemRow]:
    """The items of one turn, in order."""
    return item_rows(conn, select(items).where(items.c.turn_id == turn_id).order_by(items.c.pos))
