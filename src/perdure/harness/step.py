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
from collections.abc import Iterable
from typing import Protocol

from perdure.harness.answer import Rules, functions_of, read_answer
from perdure.harness.attempt import NOTHING_SPENT, Attempt
from perdure.harness.checks import check_request
from perdure.harness.compaction import Cancelled, Compactor
from perdure.harness.conversation import Conversation
from perdure.harness.coordination import offered
from perdure.harness.deps import Deps
from perdure.harness.halt import Halt
from perdure.harness.limits import before_call, before_tools, refuse_calls
from perdure.harness.metering import count_retry
from perdure.harness.ownership import OwnershipLost
from perdure.harness.reading import read_parts
from perdure.harness.retrying import is_too_large, retry_delay
from perdure.harness.spending import CallRecord, ceilings_at, count_hit, price_of
from perdure.harness.stream import AnswerStream
from perdure.models.errors import ModelError
from perdure.models.messages import CallDone
from perdure.models.registry import Resolved, UnknownModel
from perdure.store.boundary import Boundary, Ending, Failure
from perdure.store.coordination import named_to_end
from perdure.store.rows import TurnRow
from perdure.store.spending import read_spending
from perdure.store.steps import Call, Text, TurnOver, abandon_step, charge_call, commit_step

log = logging.getLogger(__name__)


class Others(Protocol):
    """The agents that work beside the one that makes a step."""

    async def hold(self, holder: str, agent_ids: Iterable[str]) -> None:
        """Break off the steps of agents whose turns `holder` is about to end."""
        ...


