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
import time
from contextlib import aclosing

from perdure.config.faults import reach
from perdure.harness.answer import Rules, functions_of, read_answer
from perdure.harness.attempt import NOTHING_SPENT, Attempt, Writing
from perdure.harness.checks import check_request
from perdure.harness.compaction import Cancelled, Compactor
from perdure.harness.conversation import Conversation
from perdure.harness.deps import Deps
from perdure.harness.limits import before_call, before_tools, refuse_calls
from perdure.harness.metering import Meter, count_retry, metered_call
from perdure.harness.ownership import OwnershipLost
from perdure.harness.reading import read_parts
from perdure.harness.retrying import is_too_large, retry_delay
from perdure.harness.spending import CallRecord, ceilings_at, count_hit, price_of
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
from perdure.models.registry import Resolved, UnknownModel
from perdure.store.boundary import Boundary, Ending, Failure
from perdure.store.rows import TurnRow
from perdure.store.sessions import cancel_requested
from perdure.store.spending import read_spending
from perdure.store.steps import (
    Call,
    abandon_step,
    charge_call,
    checkpoint_item,
    commit_step,
    open_item,
)

log = logging.getLogger(__name__)

CHECKPOINT_SECONDS = 0.5


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
        self._tally = boundary.spent

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
        refused = self._refused(resolved)
        if refused is not None:
            return await self._fail(Attempt(self._turn, self._turn.model_calls), refused, model_calls=0)
        compactor = self._compactor(resolved)
        made = await compactor.make_room()
        waited = 0.0
        tries = 0
        smaller = False
        while True:
            await self._go_on_from(compactor.turn)
            self._unsaved += compactor.unsaved
            compactor.unsaved = NOTHING_SPENT
            if made is not None:
                return await self._give_up(made)
            request = compactor.request
            check_request(request, self._conversation.checked)
            attempt = Attempt(self._turn, self._turn.model_calls, before=self._unsaved)
            refused = self._refused(resolved)
            if refused is not None:
                return await self._fail(attempt, refused, model_calls=0)
            name = self._boundary.turn_config.settings.model
            attempt.call = CallRecord.of(self._deps, resolved, request, name)
            try:
                if not await self._stream(attempt, resolved, request):
                    return await self._abandon(attempt, None)
                compactor.learn(attempt.finished)
                return await self._commit(attempt, compactor.result_bytes)
            except ModelError as error:
                if is_too_large(error) and not smaller and not attempt.writing:
                    smaller = True
                    compactor.turn = await self._charge(attempt, error.code)
                    made = await compactor.make_smaller(error)
                    continue
                tries += 1
                retry = self._deps.settings.retry
                delay = retry_delay(error, tries, retry)
                final = not error.retryable or tries == retry.attempts or waited + delay > retry.give_up_after
                if final:
                    return await self._fail(attempt, Failure(error.code, error.message))
                count_retry(self._deps.metrics.loop, resolved, error)
                log.info("model call failed, retrying in %.1f s: %s", delay, error.message)
                waited += delay
                shown = bool(attempt.writing)
                if shown:
                    # What was seen is closed; the repeated answer comes as new items.
                    boundary = await self._abandon(attempt, None, error.code)
                    if boundary.state != "run" or boundary.turn is None or boundary.turn.id != self._turn.id:
                        return boundary
                    self._conversation.update(boundary.items)
                    self._turn = boundary.turn
                    self._boundary = boundary
                    self._tally = boundary.spent
                    self._unsaved = NOTHING_SPENT
                    compactor = self._compactor(resolved)
                else:
                    compactor.turn = await self._charge(attempt, error.code)
                if await self._cancelled_within(delay):
                    nothing = Attempt(self._turn, self._turn.model_calls, before=self._unsaved)
                    return await self._abandon(nothing, None, model_calls=0)
            except TimeoutError:
                seconds = int(self._deps.settings.work.turn_timeout)
                text = f"The turn was active for longer than {seconds} seconds."
                return await self._fail(attempt, Failure("request_timeout", text))

    def _compactor(self, resolved: Resolved) -> Compactor:
        return Compactor(
            self._deps, self._boundary, self._turn, self._conversation, resolved, self._cancel_accepted
        )

    async def _give_up(self, made: Failure | Cancelled) -> Boundary:
        """End a step for which no request could be made."""
        nothing = Attempt(self._turn, self._turn.model_calls, before=self._unsaved)
        return await self._abandon(nothing, None if isinstance(made, Cancelled) else made, model_calls=0)

    # ---- what is spent

    def _refused(self, resolved: Resolved) -> Failure | None:
        """Why the next call may not be made, if a ceiling refuses it."""
        name = self._boundary.turn_config.settings.model
        price = price_of(self._deps, resolved, name)
        hit = before_call(
            self._turn,
            self._tally,
            ceilings_at(self._deps, self._boundary),
            model=name,
            currency=None if price is None else price.currency,
        )
        if hit is not None:
            return count_hit(self._deps, hit)
        seconds = self._deps.settings.work.turn_timeout
        if self._turn.active_us + self._unsaved.active_us < seconds * 1e6:
            return None
        return Failure("request_timeout", f"The turn was active for longer than {int(seconds)} seconds.")

    async def _charge(self, attempt: Attempt, outcome: str) -> TurnRow:
        """Charge the turn with a call that showed nothing, before it is made again."""
        self._check_ownership()
        spent = attempt.spent(outcome)
        self._turn, self._tally = await self._deps.store.write(charge_call, self._lease, self._turn.id, spent)
        self._unsaved = NOTHING_SPENT
        return self._turn

    async def _go_on_from(self, turn: TurnRow) -> None:
        """Take the turn as a compaction left it, which has spent something."""
        if turn is not self._turn:
            self._turn = turn
            found = await self._deps.store.read(read_spending, turn.session_id, turn.id)
            self._tally = found.tally

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
            assert attempt.call is not None
            attempt.began = time.monotonic()
            attempt.call.begin()
            spent = self._turn.active_us + self._unsaved.active_us
            remaining = self._deps.settings.work.turn_timeout - spent / 1e6
            try:
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
                        call.tell(event)
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

    # ---- the transactions that end a step

    async def _commit(self, attempt: Attempt, result_bytes: int) -> Boundary:
        answer = read_answer(
            attempt.outputs,
            {output: writing.row for output, writing in attempt.writing.items()},
            await self._rules(attempt, result_bytes),
            self._conversation,
            self._turn.id,
        )
        outputs = answer.outputs
        ending: Ending | None = "completed" if answer.ends_turn else None
        if answer.fault is not None:
            ending = Failure("server_error", answer.fault)
        calls = [output for output in outputs if isinstance(output, Call)]
        ceilings = ceilings_at(self._deps, self._boundary)
        hit = before_tools(self._turn, self._tally, ceilings, calls, self._conversation.rows)
        if hit is not None:
            outputs, ending = refuse_calls(outputs, hit), count_hit(self._deps, hit)
        self._check_ownership()
        boundary = await self._deps.store.write(
            commit_step,
            self._lease,
            self._turn.id,
            attempt.number,
            outputs,
            attempt.spent("ok"),
            ending=ending,
            call_timeout_us=self._deps.call_timeout_us,
        )
        for output in outputs:
            if isinstance(output, Call):
                outcome = "announced" if output.is_owed else "refused"
                self._deps.metrics.loop.tool_calls.labels(outcome).inc()
        return boundary

    async def _fail(self, attempt: Attempt, failure: Failure, *, model_calls: int = 1) -> Boundary:
        return await self._abandon(attempt, failure, failure.code, model_calls=model_calls)

    async def _abandon(
        self,
        attempt: Attempt,
        failure: Failure | None,
        outcome: str = "cancelled",
        *,
        model_calls: int = 1,
    ) -> Boundary:
        self._check_ownership()
        return await self._deps.store.write(
            abandon_step,
            self._lease,
            self._turn.id,
            attempt.partial(),
            attempt.spent(outcome, model_calls=model_calls),
            failure=failure,
            call_timeout_us=self._deps.call_timeout_us,
        )

    async def _rules(self, attempt: Attempt, result_bytes: int) -> Rules:
        limits = self._deps.settings.limits
        calls = [output for output in attempt.outputs if isinstance(output, CallDone)]
        text_format = self._boundary.turn_config.settings.text.format
        return Rules(
            show_reasoning=self._boundary.turn_config.settings.reasoning.summary is not None,
            functions=functions_of(self._boundary.config.settings.tools),
            output_schema=text_format.schema_ if text_format.type == "json_schema" else None,
            validate_arguments=limits.validate_arguments,
            repaired_calls=limits.repaired_calls,
            output_repairs=limits.output_repairs,
            answers=await read_parts(
                self._deps.store, self._lease.session_id, self._turn.agent_id, calls, result_bytes
            ),
        )
