"""Model calls beside the steps of a turn: admitted by the same ceilings, counted and settled one by one.

Each is counted in the database before it begins. One whose process dies is counted as interrupted by the
session's next owner; a process that others may have taken over from leaves its calls to them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from perdure.config.faults import reach
from perdure.harness.deps import Deps
from perdure.harness.limits import before_call, ceilings_of
from perdure.harness.metering import Meter, metered_call
from perdure.harness.ownership import OwnershipLost
from perdure.harness.retrying import retry_delay
from perdure.harness.spending import CallRecord, count_hit, price_of, written_tokens
from perdure.models.errors import ModelError
from perdure.models.messages import Finished, ModelRequest
from perdure.models.registry import Resolved
from perdure.store.beside import charge_beside, reserve_beside
from perdure.store.boundary import Failure
from perdure.store.locked import SessionGone
from perdure.store.rows import TurnRow
from perdure.store.spending import Spending
from perdure.store.steps import Spent
from perdure.wire.ids import new_id

T = TypeVar("T")


@dataclass(slots=True)
class Counted:
    """A call that was counted before it begins: its id, and what it came to; nothing if it never began."""

    id: str
    spent: Spent = field(default_factory=lambda: Spent(None, 0, 0))


class Listener:
    """Told by whoever reads an answer how far it has come."""

    def __init__(self, call: CallRecord, meter: Meter) -> None:
        self.call = call
        # Characters of text so far, for an answer that breaks off.
        self.characters = 0
        self.is_finished = False
        self._meter = meter

    def finish(self, finished: Finished) -> None:
        """The answer is complete."""
        self.is_finished = True
        self.call.tell(finished)
        self._meter.used(finished.usage)
        self._meter.cost(self.call.cost)


class CallsBeside:
    """Calls that compact the history of a turn's agent. Nothing of them is written but what they cost."""

    def __init__(self, deps: Deps, turn: TurnRow, target: Resolved) -> None:
        self._deps = deps
        self._turn = turn
        self._target = target
        self._active_us = 0

    async def ask(self, request: ModelRequest, read: Callable[[Listener], Awaitable[T]]) -> T:
        """What `read` makes of one answer, asked for again as the settings say while the failure may pass.

        Args:
            request: what is sent, for what it costs if nobody tells.
            read: makes the call.

        Raises:
            ModelError: refused by a ceiling or by the provider.
            TimeoutError: the turn has no time left.
            OwnershipLost: this process may not call anybody for the session any more.
        """
        retry = self._deps.settings.retry
        waited = 0.0
        for tries in range(1, retry.attempts + 1):
            try:
                async with self._counted() as counted:
                    answer = await self._call(request, read, counted)
                reach("compaction:after-call")
                return answer
            except ModelError as error:
                delay = retry_delay(error, tries, retry)
                if not error.retryable or tries == retry.attempts or waited + delay > retry.give_up_after:
                    raise
                waited += delay
                await asyncio.sleep(delay)
        raise AssertionError("the last attempt returns or raises")

    async def _call(
        self, request: ModelRequest, read: Callable[[Listener], Awaitable[T]], counted: Counted
    ) -> T:
        deps, target, turn = self._deps, self._target, self._turn
        call = CallRecord.of(deps, target, request, target.upstream, "compaction")
        listener: Listener | None = None
        outcome = "cancelled"
        try:
            async with metered_call(deps.metrics.loop, deps.model_calls, target) as meter:
                listener = Listener(call, meter)
                self._check_ownership()
                call.begin()
                spent = turn.active_us + self._active_us
                with deps.tracing.calls(turn, call, None):
                    async with asyncio.timeout(max(deps.settings.work.turn_timeout - spent / 1e6, 0.001)):
                        reach("compaction:before-call")
                        self._check_ownership()
                        answer = await read(listener)
            is_finished = listener.is_finished
            outcome = "ok" if is_finished else "connection_failed"
        except ModelError as error:
            outcome = error.code
            raise
        except TimeoutError:
            outcome = "request_timeout"
            raise
        finally:
            self._active_us += call.active_us
            written = 0 if listener is None else written_tokens(listener.characters)
            calls = call.ended(outcome, written)
            if calls:
                counted.spent = Spent(call.usage, call.active_us, 1, calls)
        if not is_finished:
            raise ModelError("connection_failed", "The model's answer ended early.", retryable=True)
        return answer

    @asynccontextmanager
    async def _counted(self) -> AsyncIterator[Counted]:
        """Count a call from before it begins to its end, and charge it then.

        Raises:
            ModelError: a ceiling refuses the call.
        """
        deps, turn, counted = self._deps, self._turn, Counted(new_id("mcl"))
        counting = asyncio.ensure_future(
            deps.store.write(
                reserve_beside,
                turn.session_id,
                turn.id,
                counted.id,
                owner=deps.ownership.owner,
                provider=self._target.provider,
                model=self._target.upstream,
            )
        )
        try:
            refused = self._refused(await asyncio.shield(counting))
            if refused is not None:
                raise ModelError(refused.code, refused.message)
            yield counted
        except SessionGone:
            raise ModelError("internal_error", "The session is gone.") from None
        finally:
            if not counting.done():
                # A charge that overtakes it would leave the call counted for ever.
                await asyncio.wait({counting})
            is_counted = not counting.cancelled() and counting.exception() is None
            if is_counted and deps.ownership.alive():
                place = (turn.session_id, turn.id, counted.spent, counted.id, turn.agent_id)
                await deps.store.write(charge_beside, *place)

    def _refused(self, found: Spending) -> Failure | None:
        """Why the call may not be made, if a ceiling refuses it."""
        target = self._target
        price = price_of(self._deps, target, target.upstream)
        hit = before_call(
            found.turn,
            found.tally,
            ceilings_of(self._deps.settings.limits, found.metadata, found.limits),
            model=target.upstream,
            currency=None if price is None else price.currency,
        )
        return None if hit is None else count_hit(self._deps, hit)

    def _check_ownership(self) -> None:
        """Nothing leaves this process for a session that others may have taken over."""
        if not self._deps.ownership.alive():
            raise OwnershipLost