class Step:
    """The step that a boundary asks for, of its agent. `halt` tells when it has to break off."""

    def __init__(
        self, deps: Deps, boundary: Boundary, conversation: Conversation, halt: Halt, others: Others
    ) -> None:
        assert boundary.turn is not None
        self._deps = deps
        self._boundary = boundary
        self._lease = boundary.lease
        self._turn = boundary.turn
        self._conversation = conversation
        self._halt = halt
        self._others = others
        self._unsaved = NOTHING_SPENT
        self._tally = boundary.spent
        # What nobody has been charged with yet.
        self._attempt = self._nothing()

    async def run(self) -> Boundary:
        """Make the step and pass the boundary behind it.

        Raises:
            Fenced, OwnershipLost, SessionGone: another owner took over, or could have, or the session is
                gone; nothing was written.
        """
        try:
            return await self._make()
        except TurnOver:
            return await self._abandon(self._attempt, None)

    async def _make(self) -> Boundary:
        try:
            resolved = self._deps.registry.resolve(self._boundary.turn_config.settings.model)
        except UnknownModel as error:
            failure = Failure("resource_not_found", str(error))
            return await self._fail(self._attempt, failure)
        refused = self._refused(resolved)
        if refused is not None:
            return await self._fail(self._attempt, refused)
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
            attempt = self._attempt = self._nothing()
            refused = self._refused(resolved)
            if refused is not None:
                return await self._fail(attempt, refused)
            name = self._boundary.turn_config.settings.model
            attempt.call = CallRecord.of(self._deps, resolved, request, name)
            attempt.call.is_compacted = self._conversation.compaction is not None
            try:
                active_us = self._turn.active_us + self._unsaved.active_us
                stream = AnswerStream(self._deps, self._boundary, active_us, self._halt.requested)
                if not await stream.read(attempt, resolved, request):
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
                    if self._halt.is_held:
                        return boundary  # its turn is about to be ended
                    self._conversation.update(boundary.items)
                    self._turn = boundary.turn
                    self._boundary = boundary
                    self._tally = boundary.spent
                    self._unsaved = NOTHING_SPENT
                    self._attempt = self._nothing()
                    compactor = self._compactor(resolved)
                else:
                    compactor.turn = await self._charge(attempt, error.code)
                if await self._cancelled_within(delay):
                    return await self._abandon(self._nothing(), None)
            except TimeoutError:
                seconds = int(self._deps.settings.work.turn_timeout)
                text = f"The turn was active for longer than {seconds} seconds."
                return await self._fail(attempt, Failure("request_timeout", text))

    def _compactor(self, resolved: Resolved) -> Compactor:
        return Compactor(
            self._deps,
            self._boundary,
            self._turn,
            self._conversation,
            resolved,
            self._halt.requested.wait,
        )

    async def _give_up(self, made: Failure | Cancelled) -> Boundary:
        """End a step for which no request could be made."""
        return await self._abandon(self._nothing(), None if isinstance(made, Cancelled) else made)

    def _nothing(self) -> Attempt:
        """An attempt that has not begun, with what was spent before it."""
        return Attempt(self._turn, self._turn.model_calls, before=self._unsaved)

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
        self._turn, self._tally = await self._deps.store.write(
            charge_call, self._lease, self._turn.id, spent, self._boundary.agent_id
        )
        self._unsaved = NOTHING_SPENT
        self._attempt = self._nothing()
        return self._turn

    async def _go_on_from(self, turn: TurnRow) -> None:
        """Take the turn as a compaction left it, which has spent something."""
        if turn is not self._turn:
            self._turn = turn
            found = await self._deps.store.read(read_spending, turn.session_id, turn.id)
            self._tally = found.tally

    # ---- breaking off

    async def _cancelled_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._halt.requested.wait()
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
        calls = [output for output in outputs if not isinstance(output, Text)]
        ceilings = ceilings_at(self._deps, self._boundary)
        hit = before_tools(self._turn, self._tally, ceilings, calls, self._conversation.past)
        if hit is not None:
            outputs, ending = refuse_calls(outputs, hit), count_hit(self._deps, hit)
        if ended := named_to_end(outputs):
            mine = self._boundary.children
            held = [each.id for each in mine if each.id in ended or each.name in ended]
            await self._others.hold(self._turn.agent_id, held)
        self._check_ownership()
        self._halt.requested.clear()
        boundary = await self._deps.store.write(
            commit_step,
            self._lease,
            self._turn.id,
            attempt.number,
            outputs,
            attempt.spent("ok"),
            ending=ending,
            policy=self._deps.policy,
            agent_id=self._boundary.agent_id,
        )
        for output in calls:
            is_made = output.is_owed if isinstance(output, Call) else output.refusal is None
            self._deps.metrics.loop.tool_calls.labels("announced" if is_made else "refused").inc()
        self._deps.tracing.committed(self._turn, attempt.number, boundary)
        return boundary

    async def _fail(self, attempt: Attempt, failure: Failure) -> Boundary:
        return await self._abandon(attempt, failure, failure.code)

    async def _abandon(
        self, attempt: Attempt, failure: Failure | None, outcome: str = "cancelled"
    ) -> Boundary:
        self._check_ownership()
        # What asked for it is in the rows that the boundary reads.
        self._halt.requested.clear()
        return await self._deps.store.write(
            abandon_step,
            self._lease,
            self._turn.id,
            attempt.partial(),
            attempt.spent(outcome),
            failure=failure,
            policy=self._deps.policy,
            agent_id=self._boundary.agent_id,
            goes_on=not self._halt.is_held,
        )

    async def _rules(self, attempt: Attempt, result_bytes: int) -> Rules:
        limits = self._deps.settings.limits
        calls = [output for output in attempt.outputs if isinstance(output, CallDone)]
        text_format = self._boundary.turn_config.settings.text.format
        is_subagent = self._boundary.subagent is not None
        return Rules(
            show_reasoning=self._boundary.turn_config.settings.reasoning.summary is not None,
            functions={} if is_subagent else functions_of(self._boundary.config.settings.tools),
            coordination=frozenset(offered(self._boundary, self._deps.settings.subagents.depth)),
            output_schema=text_format.schema_
            if text_format.type == "json_schema" and not is_subagent
            else None,
            is_subagent=is_subagent,
            validate_arguments=limits.validate_arguments,
            repaired_calls=limits.repaired_calls,
            output_repairs=limits.output_repairs,
            answers=await read_parts(
                self._deps.store, self._lease.session_id, self._turn.agent_id, calls, result_bytes
            ),
        )
