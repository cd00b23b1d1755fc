"""Sessions: creation with the first turn, reading, updating, deletion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, bindparam, func, insert, select

from perdure.store import hot
from perdure.store.accept import start_turn
from perdure.store.agents import read_limits, read_settings, stored_settings
from perdure.store.configs import load_config
from perdure.store.idempotency import IdempotencyKey, Outcome, run_once
from perdure.store.locked import LockedSession, SessionGone
from perdure.store.pages import PageRequest, Rows, fetch_page
from perdure.store.reports import REPORT
from perdure.store.rows import call_row, session_resource
from perdure.store.tables import (
    calls,
    deletions,
    inbox,
    session_metadata,
    sessions,
)
from perdure.store.tx import Closed, Tx, Woken
from perdure.wire import events as wire
from perdure.wire.agents import AgentSettings, apply_overrides, apply_session_update
from perdure.wire.errors import Conflict, InvalidRequest, NotFound
from perdure.wire.ids import new_id
from perdure.wire.jsontext import dumps
from perdure.wire.limits import LimitRules, settle_limits
from perdure.wire.sessions import Session, SessionCreate, SessionUpdate

ANY_LIMITS = LimitRules()
_SESSION = select(sessions).where(sessions.c.id == bindparam("session_id"))
_OPEN_CALLS = (
    select(calls)
    .where(calls.c.session_id == bindparam("session_id"), calls.c.state == "open")
    .order_by(calls.c.pos)
)


def resolve_settings(
    conn: Connection, project_id: str, body: SessionCreate
) -> tuple[str | None, AgentSettings]:
    """The agent's name and settings a session would be created with.

    Raises:
        NotFound, InvalidRequest: `agent_id` names no saved agent of the project.
    """
    if body.agent_id is None:
        return None, apply_overrides(None, body.agent)
    saved = read_settings(conn, project_id, body.agent_id)
    if saved is None:
        inline = conn.execute(
            select(sessions.c.id).where(
                sessions.c.project_id == project_id,
                sessions.c.agent_id == body.agent_id,
                sessions.c.inline_agent.is_(True),
                sessions.c.deleted_us.is_(None),
            )
        ).first()
        if inline is not None:
            raise InvalidRequest(
                f"Agent '{body.agent_id}' belongs to one session and was not saved. Create a saved agent and "
                "use its id.",
                param="agent_id",
                code="agent_not_persisted",
            )
        raise NotFound(f"No agent found with id '{body.agent_id}'.", param="agent_id")
    name, settings = saved
    return name, apply_overrides(settings, body.agent)


def create_session(
    tx: Tx,
    session_id: str,
    project_id: str,
    body: SessionCreate,
    name: str | None,
    settings: AgentSettings,
    rules: LimitRules = ANY_LIMITS,
) -> Session:
    """Create a session under settings that were resolved and checked and, with input, its first turn.

    Raises:
        Forbidden: its metadata sets a ceiling that `rules` do not allow.
    """
    inherited = None if body.agent_id is None else read_limits(tx.conn, body.agent_id)
    row: dict[str, Any] = {
        "id": session_id,
        "project_id": project_id,
        "agent_id": body.agent_id or new_id("agt"),
        "inline_agent": body.agent_id is None,
        "agent_name": name,
        "config_version": 1,
        "status": "idle",
        "epoch": 0,
        "owner": None,
        "seq": 0,
        "item_pos": 0,
        "inbox_pos": 0,
        "turn_pos": 0,
        "created_us": tx.now_us,
        "last_active_us": tx.now_us,
        "environment": body.environment.model_dump(mode="json"),
        "metadata": body.metadata or {},
        "vault_ids": body.vault_ids or [],
        "prompt_cache": None
        if body.prompt_cache_options is None
        else body.prompt_cache_options.model_dump(mode="json"),
        "review": body.review,
        "error": None,
        "usage": None,
        "usage_unknown": False,
        "inbox_count": 0,
        "open_calls": 0,
        "turn_id": None,
        "subagents": 0,
        "subagents_running": 0,
        "wake_at": None,
        "deleted_us": None,
        "spent": None,
        "limits": settle_limits(body.metadata, inherited, None, rules),
    }
    hot.INSERT_SESSION.execute(tx.conn, row)
    hot.INSERT_CONFIG.execute(
        tx.conn, {"session_id": session_id, "version": 1, "settings": stored_settings(settings)}
    )
    _write_metadata(tx, row)
    session = LockedSession(tx, row)
    session.new_version = 1
    messages = body.messages
    if messages:
        session.row["status"] = "in_progress"
    session.say_session(wire.SessionCreated)
    if messages:
        start_turn(session, messages)
        tx.announcements.append(Woken(session_id))
    session.save()
    return session.resource()


def create_session_once(
    tx: Tx,
    key: IdempotencyKey | None,
    session_id: str,
    project_id: str,
    body: SessionCreate,
    name: str | None,
    settings: AgentSettings,
    rules: LimitRules = ANY_LIMITS,
) -> tuple[Outcome, Session | None]:
    """`create_session` under an idempotency key: the session's id as outcome, and the new session."""
    created: list[Session] = []

    def create() -> str:
        created.append(create_session(tx, session_id, project_id, body, name, settings, rules))
        return session_id

    outcome = run_once(tx, key, create)
    return outcome, created[0] if created else None


