"""Answering the calls of a session: validated, run once, several at a time, each with its one result."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from perdure.schema import (
    Arguments,
    AsynchronousValidator,
    BrokenValidator,
    Failure,
    ValidatorFault,
    jsonable,
)
from perdure.sdk.actions import FunctionCall
from perdure.sdk.calls import CallPair, ToolResult
from perdure.sdk.context import ToolContext
from perdure.sdk.errors import ActionRequired, OutputInvalid, ResultRefused, ToolError
from perdure.sdk.events import Event, ToolFinished, ToolStarted
from perdure.sdk.outputs import failed
from perdure.sdk.requests import RACE_DELAYS, new_key, persistently
from perdure.sdk.threads import call as call_function
from perdure.sdk.tool import Served, parsed

if TYPE_CHECKING:
    from perdure.sdk.journal_async import AsyncJournal
    from perdure.sdk.journal_calls import Fresh
    from perdure.sdk.ledger_edit import LedgerEdit
    from perdure.sdk.session import Session

log = logging.getLogger(__name__)

PENDING_RACE = "Unknown pending tool call: "


class EndsRun(BaseException):
    """Carries an error through the journal, which would otherwise record it as the failure of a call."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


class Answers:
    """The calls of one session that are being answered in this run.

    Args:
        session: whose calls.
        journal: where they are recorded.
        limit: how many run at a time.
        patience: seconds that a result is offered to a server that cannot be reached.
        tell: takes events.
        fail: takes the error that ends the run.
    """

    def __init__(
        self,
        session: Session[Any],
        journal: AsyncJournal,
        *,
        limit: int,
        patience: float,
        tell: Callable[[Event], None],
        fail: Callable[[BaseException], None],
        settled: Callable[[], None],
    ) -> None:
        self._session = session
        self._journal = journal
        self._places = asyncio.Semaphore(limit)
        self._patience = patience
        self._tell = tell
        self._fail = fail
        self._settled = settled
        self._tasks: dict[CallPair, tuple[asyncio.Task[None], bool]] = {}
        self._begun: set[CallPair] = set()
        self._ending: set[CallPair] = set()

    @property
    def are_open(self) -> bool:
        """Whether any call is being answered now."""
        return bool(self._tasks)

    @property
    def has_background(self) -> bool:
        """Whether a call is being answered for which the agent does not wait."""
        return any(is_background for _, is_background in self._tasks.values())

    def answer(self, call: FunctionCall, *, from_subagent: bool = False) -> bool:
        """Begin to answer a call, once; returns False if nothing here can."""
        tool = self._session.agent.served.get(call.name)
        if tool is None and not from_subagent:
            return False
        pair = CallPair(self._session.id, call.turn_id, call.call_id)
        if pair not in self._begun:
            self._begun.add(pair)
            refusal = _not_for_subagents(call.name) if from_subagent or tool is None else None
            task = asyncio.create_task(self._guarded(pair, call, tool, refusal))
            self._tasks[pair] = (task, tool is not None and tool.background)
            task.add_done_callback(lambda _: self._end(pair))
        return True

    def turn_ended(self, turn_id: str) -> None:
        """Nobody waits for the results of a turn any more, except those of background calls.

        What has its result goes on, because whether that was taken belongs in the journal.
        """
        for pair, (task, is_background) in self._tasks.items():
            if pair.turn_id == turn_id and not is_background and pair not in self._ending:
                task.cancel()

    async def finish(self) -> None:
        """Wait for the results that are on their way."""
        ending = [task for pair, (task, _) in self._tasks.items() if pair in self._ending]
        await asyncio.gather(*ending, return_exceptions=True)

    async def close(self) -> None:
        """Stop. What runs counts as begun and not ended, for whoever resumes the session."""
        tasks = [task for task, _ in self._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _end(self, pair: CallPair) -> None:
        self._tasks.pop(pair, None)
        self._ending.discard(pair)
        self._settled()

    async def _guarded(
        self, pair: CallPair, call: FunctionCall, tool: Served | None, refusal: ToolResult | None
    ) -> None:
        try:
            self._tell(ToolStarted(pair, call.name))
            if tool is None or refusal is not None:
                await self._submit_unrecorded(pair, call.name, refusal or failed(f"No tool {call.name}."))
                return
            async with self._places:
                await self._answer(pair, call, tool)
        except EndsRun as carried:
            self._fail(carried.error)
        except Exception as error:  # noqa: BLE001  # handed to the run, which raises it
            self._fail(error)

    async def _answer(self, pair: CallPair, call: FunctionCall, tool: Served) -> None:
        try:
            outcome = parsed(tool.schema, call.arguments)
        except AsynchronousValidator:
            raise  # nothing is known about the value: no fallback, no result
        except BrokenValidator:
            log.exception("The validator of %s broke on call %s", tool.name, pair)
            message = f"The arguments of {tool.name} could not be checked, so it was not run."
            await self._submit_unrecorded(pair, tool.name, failed(message))
            return
        if isinstance(outcome, Failure):
            heading = f"The arguments of {tool.name} do not match its schema:"
            await self._submit_unrecorded(pair, tool.name, failed(outcome.describe(heading)))
            return
        await self._run_once(pair, call, tool, outcome.value)

    async def _run_once(self, pair: CallPair, call: FunctionCall, tool: Served, value: Any) -> None:
        from perdure.sdk.run_once import deliver, run_once

        ledger = await self._session.ledger_edit()
        raised: list[Exception] = []
        finished = await run_once(
            self._journal,
            pair,
            tool.name,
            _recorded(tool, value, call.arguments),
            lambda fresh: self._run(fresh, tool, value, ledger, raised),
            on_unknown=tool.on_unknown,
            idempotent=tool.idempotent,
            ledger=ledger,
        )
        if raised:
            raise raised[0]
        accepted = True
        self._ending.add(pair)
        if ledger is not None:
            await self._session.pins.keep()

        async def send(event: dict[str, Any]) -> None:
            nonlocal accepted
            accepted = await self._submit(pair, event)
            if not accepted:
                raise _NotWanted

        try:
            await deliver(self._journal, finished, send)
        except _NotWanted:
            await self._journal.refused(pair, "the server has another result, or the turn has ended")
        self._tell(ToolFinished(pair, tool.name, finished.result, accepted))

    async def _run(
        self,
        fresh: Fresh,
        tool: Served,
        value: Any,
        ledger: LedgerEdit[Any] | None,
        raised: list[Exception],
    ) -> ToolResult:
        try:
            return await self._outcome(fresh, tool, value, ledger, raised)
        finally:
            # What has ended is recorded and offered, even if the turn has ended meanwhile.
            self._ending.add(fresh.pair)

    async def _outcome(
        self,
        fresh: Fresh,
        tool: Served,
        value: Any,
        ledger: LedgerEdit[Any] | None,
        raised: list[Exception],
    ) -> ToolResult:
        context = ToolContext(
            fresh.pair, tool.name, self._session.agent.name, fresh.attempts > 1, ledger, self._session
        )
        limit = asyncio.timeout(tool.timeout)
        try:
            async with limit:
                returned = await tool.invoke(value, context)
            return tool.result(returned)
        except (ToolError, OutputInvalid) as error:
            return failed(str(error))
        except (ValidatorFault, ActionRequired) as error:
            # Not a failure of the function: nothing is known, or a person has to decide.
            raise EndsRun(error) from error
        except Exception as error:
            if isinstance(error, TimeoutError) and limit.expired():
                return failed(
                    f"{tool.name} did not finish within {tool.timeout:g} s. It may still be running, and its "
                    "outcome is unknown."
                )
            log.warning("%s failed on call %s", tool.name, fresh.pair, exc_info=error)
            match tool.on_failure:
                case "report":
                    return failed(f"{tool.name} failed: {type(error).__name__}.")
                case "raise":
                    raised.append(error)
                    return failed(f"{tool.name} failed: {type(error).__name__}.")
                case hook:
                    raised_error = error
                    return failed(str(await call_function(lambda: hook(context, raised_error), hook)))

    async def _submit_unrecorded(self, pair: CallPair, name: str, result: ToolResult) -> None:
        """Submit what would come out the same again, so that there is nothing to record."""
        self._ending.add(pair)
        accepted = await self._submit(pair, result.event(pair.turn_id, pair.call_id))
        self._tell(ToolFinished(pair, name, result, accepted))

    async def _submit(self, pair: CallPair, event: dict[str, Any]) -> bool:
        """Offer a result until it is taken; False when the server has no more use for it."""
        from openai import BadRequestError, ConflictError

        key, races = new_key(), iter(RACE_DELAYS)
        while True:
            try:
                await persistently(lambda: self._session.post([event], key), self._patience)
                return True
            except ConflictError as error:
                log.info("The result of call %s is not wanted: %s", pair, error)
                return False
            except BadRequestError as error:
                pause = next(races, None) if f"{PENDING_RACE}{pair.call_id}" in str(error) else None
                if pause is None:
                    raise ResultRefused(
                        f"The server refused the result of call {pair}: {error}", pair.session_id
                    ) from error
                await asyncio.sleep(pause)


class _NotWanted(Exception):
    pass


def _recorded(tool: Served, value: Any, given: object) -> Any:
    """The validated arguments as JSON; as they were given where a type has no way back to JSON."""
    try:
        if isinstance(value, Arguments):
            return jsonable({**value.named, **{str(i): each for i, each in enumerate(value.positional)}})
        return jsonable(tool.schema.dump(value))
    except (TypeError, ValueError, RecursionError):
        return given


def _not_for_subagents(name: str) -> ToolResult:
    return failed(
        f"{name} belongs to the main agent, and a subagent cannot call it. Report to the main agent what is "
        "needed, so that it can call the function."
    )
