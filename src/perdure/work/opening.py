"""Which kind of work fits a process: its database and its part decide."""

from __future__ import annotations

from perdure.harness.deps import Deps
from perdure.store.engine import is_sqlite
from perdure.work.embedded import EmbeddedWork
from perdure.work.port import Work
from perdure.work.remote import RemoteWork


def open_work(deps: Deps, *, runs_sessions: bool) -> Work:
    """The work of a process; `runs_sessions` is whether it is a worker, which on SQLite it always is."""
    if is_sqlite(deps.settings.database):
        return EmbeddedWork(deps)
    if not runs_sessions:
        return RemoteWork(deps)
    from perdure.work.postgres import PostgresWork

    return PostgresWork(deps)
