"""Everything that says what the model of an agent would be shown now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, select

from perdure.store.boundary import Boundary, Lease
from perdure.store.compactions import Compaction, History, list_compactions, load_history
from perdure.store.configs import load_config
from perdure.store.rows import turn_row
from perdure.store.sessions import find_session
from perdure.store.subagents import find_subagent, open_children
from perdure.store.tables import turns


@dataclass(frozen=True, slots=True)
class Context:
    """`boundary` is the one that the agent's next step would begin at; `compactions` newest first."""

    boundary: Boundary
    history: History
    compactions: tuple[Compaction, ...]


def read_context(conn: Connection, session_id: str, project_id: str, agent_id: str | None = None) -> Context:
    """The context of one of a session's agents.

    Args:
        agent_id: the root agent (the default) or a subagent.

    Raises:
        SessionGone: missing, deleted, or of another project.
        NotFound: the session has no such agent.
    """
    session: Any = find_session(conn, session_id, project_id)
    agent_id = agent_id or session.agent_id
    subagent = None if agent_id == session.agent_id else find_subagent(conn, session_id, agent_id)
    turn_id = session.turn_id if subagent is None else subagent.turn_id
    found = conn.execute(select(turns).where(turns.c.id == turn_id)).first()
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
        agent_id=agent_id,
        subagent=subagent,
        children=tuple(open_children(conn, session_id, agent_id)),
    )
    return Context(
        boundary,
        load_history(conn, session.id, agent_id),
        tuple(list_compactions(conn, session.id, agent_id)),
    )