def update_session_once(
    tx: Tx,
    key: IdempotencyKey | None,
    session_id: str,
    project_id: str,
    body: SessionUpdate,
    rules: LimitRules = ANY_LIMITS,
) -> Session:
    """`update_session` under an idempotency key; a repeated update shows the session as it is."""

    def change() -> bool:
        return bool(update_session(tx, session_id, project_id, body, rules))

    run_once(tx, key, change, session_id=session_id)
    return LockedSession.lock(tx, session_id, project_id=project_id).resource()


def update_session(
    tx: Tx, session_id: str, project_id: str, body: SessionUpdate, rules: LimitRules = ANY_LIMITS
) -> Session:
    """Change a session; a new configuration is a new version, so running turns keep theirs.

    Raises:
        Forbidden: its metadata sets a ceiling that `rules` do not allow.
    """
    session = LockedSession.lock(tx, session_id, project_id=project_id)
    given = body.model_fields_set
    if body.agent is not None:
        settings = apply_session_update(session.config().settings, body.agent)
        session.row["config_version"] += 1
        session.new_version = session.row["config_version"]
        hot.INSERT_CONFIG.execute(
            tx.conn,
            {
                "session_id": session_id,
                "version": session.row["config_version"],
                "settings": stored_settings(settings),
            },
        )
    if "metadata" in given:
        session.row["metadata"] = body.metadata or {}
        kept = session.row["limits"] or {}
        session.row["limits"] = settle_limits(body.metadata, kept.get("agent"), kept, rules)
        tx.conn.execute(session_metadata.delete().where(session_metadata.c.session_id == session_id))
        _write_metadata(tx, session.row)
    if "prompt_cache_options" in given:
        options = body.prompt_cache_options
        session.row["prompt_cache"] = None if options is None else options.model_dump(mode="json")
    if "review" in given and body.review is not None:
        session.row["review"] = body.review
    session.save()
    return session.resource()


def delete_session(tx: Tx, session_id: str, project_id: str) -> bool:
    """Delete a session that has nothing to do and owes nothing; repeating it changes nothing.

    Returns False for a session that is only winding down a cancelled turn: try again shortly.

    Raises:
        SessionGone: there never was one in the project.
        Conflict: it runs, waits or still holds open calls.
    """
    known = tx.conn.execute(_SESSION, {"session_id": session_id}).first()
    if known is not None and known.deleted_us is not None and known.project_id == project_id:
        return True
    try:
        session = LockedSession.lock(tx, session_id, project_id=project_id)
    except SessionGone:
        # Deleted while this one waited for the lock?
        known = tx.conn.execute(_SESSION, {"session_id": session_id}).first()
        if known is None or known.project_id != project_id:
            raise
        return True
    waiting_input = session.inbox()
    if any(row["kind"] == "cancel" for row in waiting_input):
        return False
    if any(row["kind"] != REPORT for row in waiting_input) or _is_busy(session):
        raise Conflict(
            "The session must be idle or failed, with no required actions and no running subagents, before "
            "it can be deleted. Send agent.session.input.cancel first."
        )
    session.row["deleted_us"] = tx.now_us
    session.row["metadata"] = {}
    session.row["epoch"] += 1
    session.save()
    tx.conn.execute(insert(deletions), {"session_id": session_id, "deleted_us": tx.now_us})
    tx.announcements.append(Closed(session_id))
    return True


