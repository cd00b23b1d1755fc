"""The subagents of a session, as they are listed."""

from __future__ import annotations

from sqlalchemy import Connection, select

from perdure.store.pages import PageRequest, Rows, fetch_page
from perdure.store.rows import SubagentRow, subagent_row
from perdure.store.sessions import find_session
from perdure.store.tables import subagents
from perdure.wire.errors import NotFound
from perdure.wire.subagents import Subagent


def list_subagents(conn: Connection, session_id: str, project_id: str, page: PageRequest) -> Rows[Subagent]:
    """All subagents of a session, closed and nested ones included, by creation.

    Raises:
        SessionGone: the session is missing, deleted, or of another project.
        InvalidRequest: `after` is no id of this list.
    """
    find_session(conn, session_id, project_id)
    query = select(subagents).where(subagents.c.session_id == session_id)
    return fetch_page(
        conn, query, (subagents.c.pos,), subagents.c.id, page, lambda row: subagent_row(row).resource
    )


def read_subagent(conn: Connection, session_id: str, project_id: str, subagent_id: str) -> Subagent:
    """One subagent.

    Raises:
        SessionGone: the session is missing, deleted, or of another project.
        NotFound: the session has no such subagent.
    """
    find_session(conn, session_id, project_id)
    return find_subagent(conn, session_id, subagent_id).resource


def find_subagent(conn: Connection, session_id: str, subagent_id: str) -> SubagentRow:
    """The row of a session's subagent.

    Raises:
        NotFound: the session has no such subagent.
    """
    row = conn.execute(
        select(subagents).where(subagents.c.id == subagent_id, subagents.c.session_id == session_id)
    ).first()
    if row is None:
        raise NotFound(
            f"This session has no subagent '{subagent_id[:64]}'. "
            f"GET /v1/agents/sessions/{session_id}/subagents lists those it has."
        )
    return subagent_row(row)


def open_children(conn: Connection, session_id: str, agent_id: str) -> list[SubagentRow]:
    """The subagents of an agent that are not closed, oldest first."""
    own = (subagents.c.session_id == session_id) & (subagents.c.parent_agent_id == agent_id)
    found = conn.execute(select(subagents).where(own & (subagents.c.status == "active")))
    return sorted((subagent_row(row) for row in found), key=lambda each: each.pos)
