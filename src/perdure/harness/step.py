"""One step: one model call with its outputs, streamed while it runs and committed when it ends.

    request ─▶ stream ─▶ commit ─▶ boundary
                 │  ╰─ broke off: close what was shown, try again or fail the turn
                 ╰─ cancelled: close what was shown; the boundary settles the turn

Crash points: before the commit, items in progress are all there is, and the next owner closes them
as incomplete and repeats the step; after it, the step is never repeated.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from perdure.config.faults import reach
from perdure.harness.answer import Output, Rules, message_data, read_answer, reasoning_data
from perdure.harness.checks import check_request
from perdure.harness.context import build_request
from perdure.harness.conversation import Conversation
from perdure.harness.deps import Deps
from perdure.harness.limits import exceeded
from perdure.harness.metering import Meter, metered_call
from perdure.harness.ownership import OwnershipLost
from perdure.live.hub import LiveItem
from perdure.models.errors import ModelError
from perdure.models.messages import (
    CallDone,
    Finished,
    MessageDone,
    ModelRequest,
    ReasoningDelta,
    ReasoningDone,
    TextDelta,
)
from perdure.models.registry import Resolved, UnknownModel
from perdure.store.boundary import Boundary, Failure
from perdure.store.rows import ItemRow, TurnRow
from perdure.store.sessions import cancel_requested
from perdure.store.steps import Call, Spent, Text, abandon_step, checkpoint_item, commit_step, open_item
from perdure.wire.tools import FunctionTool

log = logging.getLogger(__name__)

CHECKPOINT_SECONDS = 0.5
NOTHING_SPENT = Spent(None, 0, 0)


@dataclass(slots=True)
class Writing:
    """An item in progress: its row, and the text that readers have seen."""

    row: ItemRow
    live: LiveItem
    saved_at: float

    def data(self) -> dict[str, Any]:
        texts = self.live.texts()
        if self.row.type == "message":
            return message_data("".join(texts), None) if texts else dict(self.row.data)
        return reasoning_data(texts)


@dataclass(slots=True)
class Attempt:
    """What one call of the model has produced so far."""

    turn: TurnRow
    number: int
    began: float = field(default_factory=time.monotonic)
    # What earlier attempts of the step cost that showed nothing and so wrote nothing.
    before: Spent = NOTHING_SPENT
    writing: dict[int, Writing] = field(default_factory=dict)
    outputs: list[Output] = field(default_factory=list)
    finished: Finished | None = None

    def partial(self) -> list[Text]:
        return [
            Text("message" if w.row.type == "message" else "reasoning", w.data(), w.row)
            for w in self.writing.values()
        ]

    def spent(self, *, model_calls: int = 1) -> Spent:
        usage = None if self.finished is None else self.finished.usage
        active_us = int((time.monotonic() - self.began) * 1e6)
        return Spent(usage, self.before.active_us + active_us, self.before.model_calls + model_calls)


class Step:
    """The step that a boundary asks for. `arrived` is set when input for the session is accepted."""

    def __init__(
        self, deps: Deps, boundary: Boundary, conversation: Conversation, arrived: asyncio.Event
    ) -> None:
        assert boundary.turn is not None
        self._deps = deps
        self._boundary = boundary
        self._lease = boundary.lease
        self._turn = boundary.turn
        self._conversation = conversation
        self._arrived = arrived
        self._unsaved = NOTHING_SPENT

    async def run(self) -> Boundary:
        """Make the step and pass the boundary behind it.

        Raises:
            Fenced, OwnershipLost, SessionGone: another owner took over, or could have, or the session is
                gone; nothing was written.
        """
        try:
            resolved = self._deps.registry.resolve(self._boundary.turn_config.settings.model)
        except UnknownModel as error:
            failure = Failure("resource_not_found", str(error))
            return await self._fail(Attempt(self._turn, self._turn.model_calls), failure, model_calls=0)
        request = build_request(self._boundary, self._conversation, resolved, self._deps.settings)
        check_request(request, self._conversation.checked)
        waited = 0.0
        for tries in range(1, self._deps.settings.retry.attempts + 1):
            attempt = Attempt(self._turn, self._turn.model_calls, before=self._unsaved)
            limits = exceeded(self._turn, self._deps.settings, self._unsaved)
            if limits is not None:
                return await self._fail(attempt, limits, model_calls=0)
            try:
                if not await self._stream(attempt, resolved, request):
                    return await self._abandon(attempt, None)
                return await self._commit(attempt)
            except ModelError as error:
                delay = self._delay(error, tries)
                retry = self._deps.settings.retry
                final = not error.retryable or tries == retry.attempts or waited + delay > retry.give_up_after
                if final:
                    return await self._fail(attempt, Failure(error.code, error.message))
                self._count_retry(resolved, error)
                log.info("model call failed, retrying in %.1f s: %s", delay, error.message)
                waited += delay
                shown = bool(attempt.writing)
                if shown:
                    # What was seen is closed; the repeated answer comes as new items.
                    boundary = await self._abandon(attempt, None)
                    if boundary.state != "run" or boundary.turn is None or boundary.turn.id != self._turn.id:
                        return boundary
                    self._conversation.update(boundary.items)
                    self._turn = boundary.turn
                    self._boundary = boundary
                    self._unsaved = NOTHING_SPENT
                    request = build_request(boundary, self._conversation, resolved, self._deps.settings)
                else:
                    self._unsaved = attempt.spent()
                if await self._cancelled_within(delay):
                    nothing = Attempt(self._turn, self._turn.model_calls, before=self._unsaved)
                    return await self._abandon(nothing, None, model_calls=0)
            except TimeoutError:
                seconds = int(self._deps.settings.work.turn_timeout)
                text = f"The turn was active for longer than {seconds} seconds."
                return await self._fail(attempt, Failure("request_timeout", text))
        raise AssertionError("the last attempt returns")

    # ---- the model call

    async def _stream(self, attempt: Attempt, resolved: Resolved, request: ModelRequest) -> bool:
        """Read the model's answer; False when a cancel was accepted first."""
        reading = asyncio.create_task(self._read_in_time(attempt, resolved, request))
        watching = asyncio.create_task(self._cancel_accepted())
        try:
            await asyncio.wait({reading, watching}, return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                reading.result()
                return True
            watching.result()
            return False
        finally:
            for task in (reading, watching):
                task.cancel()
            await asyncio.gather(reading, watching, return_exceptions=True)

    async def _read_in_time(self, attempt: Attempt, resolved: Resolved, request: ModelRequest) -> None:
        """Read the answer once a model call may start; waiting for that is not active time."""
        async with metered_call(self._deps.metrics.loop, self._deps.model_calls, resolved) as meter:
            self._check_ownership()
            attempt.began = time.monotonic()
            spent = self._turn.active_us + self._unsaved.active_us
            remaining = self._deps.settings.work.turn_timeout - spent / 1e6
            async with asyncio.timeout(max(remaining, 0.001)):
                await self._read(attempt, resolved, request, meter)

    async def _read(self, attempt: Attempt, resolved: Resolved, request: ModelRequest, meter: Meter) -> None:
        async with aclosing(resolved.model.stream(request)) as events:
            reach("model:before-call")
            async for event in events:
                self._check_ownership()
                if not attempt.writing and not attempt.outputs:
                    reach("model:first-output")
                    meter.output()
                match event:
                    case TextDelta():
                        writing = attempt.writing.get(event.output)
                        if writing is None:
                            writing = await self._open(attempt, event.output, "message")
                        writing.live.append_text(event.text)
                        await self._checkpoint(writing)
                    case ReasoningDelta() if request.summary is None:
                        pass  # kept for the provider, not shown: no summary was asked for
                    case ReasoningDelta():
                        writing = attempt.writing.get(event.output)
                        if writing is None:
                            writing = await self._open(attempt, event.output, "reasoning")
                        writing.live.append_summary(event.part, event.text)
                        await self._checkpoint(writing)
                    case MessageDone() | ReasoningDone() | CallDone():
                        attempt.outputs.append(event)
                    case Finished():
                        attempt.finished = event
                        meter.used(event.usage)
        reach("model:after-call")
        if attempt.finished is None:
            raise ModelError("connection_failed", "The model's answer ended early.", retryable=True)
        attempt.outputs.sort(key=lambda output: output.output)
        unfinished = attempt.writing.keys() - {output.output for output in attempt.outputs}
        if unfinished:
            raise ModelError("server_error", "The model's answer left outputs unfinished.", retryable=True)

    async def _open(self, attempt: Attempt, output: int, kind: str) -> Writing:
        opened = await self._deps.store.write(open_item, self._lease, self._turn.id, kind, attempt.number)
        self._check_ownership()
        item = opened.item
        assert item.output_index is not None
        live = self._deps.hub.open_item(
            item.session_id,
            item.turn_id,
            item.id,
            item.output_index,
            epoch=self._lease.epoch,
            after=opened.seq,
        )
        writing = Writing(item, live, time.monotonic())
        attempt.writing[output] = writing
        return writing

    async def _checkpoint(self, writing: Writing) -> None:
        now = time.monotonic()
        if now - writing.saved_at < CHECKPOINT_SECONDS:
            return
        writing.saved_at = now
        await self._deps.store.write(checkpoint_item, self._lease, writing.row, writing.data())

    async def _cancel_accepted(self) -> None:
        """Return once an accepted cancel waits in the inbox; other input waits for the boundary."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            try:
                if await self._deps.store.read(cancel_requested, self._lease.session_id):
                    return
            except asyncio.CancelledError:
                # Nobody has looked: the next watcher must.
                self._arrived.set()
                raise

    async def _cancelled_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._cancel_accepted()
        except TimeoutError:
            return False
        return True

    def _check_ownership(self) -> None:
        """Nothing leaves this process for a session that others may have taken over."""
        if not self._deps.ownership.alive():
            raise OwnershipLost

    def _count_retry(self, resolved: Resolved, error: ModelError) -> None:
        loop = self._deps.metrics.loop
        model = loop.labels_of(resolved.provider, resolved.upstream)
        loop.retries.labels(model.provider, model.model, error.code).inc()

    def _delay(self, error: ModelError, tries: int) -> float:
        retry = self._deps.settings.retry
        backoff: float = min(retry.max_delay, retry.base_delay * 2 ** (tries - 1)) * random.uniform(0.5, 1.0)
        return backoff if error.retry_after is None else max(error.retry_after, backoff)

    # ---- the transactions that end a step

    async def _commit(self, attempt: Attempt) -> Boundary:
        answer = read_answer(
            attempt.outputs,
            {output: writing.row for output, writing in attempt.writing.items()},
            self._rules(),
            self._conversation,
            self._turn.id,
        )
        self._check_ownership()
        boundary = await self._deps.store.write(
            commit_step,
            self._lease,
            self._turn.id,
            attempt.number,
            answer.outputs,
            attempt.spent(),
            ending=Failure("server_error", answer.fault)
            if answer.fault is not None
            else ("completed" if answer.ends_turn else None),
            call_timeout_us=self._deps.call_timeout_us,
        )
        for output in answer.outputs:
            if isinstance(output, Call):
                outcome = "announced" if output.refusal is None else "refused"
                self._deps.metrics.loop.tool_calls.labels(outcome).inc()
        return boundary

    async def _fail(self, attempt: Attempt, failure: Failure, *, model_calls: int = 1) -> Boundary:
        return await self._abandon(attempt, failure, model_calls=model_calls)

    async def _abandon(self, attempt: Attempt, failure: Failure | None, *, model_calls: int = 1) -> Boundary:
        self._check_ownership()
        return await self._deps.store.write(
            abandon_step,
            self._lease,
            self._turn.id,
            attempt.partial(),
            attempt.spent(model_calls=model_calls),
            failure=failure,
            call_timeout_us=self._deps.call_timeout_us,
        )

    def _rules(self) -> Rules:
        limits = self._deps.settings.limits
        text_format = self._boundary.turn_config.settings.text.format
        return Rules(
            show_reasoning=self._boundary.turn_config.settings.reasoning.summary is not None,
            functions=functions_of(self._boundary.config.settings.tools),
            output_schema=text_format.schema_ if text_format.type == "json_schema" else None,
            validate_arguments=limits.validate_arguments,
            repaired_calls=limits.repaired_calls,
            output_repairs=limits.output_repairs,
        )


def functions_of(tools: Sequence[Any]) -> dict[str, FunctionTool]:
    """The function tools of a configuration, by name."""
    return {tool.name: tool for tool in tools if isinstance(tool, FunctionTool)}
