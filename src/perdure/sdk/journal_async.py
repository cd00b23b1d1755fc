"""The journal for coroutines: its methods in threads of their own, and no call lost to a cancellation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from perdure.sdk.calls import CallPair, ToolResult
from perdure.sdk.journal_calls import Begun, Finished, Fresh, Unknown
from perdure.sdk.journal_json import Json
from perdure.sdk.ledger import LedgerRecord
from perdure.sdk.ledger_edit import LedgerEdit

if TYPE_CHECKING:
    from perdure.sdk.journal import Journal

P = ParamSpec("P")
T = TypeVar("T")

THREADS = 4
"""Slow tools fill the loop's default executor; the journal must not wait for them."""


class AsyncJournal:
    """`journal.aio`. A cancelled coroutine has waited for its step: what was recorded is known."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="journal")

    async def begin(self, pair: CallPair, tool: str, arguments: Json) -> Begun:
        """See `Journal.begin`. When cancelled, the call is as if it had not begun."""
        step = self._start(self.journal.begin, pair, tool, arguments)
        try:
            return await asyncio.shield(step)
        except asyncio.CancelledError:
            begun = await _ended(step)
            if isinstance(begun, Fresh):
                await _ended(self._start(self.journal.withdraw, begun))
            raise

    async def look(self, pair: CallPair) -> Begun | None:
        """See `Journal.look`."""
        return await self.run(self.journal.look, pair)

    async def claim(self, unknown: Unknown) -> Begun:
        """See `Journal.claim`. When cancelled, the call is unknown again."""
        step = self._start(self.journal.claim, unknown)
        try:
            return await asyncio.shield(step)
        except asyncio.CancelledError:
            begun = await _ended(step)
            if isinstance(begun, Fresh):
                await _ended(self._start(self.journal.abandon, begun))
            raise

    async def finish(
        self, fresh: Fresh, result: ToolResult, ledger: LedgerEdit[Any] | None = None
    ) -> Finished:
        """See `Journal.finish`."""
        return await self.run(self.journal.finish, fresh, result, ledger)

    async def submitted(self, pair: CallPair) -> None:
        """See `Journal.submitted`."""
        await self.run(self.journal.submitted, pair)

    async def refused(self, pair: CallPair, reason: str) -> None:
        """See `Journal.refused`."""
        await self.run(self.journal.refused, pair, reason)

    async def abandon(self, fresh: Fresh) -> None:
        """See `Journal.abandon`."""
        await self.run(self.journal.abandon, fresh)

    async def withdraw(self, fresh: Fresh) -> None:
        """See `Journal.withdraw`."""
        await self.run(self.journal.withdraw, fresh)

    async def turn_ended(self, session_id: str, turn_id: str, *, answered: Collection[str] = ()) -> None:
        """See `Journal.turn_ended`."""
        await self.run(self.journal.turn_ended, session_id, turn_id, answered=answered)

    async def calls(self, session_id: str) -> list[dict[str, Json]]:
        """See `Journal.calls`."""
        return await self.run(self.journal.calls, session_id)

    async def ledger(self, session_id: str) -> LedgerRecord | None:
        """See `Ledgers.read`."""
        return await self.run(self.journal.ledgers.read, session_id)

    async def run(self, method: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run any method of the journal or its ledgers in one of the threads.

        When cancelled, it waits for the method to end before it lets the cancellation go on.
        """
        step = self._start(method, *args, **kwargs)
        try:
            return await asyncio.shield(step)
        except asyncio.CancelledError:
            await _ended(step)
            raise

    def shutdown(self) -> None:
        """End the threads; called by `Journal.close`."""
        self._threads.shutdown(wait=True)

    def _start(self, method: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
        loop = asyncio.get_running_loop()
        return loop.run_in_executor(self._threads, lambda: method(*args, **kwargs))


async def _ended(step: asyncio.Future[T]) -> T | None:
    """The result of a step, or None if it failed; further cancellations do not break the wait off."""
    while not step.done():
        try:
            await asyncio.wait([step])
        except asyncio.CancelledError:
            continue
    return None if step.cancelled() or step.exception() is not None else step.result()
