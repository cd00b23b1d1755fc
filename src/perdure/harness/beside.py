"""Model calls beside the steps of a turn: admitted by the same ceilings, counted and settled one by one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from perdure.config.faults import reach
from perdure.harness.deps import Deps
from perdure.harness.metering import Meter, metered_call
from perdure.harness.ownership import OwnershipLost
from perdure.harness.retrying import retry_delay
from perdure.harness.spending import CallRecord, admit_beside, settle_beside, written_tokens
from perdure.models.errors import ModelError
from perdure.models.messages import Finished, ModelRequest
from perdure.models.registry import Resolved
from perdure.store.rows import TurnRow

T = TypeVar("T")


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
            turn = self._turn
            refused = await admit_beside(self._deps, turn.session_id, turn.id, self._target)
            if refused is not None:
                raise ModelError(refused.code, refused.message)
            try:
                return await self._call(request, read)
            except ModelError as error:
                delay = retry_delay(error, tries, retry)
                if not error.retryable or tries == retry.attempts or waited + delay > retry.give_up_after:
                    raise
                waited += delay
                await asyncio.sleep(delay)
        raise AssertionError("the last attempt returns or raises")

    async def _call(self, request: ModelRequest, read: Callable[[Listener], Awaitable[T]]) -> T:
        deps, target, turn = self._deps, self._target, self._turn
        call = CallRecord.of(deps, target, request, target.upstream, "compaction")
        listener: Listener | None = None
        outcome = "cancelled"
        try:
            async with metered_call(deps.metrics.loop, deps.model_calls, target) as meter:
                listener = Listener(call, meter)
                if not deps.ownership.alive():
                    raise OwnershipLost
                call.begin()
                spent = turn.active_us + self._active_us
                async with asyncio.timeout(max(deps.settings.work.turn_timeout - spent / 1e6, 0.001)):
                    reach("compaction:before-call")
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
            await settle_beside(deps, turn, call, outcome, written)
        reach("compaction:after-call")
        if not is_finished:
            raise ModelError("connection_failed", "The model's answer ended early.", retryable=True)
        return answer
