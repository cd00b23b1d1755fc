"""Everything that says what the model of a session would be shown now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, select

from perdure.store.boundary import Boundary, Lease
from perdure.store.compactions import Compaction, History, list_compactions, load_history
from perdure.store.configs import load_config
from perdure.store.rows import turn_row
from perdure.store.sessions import find_session
from perdure.store.tables import turns


@dataclass(frozen=True, slots=True)
class Context:
    """`boundary` is the one that the session's next step would begin at; `compactions` newest first."""

    boundary: Boundary
    history: History
    compactions: tuple[Compaction, ...]


def read_context(conn: Connection, session_id: str, project_id: str) -> Context:
    """The context of a session's root agent.

    Raises:
        SessionGone: missing, deleted, or of another project.
    """
    session: Any = find_session(conn, session_id, project_id)
    found = conn.execute(select(turns).where(turns.c.id == session.turn_id)).first()
    turn = None if found is None else turn_row(found)
    config = load_config(conn, session._mapping, session.config_version)
    turn_config = config if turn is None else load_config(conn, session._mapping, turn.config_version)
    boundary = Boundary(
        state="idle" if turn is None else "run",
        lease=Lease(session.id, session.epoch),
        turn=turn,
        items=(),
        turn_config=turn_config,
        config=config,
        metadata=session.metadata,
        agent_id=session.agent_id,
    )
    return Context(
        boundary,
        load_history(conn, session.id, session.agent_id),
        tuple(list_compactions(conn, session.id, session.agent_id)),
    )
