"""What is looked at again and again, in a plain loop that no failure ends."""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from perdure.store.engine import StoreError

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Chore:
    """Something to do in every n-th round, the first one included."""

    every: int
    do: Callable[[], Awaitable[object]]


class Sweep:
    """A loop over chores, in rounds of about `seconds`; the first one comes after that time, or `at_once`."""

    def __init__(
        self, name: str, seconds: float, *chores: Chore, jitter: float = 0.0, at_once: bool = False
    ) -> None:
        self._name = name
        self._seconds = seconds
        self._jitter = jitter
        self._chores = chores
        self._at_once = at_once
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._loop(), name=self._name)

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _loop(self) -> None:
        for round_ in itertools.count():
            if round_ or not self._at_once:
                await asyncio.sleep(self._seconds * random.uniform(1 - self._jitter, 1 + self._jitter))
            for chore in self._chores:
                if round_ % chore.every == 0:
                    await self._attempt(chore)

    async def _attempt(self, chore: Chore) -> None:
        try:
            await chore.do()
        except StoreError as error:
            log.warning("the %s has to wait: %s", self._name, error)
        except Exception:
            # The next round tries again; what it looks for is in rows.
            log.exception("the %s failed", self._name)
