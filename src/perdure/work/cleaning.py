"""Removing what deleted sessions, old events and old keys left, in small transactions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from sqlalchemy import text

from perdure.config.settings import Settings
from perdure.store.engine import Store, now_us
from perdure.store.idempotency import forget_keys
from perdure.store.purge import purge_deleted
from perdure.store.replay import forget_events
from perdure.store.tx import Tx

P = ParamSpec("P")
T = TypeVar("T")

PURGE_ROWS = 500
_ALONE = text("SELECT pg_try_advisory_xact_lock(hashtextextended('perdure cleaning', 0))")


async def clean(store: Store, settings: Settings, *, shared: bool) -> None:
    """Remove all there is to remove now; of the processes that share a database one does it at a time."""

    async def remove(
        operation: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T | None:
        if shared:
            return await alone(store, operation, *args, **kwargs)
        return await store.write(operation, *args, **kwargs)

    while await remove(purge_deleted, PURGE_ROWS):
        pass
    await remove(forget_keys)
    kept = settings.work.event_retention
    if kept is not None:
        while await remove(forget_events, now_us() - int(kept * 1e6), PURGE_ROWS):
            pass


async def alone(
    store: Store, operation: Callable[Concatenate[Tx, P], T], *args: P.args, **kwargs: P.kwargs
) -> T | None:
    """Run an operation, unless another process is cleaning now."""

    @functools.wraps(operation)
    def unless_another(tx: Tx) -> T | None:
        return operation(tx, *args, **kwargs) if tx.conn.execute(_ALONE).scalar_one() else None

    return await store.write(unless_another)
