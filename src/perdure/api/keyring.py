"""Who a bearer token belongs to."""

from __future__ import annotations

import hmac
import time
from dataclasses import dataclass

from perdure.secrets.keys import EVERY_SCOPE, ApiKey, digest
from perdure.store.engine import Store
from perdure.store.keys import find_key

# A key that is revoked by another process stops working after this many seconds.
CACHE_SECONDS = 5.0
CACHE_KEYS = 4096
DEFAULT_PROJECT = "default"


@dataclass(frozen=True, slots=True)
class Caller:
    """The project a request acts for, and what it may do there."""

    project_id: str
    key_id: str
    scopes: frozenset[str]


class Keyring:
    """Finds keys by digest; the bootstrap key of the environment belongs to the default project."""

    def __init__(self, store: Store, bootstrap_key: str | None) -> None:
        self._store = store
        self._bootstrap = None if bootstrap_key is None else digest(bootstrap_key)
        self._known: dict[bytes, tuple[float, Caller | None]] = {}

    async def caller(self, token: str) -> Caller | None:
        """The owner of a token, or None."""
        wanted = digest(token)
        if self._bootstrap is not None and hmac.compare_digest(wanted, self._bootstrap):
            return Caller(DEFAULT_PROJECT, "bootstrap", frozenset(EVERY_SCOPE))
        now = time.monotonic()
        cached = self._known.get(wanted)
        if cached is not None and now - cached[0] < CACHE_SECONDS:
            return cached[1]
        key = await self._store.read(find_key, wanted)
        caller = None if key is None else _caller(key)
        if len(self._known) >= CACHE_KEYS:
            self._known.clear()
        self._known[wanted] = (now, caller)
        return caller


def _caller(key: ApiKey) -> Caller:
    return Caller(key.project_id, key.id, frozenset(key.scopes))
