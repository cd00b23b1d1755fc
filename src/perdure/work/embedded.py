"""Work inside the one process that owns a SQLite file: it runs every session that has something to do.

A session that waits has no task. Deadlines are rows; one sweep looks at them.
"""

from __future__ import annotations

import os
import secrets
import socket

from perdure.harness.deps import Deps
from perdure.harness.ownership import Unending
from perdure.store.engine import now_us
from perdure.store.sessions import due_sessions, unfinished_sessions
from perdure.store.workers import PREFIX, add_worker
from perdure.work.cleaning import clean
from perdure.work.runner import Runner
from perdure.work.sweep import Chore, Sweep

SWEEP_SECONDS = 1.0
CLEAN_EVERY = 30  # sweeps


class EmbeddedWork:
    """Runs `advance` for the sessions of one data directory."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps
        self._runner = Runner(deps)
        self._ownership = Unending(PREFIX + secrets.token_hex(8))
        self._sweep = Sweep("sweep", SWEEP_SECONDS, Chore(1, self._wake_due), Chore(CLEAN_EVERY, self._clean))

    async def start(self) -> None:
        """Take up what an earlier process left unfinished, and begin to look at deadlines."""
        await self._deps.store.write(add_worker, self._ownership.owner, socket.gethostname(), os.getpid())
        for session_id in await self._deps.store.read(unfinished_sessions):
            self.wake(session_id)
        self._sweep.start()

    def wake(self, session_id: str) -> None:
        """Something was accepted for the session. Safe to call at any time, any number of times."""
        if not self._runner.draining() and not self._runner.tell(session_id):
            self._runner.start(session_id, self._ownership)

    def owns(self, session_id: str) -> bool:
        """Whether this process runs the session now."""
        return self._runner.runs(session_id)

    def may_publish(self) -> bool:
        """Always: nobody else can own what this process runs."""
        return True

    def drain(self) -> None:
        """Start nothing more; what runs stops at its next step boundary."""
        self._runner.drain()

    def hurry(self) -> None:
        """Wait for no step: `stop` breaks off what still runs."""
        self._runner.hurry()

    async def stop(self) -> None:
        """Hand sessions back at their next step boundary; what takes too long is repeated later."""
        self._runner.drain()
        await self._sweep.stop()
        await self._runner.finish()

    async def _wake_due(self) -> None:
        for session_id in await self._deps.store.read(due_sessions, now_us()):
            self.wake(session_id)

    async def _clean(self) -> None:
        await clean(self._deps.store, self._deps.settings, shared=False)
