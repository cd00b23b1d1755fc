"""Saved agents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Row, insert, select, update

from perdure.store.idempotency import IdempotencyKey, run_once
from perdure.store.pages import PageRequest, Rows, fetch_page
from perdure.store.tables import agents
from perdure.store.tx import Tx
from perdure.wire.agents import (
    Agent,
    AgentCreate,
    AgentSettings,
    AgentUpdate,
    apply_update,
    resolve_create,
    saved_agent_resource,
)
from perdure.wire.errors import NotFound
from perdure.wire.ids import new_id
from perdure.wire.limits import wanted_limits


def create_agent(tx: Tx, project_id: str, body: AgentCreate) -> str:
    """Save an agent; returns its id."""
    agent_id = new_id("agt")
    settings = resolve_create(body)
    tx.conn.execute(
        insert(agents),
        {
            "id": agent_id,
            "project_id": project_id,
            "created_us": tx.now_us,
            "updated_us": tx.now_us,
            "name": body.name,
            "settings": stored_settings(settings),
            "metadata": body.metadata or {},
            "deleted_us": None,
        },
    )
    return agent_id


def create_agent_once(tx: Tx, key: IdempotencyKey | None, project_id: str, body: AgentCreate) -> Agent:
    """`create_agent` under an idempotency key; shows the agent the key created."""
    outcome = run_once(tx, key, lambda: create_agent(tx, project_id, body))
    agent = read_agent(tx.conn, project_id, str(outcome.value))
    if agent is None:
        raise NotFound()
    return agent


def update_agent_once(
    tx: Tx, key: IdempotencyKey | None, project_id: str, agent_id: str, body: AgentUpdate
) -> Agent:
    """`update_agent` under an idempotency key; a repeated update shows the agent as it is."""
    run_once(tx, key, lambda: update_agent(tx, project_id, agent_id, body))
    agent = read_agent(tx.conn, project_id, agent_id)
    if agent is None:
        raise NotFound()
    return agent


def update_agent(tx: Tx, project_id: str, agent_id: str, body: AgentUpdate) -> None:
    """Change a saved agent; sessions keep the copy they were created with.

    Raises:
        NotFound: there is no such agent in the project.
    """
    row = _find(tx.conn, project_id, agent_id, lock=True)
    if row is None:
        raise NotFound()
    settings = apply_update(AgentSettings.model_validate(row.settings), body)
    given = body.model_fields_set
    name = body.name if "name" in given else row.name
    metadata: Mapping[str, str] = (body.metadata or {}) if "metadata" in given else row.metadata
    tx.conn.execute(
        update(agents).where(agents.c.id == agent_id),
        {
            "name": name,
            "settings": stored_settings(settings),
            "metadata": metadata,
            "updated_us": max(tx.now_us, row.updated_us),
        },
    )


def delete_agent(tx: Tx, project_id: str, agent_id: str) -> bool:
    """Delete a saved agent; returns whether there was one."""
    done = tx.conn.execute(
        update(agents).where(
            agents.c.id == agent_id, agents.c.project_id == project_id, agents.c.deleted_us.is_(None)
        ),
        {"deleted_us": tx.now_us, "settings": {}, "metadata": {}, "name": None},
    )
    return done.rowcount == 1


def read_agent(conn: Connection, project_id: str, agent_id: str) -> Agent | None:
    row = _find(conn, project_id, agent_id)
    return None if row is None else _resource(row)


def read_settings(
    conn: Connection, project_id: str, agent_id: str
) -> tuple[str | None, AgentSettings] | None:
    """The name and settings of a saved agent, for a session to copy."""
    row = _find(conn, project_id, agent_id)
    return None if row is None else (row.name, AgentSettings.model_validate(row.settings))


def read_limits(conn: Connection, agent_id: str) -> dict[str, str]:
    """The ceilings that a saved agent sets, for a session to copy."""
    found = conn.execute(select(agents.c.metadata).where(agents.c.id == agent_id)).first()
    return {} if found is None else wanted_limits(found[0])


def list_agents(conn: Connection, project_id: str, page: PageRequest) -> Rows[Agent]:
    return fetch_page(
        conn,
        select(agents).where(agents.c.project_id == project_id),
        (agents.c.created_us, agents.c.id),
        agents.c.id,
        page,
        _resource,
        visible=agents.c.deleted_us.is_(None),
    )


def stored_settings(settings: AgentSettings) -> dict[str, Any]:
    return settings.model_dump(mode="json", by_alias=True)


def _find(conn: Connection, project_id: str, agent_id: str, *, lock: bool = False) -> Row[Any] | None:
    wanted = select(agents).where(
        agents.c.id == agent_id, agents.c.project_id == project_id, agents.c.deleted_us.is_(None)
    )
    return conn.execute(wanted.with_for_update() if lock else wanted).first()


def _resource(row: Row[Any]) -> Agent:
    return saved_agent_resource(
        id=row.id,
        name=row.name,
        metadata=row.metadata,
        settings=AgentSettings.model_validate(row.settings),
        created_at=row.created_us // 1_000_000,
        updated_at=row.updated_us // 1_000_000,
    )
