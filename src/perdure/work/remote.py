"""Work that other processes do: this one accepts input, and settles the cancels that nobody is there for."""

from __future__ import annotations

from perdure.harness.deps import Deps
from perdure.store.handover import sessions_to_cancel, settle_cancel
from perdure.store.stuck import end_stuck
from perdure.work.sweep import Chore, Sweep

SWEEP_SECONDS = 0.5
STUCK_EVERY = 4  # sweeps


class RemoteWork:
    """Runs nothing. Without any worker, a cancelled turn ends here all the same."""

    def __init__(self, deps: Deps) -> None:
        self._store = deps.store
        self._lease_us = int(deps.settings.work.lease * 1e6)
        self._sweep = Sweep(
            "sweep",
            SWEEP_SECONDS,
            Chore(1, self._settle_cancels),
            Chore(STUCK_EVERY, self._end_stuck),
            at_once=True,
        )

    async def start(self) -> None:
        """Begin to look for cancels that nobody is there for."""
        self._sweep.start()

    def wake(self, session_id: str) -> None:
        """Nothing: whoever runs the session hears of it by its job."""

    def owns(self, session_id: str) -> bool:
        """Never."""
        return False

    def may_publish(self) -> bool:
        """Always: what is said here is said of transactions, not of anything that runs."""
        return True

    def drain(self) -> None:
        """Nothing: nothing runs."""

    def hurry(self) -> None:
        """Nothing: nothing runs."""

    async def stop(self) -> None:
        await self._sweep.stop()

    async def _end_stuck(self) -> None:
        await self._store.read(end_stuck)

    async def _settle_cancels(self) -> None:
        for session_id in await self._store.read(sessions_to_cancel):
            if not await self._store.write(settle_cancel, session_id, self._lease_us):
                return  # a worker lives: it does them all
