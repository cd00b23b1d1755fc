"""Reading a model's answer while it is written: items in progress, their text, and the end.

What a subagent writes goes to no stream of events; it is saved as often as that of the root.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing

from perdure.config.faults import reach
from perdure.harness.attempt import Attempt, Writing
from perdure.harness.deps import Deps
from perdure.harness.metering import Meter, metered_call
from perdure.harness.ownership import OwnershipLost
from perdure.harness.spending import CallRecord
from perdure.live.writing import LiveItem, unheard_item
from perdure.models.errors import ModelError
from perdure.models.messages import (
    CallDone,
    Finished,
    MessageDone,
    ModelRequest,
    ReasoningDelta,
    ReasoningDone,
    TextDelta,
    UsageTold,
)
from perdure.models.registry import Resolved
from perdure.store.boundary import Boundary
from perdure.store.steps import checkpoint_item, open_item

CHECKPOINT_SECONDS = 0.5


class AnswerStream:
    """The answer to one model call, of the agent of a boundary.

    Args:
        active_us: how long the turn has been active before, in microseconds.
        stop: set when the answer is no longer wanted.
    """

    def __init__(self, deps: Deps, boundary: Boundary, active_us: int, stop: asyncio.Event) -> None:
        assert boundary.turn is not None
        self._deps = deps
        self._boundary = boundary
        self._lease = boundary.lease
        self._turn = boundary.turn
        self._active_us = active_us
        self._stop = stop
        self._ended = asyncio.Event()

    async def read(self, attempt: Attempt, resolved: Resolved, request: ModelRequest) -> bool:
        """Read the whole answer; False when it was no longer wanted before its end.

        Raises:
            ModelError, TimeoutError: there is no whole answer.
            Fenced, OwnershipLost, SessionGone, TurnOver: nobody may go on with it.
        """
        reading = asyncio.create_task(self._read_in_time(attempt, resolved, request))
        watching = asyncio.create_task(self._stop.wait())
        saving = asyncio.create_task(self._keep_saving(attempt))
        try:
            await asyncio.wait({reading, watching, saving}, return_when=asyncio.FIRST_COMPLETED)
            if saving.done():
                saving.result()
            if reading.done():
                reading.result()
                return True
            return False
        finally:
            for task in (reading, watching):
                task.cancel()
            # Never broken off: a text so far that is saved late would replace the whole one.
            self._ended.set()
            await asyncio.gather(reading, watching, saving, return_exceptions=True)

    async def _read_in_time(self, attempt: Attempt, resolved: Resolved, request: ModelRequest) -> None:
        """Read the answer once a model call may start; waiting for that is not active time."""
        async with metered_call(self._deps.metrics.loop, self._deps.model_calls, resolved) as meter:
            self._check_ownership()
            assert attempt.call is not None
            attempt.began = time.monotonic()
            attempt.call.begin()
            remaining = self._deps.settings.work.turn_timeout - self._active_us / 1e6
            try:
                with self._deps.tracing.calls(self._turn, attempt.call, attempt.number):
                    async with asyncio.timeout(max(remaining, 0.001)):
                        await self._read(attempt, attempt.call, resolved, meter)
            finally:
                meter.used(attempt.call.usage)
                meter.cost(attempt.call.cost)

    async def _read(self, attempt: Attempt, call: CallRecord, resolved: Resolved, meter: Meter) -> None:
        request = call.request
        async with aclosing(resolved.model.stream(request)) as events:
            reach("model:before-call")
            self._check_ownership()
            async for event in events:
                self._check_ownership()
                if event.__class__ is UsageTold:
                    call.tell(event)
                    continue
                if not attempt.writing and not attempt.outputs:
                    reach("model:first-output")
                    meter.output()
                    call.output()
                match event:
                    case TextDelta():
                        writing = attempt.writing.get(event.output)
                        if writing is None:
                            writing = await self._open(attempt, event.output, "message")
                        writing.live.append_text(event.text)
                    case ReasoningDelta() if request.summary is None:
                        pass  # kept for the provider, not shown: no summary was asked for
                    case ReasoningDelta():
                        writing = attempt.writing.get(event.output)
                        if writing is None:
                            writing = await self._open(attempt, event.output, "reasoning")
                        writing.live.append_summary(event.part, event.text)
                    case MessageDone() | ReasoningDone() | CallDone():
                        attempt.outputs.append(event)
                    case Finished():
                        attempt.finished = event
                        call.tell(event)
        reach("model:after-call")
        if attempt.finished is None:
            raise ModelError("connection_failed", "The model's answer ended early.", retryable=True)
        attempt.outputs.sort(key=lambda output: output.output)
        unfinished = attempt.writing.keys() - {output.output for output in attempt.outputs}
        if unfinished:
            raise ModelError("server_error", "The model's answer left outputs unfinished.", retryable=True)

    async def _open(self, attempt: Attempt, output: int, kind: str) -> Writing:
        boundary = self._boundary
        opened = await self._deps.store.write(
            open_item, self._lease, self._turn.id, kind, attempt.number, boundary.agent_id
        )
        self._check_ownership()
        item = opened.item
        assert item.output_index is not None
        live: LiveItem
        place = (item.session_id, item.turn_id, item.id, item.output_index)
        if boundary.subagent is not None:
            live = unheard_item(*place)
        else:
            live = self._deps.hub.open_item(*place, epoch=self._lease.epoch, after=opened.seq)
        writing = Writing(item, live, item.data)
        attempt.writing[output] = writing
        return writing

    async def _keep_saving(self, attempt: Attempt) -> None:
        """Save the text so far of what has grown, twice a second, also while the model is silent."""
        while True:
            try:
                async with asyncio.timeout(CHECKPOINT_SECONDS):
                    await self._ended.wait()
                    return
            except TimeoutError:
                pass
            for writing in tuple(attempt.writing.values()):
                data = writing.data()
                if data != writing.saved and not self._ended.is_set():
                    self._check_ownership()
                    await self._deps.store.write(checkpoint_item, self._lease, writing.row, data)
                    writing.saved = data

    def _check_ownership(self) -> None:
        if not self._deps.ownership.alive():
            raise OwnershipLost
