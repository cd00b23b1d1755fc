"""What a project's sessions are doing now: the view of somebody who has to find the one that runs away."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict
from sqlalchemy import Connection, select

from perdure.config.prices import NANO
from perdure.store.configs import load_config
from perdure.store.pages import PageRequest, Rows, fetch_page
from perdure.store.spending import NOTHING, Tally
from perdure.store.tables import sessions, turns, workers
from perdure.wire.sessions import SessionStatus
from perdure.wire.turns import TurnStatus
from perdure.wire.usage import TokenUsage


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


class SessionOwner(BaseModel):
    """The worker that runs a session, or ran it when it died: its process, as far as that is known."""

    model_config = ConfigDict(frozen=True)

    id: str
    host: str | None
    pid: int | None


class SessionActivity(BaseModel):
    """One session at a glance. `owned`: this process runs it now; `inbox`: inputs not yet applied.

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
    owner: SessionOwner | None
    owned: bool = False


def list_activity(
    conn: Connection, project_id: str, statuses: Sequence[str], page: PageRequest
) -> Rows[SessionActivity]:
    """Sessions in any of `statuses`, by creation."""
    columns = [column.label(f"now_{column.name}") for column in turns.c]
    query = (
        select(sessions, workers.c.host, workers.c.pid, *columns)
        .join(turns, turns.c.id == sessions.c.turn_id, isouter=True)
        .join(workers, workers.c.id == sessions.c.owner, isouter=True)
        .where(sessions.c.project_id == project_id)
    )
    visible = sessions.c.deleted_us.is_(None) & sessions.c.status.in_(statuses)
    keys = (sessions.c.created_us, sessions.c.id)
    return fetch_page(
        conn,
        query,
        keys,
        sessions.c.id,
        page,
        lambda row: _activity(conn, dict(row._mapping)),
        visible=visible,
    )


def _activity(conn: Connection, row: dict[str, object]) -> SessionActivity:
    config = load_config(conn, row, row["config_version"])  # type: ignore[arg-type]
    turn = None
    if row["turn_id"] is not None:
        turn = RunningTurn(
            id=row["turn_id"],
            status=row["now_status"],
            created_at=_seconds(row["now_created_us"]),
            started_at=None if row["now_started_us"] is None else _seconds(row["now_started_us"]),
            active_seconds=round(int(row["now_active_us"]) / 1e6, 3),  # type: ignore[call-overload]
            model_calls=row["now_model_calls"],
            tool_calls=row["now_tool_calls"],
            usage=row["now_usage"],
        )
    owner = None
    if row["owner"] is not None:
        owner = SessionOwner(id=row["owner"], host=row["host"], pid=row["pid"])
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
        turn=turn,
        owner=owner,
    )


def _cost(spent: object) -> float | None:
    tally = Tally(**spent) if isinstance(spent, dict) else NOTHING
    if tally.unpriced >= tally.calls:
        return None
    return round(tally.cost / NANO, 9)


def _seconds(microseconds: object) -> int:
    return int(microseconds) // 1_000_000  # type: ignore[call-overload,no-any-return]
