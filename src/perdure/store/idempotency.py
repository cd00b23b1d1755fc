"""One effect per `Idempotency-Key`: the outcome is stored in the transaction of the effect."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from sqlalchemy import Connection, insert, select

from perdure.store.tables import idempotency
from perdure.store.tx import Tx
from perdure.wire.errors import Conflict
from perdure.wire.jsontext import dumps


@dataclass(frozen=True, slots=True)
class IdempotencyKey:
    """A key as a client sent it on one route of one project, with the body it came with."""

    project_id: str
    route: str
    key: str
    body: Any

    @property
    def key_digest(self) -> bytes:
        return sha256(self.key.encode("utf-8", "surrogatepass")).digest()

    @property
    def body_digest(self) -> bytes:
        return sha256(dumps(self.body, sort_keys=True)).digest()


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the first request with the key produced; `replayed` when this one had no effect."""

    value: Any
    replayed: bool


def find_outcome(conn: Connection, key: IdempotencyKey) -> Outcome | None:
    """What the first request with the key produced, if there was one.

    Raises:
        Conflict: the key was used with another body (`idempotency_conflict`).
    """
    stored = conn.execute(
        select(idempotency).where(
            idempotency.c.project_id == key.project_id,
            idempotency.c.route == key.route,
            idempotency.c.key_digest == key.key_digest,
        )
    ).first()
    if stored is None:
        return None
    if stored.body_digest != key.body_digest:
        raise Conflict(
            "This Idempotency-Key was already used with a different request body. Use a new key.",
            code="idempotency_conflict",
        )
    return Outcome(stored.outcome, replayed=True)


# How long a key that created something is remembered, in microseconds.
KEPT_US = 30 * 86_400 * 1_000_000


def run_once(
    tx: Tx, key: IdempotencyKey | None, operation: Callable[[], Any], *, session_id: str | None = None
) -> Outcome:
    """Run `operation` unless the key already has an outcome; its value must be JSON.

    Only successes are stored: a refused request changed nothing and may be repeated with its key.

    Raises:
        Conflict: the key was used with another body (`idempotency_conflict`).
    """
    if key is None:
        return Outcome(operation(), replayed=False)
    # A duplicate that comes meanwhile waits for the outcome of the first.
    tx.serialize(f"idempotency {key.project_id} {key.route} {key.key_digest.hex()}")
    stored = find_outcome(tx.conn, key)
    if stored is not None:
        return stored
    value = operation()
    tx.conn.execute(
        insert(idempotency),
        {
            "project_id": key.project_id,
            "route": key.route,
            "key_digest": key.key_digest,
            "session_id": session_id,
            "body_digest": key.body_digest,
            "outcome": value,
            "created_us": tx.now_us,
        },
    )
    return Outcome(value, replayed=False)


def forget_keys(tx: Tx) -> None:
    """Delete keys whose time has passed; those of input go with their session."""
    tx.conn.execute(
        idempotency.delete().where(
            idempotency.c.session_id.is_(None), idempotency.c.created_us < tx.now_us - KEPT_US
        )
    )
