"""What a project's sessions are doing now: the view of somebody who has to find the one that runs away."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict
from sqlalchemy import ColumnElement, Connection, or_, select

from perdure.config.prices import NANO
from perdure.store.configs import load_config
from perdure.store.pages import PageRequest, Rows, fetch_page
from perdure.store.rows import SubagentRow, TurnRow, subagent_row, turn_row
from perdure.store.spending import NOTHING, Tally
from perdure.store.tables import sessions, subagents, turns, workers
from perdure.wire.sessions import SessionStatus
from perdure.wire.turns import TurnStatus
from perdure.wire.usage import TokenUsage

BUSY: tuple[SessionStatus, ...] = ("in_progress", "requires_action")


class RunningTurn(BaseModel):
    """The unfinished turn; times in Unix seconds, `active_seconds` without waiting for the application."""

    model_config = ConfigDict(frozen=True)

    id: str
    status: TurnStatus
    created_at: int
    started_at: int | None
    active_seconds: float
    model_calls: int
    tool_calls: int
    usage: TokenUsage | None

    @classmethod
    def of(cls, turn: TurnRow) -> RunningTurn:
        return cls(
            id=turn.id,
            status=turn.status,
            created_at=_seconds(turn.created_us),
            started_at=None if turn.started_us is None else _seconds(turn.started_us),
            active_seconds=round(turn.active_us / 1e6, 3),
            model_calls=turn.model_calls,
            tool_calls=turn.tool_calls,
            usage=None if turn.usage is None else TokenUsage.model_validate(turn.usage),
        )


class RunningSubagent(BaseModel):
    """A subagent that has an unfinished turn."""

    model_config = ConfigDict(frozen=True)

    id: str
    parent_agent_id: str
    name: str
    turn: RunningTurn


class SessionOwner(BaseModel):
    """The worker that runs a session, or ran it when it died: its process, as far as that is known."""

    model_config = ConfigDict(frozen=True)

    id: str
    host: str | None
    pid: int | None


class SessionActivity(BaseModel):
    """One session at a glance. `owned`: this process runs it now; `inbox`: inputs not yet applied.

    `turn` is the root agent's; `subagents` are those that run, which they may do in an idle session.
    `cost` is estimated, in the currency of the prices; null when nothing is known of it.
    """

    model_config = ConfigDict(frozen=True)

    id: str
    object: Literal["perdure.session_activity"] = "perdure.session_activity"
    status: SessionStatus
    model: str
    created_at: int
    last_active_at: int
    open_calls: int
    inbox: int
    usage: TokenUsage | None
    cost: float | None
    turn: RunningTurn | None
    subagents: list[RunningSubagent]
    owner: SessionOwner | None
    owned: bool = False


def list_activity(
    conn: Connection, project_id: str, statuses: Sequence[str] | None, page: PageRequest
) -> Rows[SessionActivity]:
    """Sessions in any of `statuses`, by creation; None: those of which any agent has something to do."""
    query = (
        select(sessions, workers.c.host, workers.c.pid)
        .join(workers, workers.c.id == sessions.c.owner, isouter=True)
        .where(sessions.c.project_id == project_id)
    )
    wanted: ColumnElement[bool] = sessions.c.status.in_(BUSY if statuses is None else statuses)
    if statuses is None:
        wanted = or_(wanted, sessions.c.subagents_running > 0)
    keys = (sessions.c.created_us, sessions.c.id)
    return fetch_page(
        conn,
        query,
        keys,
        sessions.c.id,
        page,
        lambda row: _activity(conn, dict(row._mapping)),
        visible=sessions.c.deleted_us.is_(None) & wanted,
    )


def _activity(conn: Connection, row: dict[str, Any]) -> SessionActivity:
    config = load_config(conn, row, row["config_version"])
    owner = None
    if row["owner"] is not None:
        owner = SessionOwner(id=row["owner"], host=row["host"], pid=row["pid"])
    at_work = _at_work(conn, row["id"]) if row["subagents_running"] else []
    running = _running(conn, [row["turn_id"], *(each.turn_id for each in at_work)])
    return SessionActivity(
        id=row["id"],
        status=row["status"],
        model=config.settings.model,
        created_at=_seconds(row["created_us"]),
        last_active_at=_seconds(row["last_active_us"]),
        open_calls=row["open_calls"],
        inbox=row["inbox_count"],
        usage=row["usage"],
        cost=_cost(row["spent"]),
        turn=running.get(row["turn_id"]),
        subagents=[
            RunningSubagent(
                id=each.id,
                parent_agent_id=each.parent_agent_id,
                name=each.name,
                turn=running[each.turn_id or ""],
            )
            for each in at_work
        ],
        owner=owner,
    )


def _running(conn: Connection, turn_ids: Sequence[str | None]) -> dict[str, RunningTurn]:
    wanted = [each for each in turn_ids if each is not None]
    if not wanted:
        return {}
    found = conn.execute(select(turns).where(turns.c.id.in_(wanted)))
    return {turn.id: RunningTurn.of(turn_row(turn)) for turn in found}


def _at_work(conn: Connection, session_id: str) -> list[SubagentRow]:
    """The subagents that have an unfinished turn, oldest first."""
    own = (subagents.c.session_id == session_id) & subagents.c.turn_id.is_not(None)
    return [subagent_row(row) for row in conn.execute(select(subagents).where(own).order_by(subagents.c.pos))]


def _cost(spent: object) -> float | None:
    tally = Tally(**spent) if isinstance(spent, dict) else NOTHING
    if tally.unpriced >= tally.calls:
        return None
    return round(tally.cost / NANO, 9)


def _seconds(microseconds: int) -> int:
    return microseconds // 1_000_000
