"""An event loop whose clock jumps to the next timer instead of waiting for it."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class _NoWaiting(selectors.SelectSelector):
    """Says that nothing happened for as long as it is asked to wait, at once."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise AssertionError("everything waits, and no timer is set")
        self.now += max(timeout, 0.0)
        return []


class TimelessLoop(asyncio.SelectorEventLoop):
    """Runs what waits for timers alone; no sockets, no threads."""

    def __init__(self) -> None:
        self._still = _NoWaiting()
        super().__init__(self._still)

    def time(self) -> float:
        return self._still.now


def run(main: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine, run in no time."""
    with asyncio.Runner(loop_factory=TimelessLoop) as runner:
        return runner.run(main)
