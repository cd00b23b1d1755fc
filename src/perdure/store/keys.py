"""API keys: their digests at rest, never the keys."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Row, func, insert, select, update

from perdure.secrets.keys import ApiKey
from perdure.store.tables import api_keys


def insert_key(conn: Connection, key: ApiKey, digest: bytes) -> None:
    conn.execute(
        insert(api_keys),
        {
            "id": key.id,
            "project_id": key.project_id,
            "name": key.name,
            "scopes": sorted(key.scopes),
            "digest": digest,
            "hint": key.hint,
            "created_us": key.created_us,
            "revoked_us": key.revoked_us,
        },
    )


def list_keys(conn: Connection, project_id: str | None = None) -> list[ApiKey]:
    """Keys, oldest first, revoked ones included."""
    query = select(api_keys).order_by(api_keys.c.created_us, api_keys.c.id)
    if project_id is not None:
        query = query.where(api_keys.c.project_id == project_id)
    return [_key(row) for row in conn.execute(query)]


def count_keys(conn: Connection) -> int:
    """How many keys are in force."""
    return conn.execute(
        select(func.count()).select_from(api_keys).where(api_keys.c.revoked_us.is_(None))
    ).scalar_one()


def revoke_key(conn: Connection, key_id: str, now_us: int) -> bool:
    """Revoke a key; returns whether it was in force."""
    done = conn.execute(
        update(api_keys).where(api_keys.c.id == key_id, api_keys.c.revoked_us.is_(None)),
        {"revoked_us": now_us},
    )
    return done.rowcount == 1


def find_key(conn: Connection, digest: bytes) -> ApiKey | None:
    """The key in force with this digest."""
    row = conn.execute(
        select(api_keys).where(api_keys.c.digest == digest, api_keys.c.revoked_us.is_(None))
    ).first()
    return None if row is None else _key(row)


def _key(row: Row[Any]) -> ApiKey:
    return ApiKey(
        id=row.id,
        project_id=row.project_id,
        name=row.name,
        scopes=frozenset(row.scopes),
        created_us=row.created_us,
        revoked_us=row.revoked_us,
        hint=row.hint,
    )
