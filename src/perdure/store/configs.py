"""The versions of a session's configuration; a version never changes, so they are kept parsed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, bindparam, select

from perdure.store.rows import Config, config_of
from perdure.store.statements import Statement
from perdure.store.tables import session_configs

_CONFIG = Statement(
    select(session_configs.c.settings).where(
        session_configs.c.session_id == bindparam("session_id"),
        session_configs.c.version == bindparam("version"),
    )
)

_configs: dict[tuple[str, int], Config] = {}
_CONFIGS_KEPT = 1024


def load_config(conn: Connection, row: Mapping[str, Any], version: int, *, keep: bool = True) -> Config:
    """A version of a session's configuration; `keep` is False while its row is not committed yet."""
    key = (row["id"], version)
    cached = _configs.get(key)
    if cached is None:
        found = _CONFIG.fetch(conn, {"session_id": row["id"], "version": version})
        cached = config_of(version, found[0]["settings"], row["agent_id"], row["agent_name"])
        if keep:
            if len(_configs) >= _CONFIGS_KEPT:
                _configs.clear()
            _configs[key] = cached
    return cached
