"""Running sessions: one asyncio task for each that has something to do, and again while it has more."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Collection
from dataclasses import dataclass, field, replace

from perdure.config.logging import log_context
from perdure.harness.advance import advance
from perdure.harness.deps import Deps
from perdure.harness.ownership import Ownership
from perdure.store.engine import StoreError

log = logging.getLogger(__name__)

RETRY_SECONDS = 30.0


@dataclass(slots=True)
class _Run:
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    again: bool = False
    task: asyncio.Task[None] | None = None


class Runner:
    """The sessions that this process runs. A session that waits has no task."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps
        self._runs: dict[str, _Run] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._places = asyncio.Semaphore(deps.settings.work.session_concurrency)
        self._draining = False
        self._hurried = asyncio.Event()

    def draining(self) -> bool:
        """Whether nothing more is to be started."""
        return self._draining

    def sessions(self) -> Collection[str]:
        """The sessions that run now."""
        return tuple(self._runs)

    def runs(self, session_id: str) -> bool:
        return session_id in self._runs

    def tell(self, session_id: str) -> bool:
        """Tell a running session that something arrived for it; False if it does not run here."""
        run = self._runs.get(session_id)
        if run is None:
            return False
        run.again = True
        run.arrived.set()
        return True

    def look(self, session_id: str) -> None:
        """Let a running session see a cancel that another process accepted."""
        run = self._runs.get(session_id)
        if run is not None:
            run.arrived.set()

    def start(self, session_id: str, ownership: Ownership) -> asyncio.Task[None]:
        """Run a session that does not run here, in a task of its own."""
        assert session_id not in self._runs
        run = self._runs[session_id] = _Run()
        deps = replace(self._deps, ownership=ownership)
        task = asyncio.create_task(self._run(deps, session_id, run), name=f"advance {session_id}")
        run.task = task
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._ended(session_id, run, done))
        return task

    async def displace(self, session_id: str) -> None:
        """End a run of a session that was given to this process anew."""
        while (run := self._runs.get(session_id)) is not None:
            assert run.task is not None
            run.task.cancel()
            await asyncio.wait({run.task})
            await asyncio.sleep(0)

    def abandon(self) -> None:
        """End every run at once: others may have taken the sessions over."""
        for task in tuple(self._tasks):
            task.cancel()
        self._deps.background.drop_all()

    def drain(self) -> None:
        """Let every run end at its next step boundary."""
        self._draining = True
        for run in self._runs.values():
            # Who waits to try again after a failure must not wait any longer.
            run.arrived.set()

    def hurry(self) -> None:
        self._hurried.set()

    async def finish(self) -> None:
        """Wait for the runs to end at their next step boundary, and break off those that take too long."""
        self.drain()
        ending = asyncio.create_task(self._hurried.wait())
        tasks = set(self._tasks)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._deps.settings.work.drain):
                while tasks and not ending.done():
                    await asyncio.wait({*tasks, ending}, return_when=asyncio.FIRST_COMPLETED)
                    tasks = set(self._tasks)
        ending.cancel()
        self.abandon()
        await asyncio.gather(ending, *self._tasks, return_exceptions=True)

    def _ended(self, session_id: str, run: _Run, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if self._runs.get(session_id) is run:
            del self._runs[session_id]

    async def _run(self, deps: Deps, session_id: str, run: _Run) -> None:
        try:
            with log_context(session=session_id):
                await self._advance(deps, session_id, run)
        finally:
            if self._runs.get(session_id) is run:
                del self._runs[session_id]

    async def _advance(self, deps: Deps, session_id: str, run: _Run) -> None:
        failures = 0
        while True:
            run.again = False
            try:
                async with self._places:
                    await advance(deps, session_id, run.arrived, lambda: self._draining)
                failures = 0
            except Exception as error:
                # The rows say what is left to do; nothing is lost by trying again later.
                if isinstance(error, StoreError):
                    log.warning("advancing session %s has to wait: %s", session_id, error)
                else:
                    log.exception("advancing session %s failed", session_id)
                failures += 1
                run.again = True
                run.arrived.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(2.0**failures / 4, RETRY_SECONDS)):
                        await run.arrived.wait()
            if not run.again or self._draining or not deps.ownership.alive():
                return