def _is_busy(session: LockedSession) -> bool:
    return bool(session.row["turn_id"] or session.row["subagents_running"] or session.calls("open"))


def read_session(conn: Connection, session_id: str, project_id: str) -> Session:
    """The session as the protocol shows it.

    Raises:
        SessionGone: missing, deleted, or of another project.
    """
    return session_of(conn, find_session(conn, session_id, project_id))


def find_session(conn: Connection, session_id: str, project_id: str) -> Row[Any]:
    row = conn.execute(_SESSION, {"session_id": session_id}).first()
    if row is None or row.deleted_us is not None or row.project_id != project_id:
        raise SessionGone(session_id)
    return row


def read_settings_of(conn: Connection, session_id: str, project_id: str) -> AgentSettings:
    """The newest settings of a session's agent.

    Raises:
        SessionGone: missing, deleted, or of another project.
    """
    row = dict(find_session(conn, session_id, project_id)._mapping)
    return load_config(conn, row, row["config_version"]).settings


def list_sessions(
    conn: Connection,
    project_id: str,
    page: PageRequest,
    *,
    agent_id: str | None = None,
    metadata: Mapping[str, str] | None = None,
) -> Rows[Session]:
    """Sessions of a project, newest first by default; every given filter must match."""
    query = select(sessions).where(sessions.c.project_id == project_id)
    visible: ColumnElement[bool] = sessions.c.deleted_us.is_(None)
    if agent_id is not None:
        visible &= sessions.c.agent_id == agent_id
    if metadata:
        digests = [_pair_digest(key, value) for key, value in metadata.items()]
        matching = (
            select(session_metadata.c.session_id)
            .where(session_metadata.c.project_id == project_id, session_metadata.c.pair_digest.in_(digests))
            .group_by(session_metadata.c.session_id)
            .having(func.count() == len(digests))
        )
        visible &= sessions.c.id.in_(matching)
    return fetch_page(
        conn,
        query,
        (sessions.c.created_us, sessions.c.id),
        sessions.c.id,
        page,
        lambda row: session_of(conn, row),
        visible=visible,
    )


def unfinished_sessions(conn: Connection) -> Sequence[str]:
    """Sessions that an owner must look at: with an unfinished turn or unapplied input."""
    with_input = select(inbox.c.session_id).where(inbox.c.kind != REPORT).distinct()
    found = conn.execute(
        select(sessions.c.id)
        .where(sessions.c.deleted_us.is_(None), sessions.c.status != "failed")
        .where(
            (sessions.c.turn_id.is_not(None) & (sessions.c.status != "requires_action"))
            | (sessions.c.subagents_running > 0)
            | sessions.c.id.in_(with_input)
        )
        .order_by(sessions.c.last_active_us)
    )
    return [row[0] for row in found]


def due_sessions(conn: Connection, now_us: int) -> Sequence[str]:
    """Sessions whose time has come."""
    found = conn.execute(
        select(sessions.c.id).where(sessions.c.wake_at <= now_us, sessions.c.deleted_us.is_(None))
    )
    return [row[0] for row in found]


def session_of(conn: Connection, row: Row[Any]) -> Session:
    open_calls = conn.execute(_OPEN_CALLS, {"session_id": row.id}) if row.open_calls else ()
    actions = [call_row(call).action for call in open_calls]
    values = dict(row._mapping)
    return session_resource(values, load_config(conn, values, row.config_version), actions)


def _write_metadata(tx: Tx, row: Mapping[str, Any]) -> None:
    if row["metadata"]:
        tx.conn.execute(
            insert(session_metadata),
            [
                {
                    "session_id": row["id"],
                    "project_id": row["project_id"],
                    "key_digest": sha256(dumps(key)).digest(),
                    "pair_digest": _pair_digest(key, value),
                }
                for key, value in row["metadata"].items()
            ],
        )


def _pair_digest(key: str, value: str) -> bytes:
    return sha256(dumps([key, value])).digest()
