"""Turns and items of a session, in the order they were recorded."""

from __future__ import annotations

from sqlalchemy import Connection, select

from perdure.store.blobs import item_rows, whole
from perdure.store.pages import PageRequest, Rows, fetch_page
from perdure.store.rows import ItemRow, TurnRow, turn_row
from perdure.store.sessions import find_session
from perdure.store.subagents import find_subagent
from perdure.store.tables import items, turns
from perdure.wire.errors import NotFound
from perdure.wire.items import Item
from perdure.wire.turns import Turn


def list_turns(
    conn: Connection,
    session_id: str,
    project_id: str,
    page: PageRequest,
    *,
    subagent_id: str | None = None,
) -> Rows[Turn]:
    """The turns of the root agent, or of a subagent.

    Raises:
        SessionGone: the session is missing, deleted, or of another project.
        NotFound: the session has no such subagent.
        InvalidRequest: `after` is no id of this list.
    """
    find_session(conn, session_id, project_id)
    query = select(turns).where(turns.c.session_id == session_id)
    if subagent_id is None:
        query = query.where(turns.c.subagent_id.is_(None))
    else:
        query = query.where(turns.c.subagent_id == find_subagent(conn, session_id, subagent_id).id)
    return fetch_page(conn, query, (turns.c.pos,), turns.c.id, page, lambda row: turn_row(row).resource)


def read_turn(
    conn: Connection, session_id: str, project_id: str, turn_id: str, *, subagent_id: str | None = None
) -> Turn:
    """A turn of any agent of the session, or one of a subagent.

    Raises:
        SessionGone: the session is missing, deleted, or of another project.
        NotFound: there is no such turn, or it is another agent's.
    """
    find_session(conn, session_id, project_id)
    if subagent_id is not None:
        find_subagent(conn, session_id, subagent_id)
    turn = _find_turn(conn, session_id, turn_id)
    if subagent_id is not None:
        _check_agent(turn, subagent_id)
    return turn.resource


def list_items(
    conn: Connection,
    session_id: str,
    project_id: str,
    page: PageRequest,
    *,
    turn_id: str | None = None,
    subagent_id: str | None = None,
) -> Rows[Item]:
    """The items of the root agent, or of a subagent: all of them, or those of one turn.

    Raises:
        SessionGone: the session is missing, deleted, or of another project.
        NotFound: there is no such subagent or turn, or the turn is another agent's.
        InvalidRequest: `after` is no id of this list.
    """
    session = find_session(conn, session_id, project_id)
    agent_id: str = session.agent_id
    if subagent_id is not None:
        agent_id = find_subagent(conn, session_id, subagent_id).id
    query = select(items).where(items.c.session_id == session_id)
    if turn_id is None:
        query = query.where(items.c.agent_id == agent_id)
    else:
        _check_agent(_find_turn(conn, session_id, turn_id), subagent_id)
        query = query.where(items.c.turn_id == turn_id)
    found = fetch_page(conn, query, (items.c.pos,), items.c.id, page, lambda row: row._mapping)
    return Rows([ItemRow(**row).resource for row in whole(conn, found.rows, "data")], found.has_more)


def load_turn_items(conn: Connection, turn_id: str) -> list[ItemRow]:
    """The items of one turn, in order."""
    return item_rows(conn, select(items).where(items.c.turn_id == turn_id).order_by(items.c.pos))


def _find_turn(conn: Connection, session_id: str, turn_id: str) -> TurnRow:
    row = conn.execute(select(turns).where(turns.c.id == turn_id, turns.c.session_id == session_id)).first()
    if row is None:
        raise NotFound()
    return turn_row(row)


def _check_agent(turn: TurnRow, subagent_id: str | None) -> None:
    """Refuse a turn that is looked for below another agent than its own, and say where it is."""
    if turn.subagent_id == subagent_id:
        return
    own = f"/v1/agents/sessions/{turn.session_id}"
    if turn.subagent_id is None:
        owner, route = "the root agent", f"{own}/turns/{turn.id}"
    else:
        owner = f"subagent '{turn.subagent_id}'"
        route = f"{own}/subagents/{turn.subagent_id}/turns/{turn.id}"
    raise NotFound(f"The turn '{turn.id}' is one of {owner}. It and its items are below {route}.")
