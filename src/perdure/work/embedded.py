"""Work inside the server's own process: one asyncio task for each session that has something to do.

A session that waits has no task. Deadlines are rows; one sweep looks at them.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from dataclasses import dataclass, field

from perdure.config.logging import log_context
from perdure.harness.advance import advance
from perdure.harness.deps import Deps
from perdure.store.engine import now_us
from perdure.store.idempotency import forget_keys
from perdure.store.purge import purge_deleted
from perdure.store.replay import forget_events
from perdure.store.sessions import due_sessions, unfinished_sessions

log = logging.getLogger(__name__)

SWEEP_SECONDS = 1.0
CLEAN_EVERY = 30  # sweeps
PURGE_ROWS = 500
RETRY_SECONDS = 30.0


@dataclass(slots=True)
class _Run:
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    again: bool = False


class EmbeddedWork:
    """Runs `advance` for the sessions of one data directory."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps
        self._runs: dict[str, _Run] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._running = asyncio.Semaphore(deps.settings.work.session_concurrency)
        self._draining = False
        self._sweeper: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Take up what an earlier process left unfinished, and begin to look at deadlines."""
        for session_id in await self._deps.store.read(unfinished_sessions):
            self.wake(session_id)
        self._sweeper = asyncio.create_task(self._sweep(), name="sweep")

    def wake(self, session_id: str) -> None:
        """Something was accepted for the session. Safe to call at any time, any number of times."""
        if self._draining:
            return
        run = self._runs.get(session_id)
        if run is not None:
            run.again = True
            run.arrived.set()
            return
        run = self._runs[session_id] = _Run()
        task = asyncio.create_task(self._run(session_id, run), name=f"advance {session_id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def owns(self, session_id: str) -> bool:
        """Whether this process runs the session now."""
        return session_id in self._runs

    def drain(self) -> None:
        """Start nothing more; what runs stops at its next step boundary."""
        self._draining = True

    async def stop(self) -> None:
        """Hand sessions back at their next step boundary; what takes too long is repeated later."""
        self._draining = True
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=self._deps.settings.work.drain)
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run(self, session_id: str, run: _Run) -> None:
        try:
            with log_context(session=session_id):
                await self._advance(session_id, run)
        finally:
            self._runs.pop(session_id, None)

    async def _advance(self, session_id: str, run: _Run) -> None:
        failures = 0
        while True:
            run.again = False
            try:
                async with self._running:
                    await advance(self._deps, session_id, run.arrived, lambda: self._draining)
                failures = 0
            except Exception:
                # The rows say what is left to do; nothing is lost by trying again later.
                log.exception("advancing session %s failed", session_id)
                failures += 1
                run.again = True
                run.arrived.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(2.0**failures / 4, RETRY_SECONDS)):
                        await run.arrived.wait()
            if not run.again or self._draining:
                return

    async def _clean(self) -> None:
        """Remove what deleted sessions and old events left, in small transactions."""
        removed = PURGE_ROWS
        while removed:
            removed = await self._deps.store.write(purge_deleted, PURGE_ROWS)
        await self._deps.store.write(forget_keys)
        kept = self._deps.settings.work.event_retention
        removed = 0 if kept is None else PURGE_ROWS
        while removed and kept is not None:
            before = now_us() - int(kept * 1e6)
            removed = await self._deps.store.write(forget_events, before, PURGE_ROWS)

    async def _sweep(self) -> None:
        for sweep in itertools.count():
            await asyncio.sleep(SWEEP_SECONDS)
            try:
                for session_id in await self._deps.store.read(due_sessions, now_us()):
                    self.wake(session_id)
                if sweep % CLEAN_EVERY == 0:
                    await self._clean()
            except Exception:
                log.exception("the sweep failed")
