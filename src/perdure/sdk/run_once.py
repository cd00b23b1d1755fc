"""One call from its beginning to its accepted result: run once, recorded, submitted under the same pair."""

from __future__ import annotations

import asyncio
import inspect
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, assert_never

from perdure.sdk.calls import CallPair, ToolResult
from perdure.sdk.crash_points import reach
from perdure.sdk.errors import DefinitionRefused
from perdure.sdk.journal import Finished, Fresh, Running, Unknown
from perdure.sdk.journal_async import AsyncJournal
from perdure.sdk.journal_errors import JournalError, NotJson
from perdure.sdk.journal_json import Json
from perdure.sdk.ledger_edit import LedgerEdit

log = logging.getLogger(__name__)

OUTCOME_UNKNOWN = "outcome_unknown"
"""The label in front of the error of a call that may have had its effect, and was not run again."""

FIRST_PAUSE = 0.05
LONGEST_PAUSE = 1.0


@dataclass(frozen=True, slots=True)
class Retry:
    """What an `on_unknown` function returns when it has found out that running the call again is right."""


Decision = ToolResult | Retry
OnUnknown = Literal["fail", "retry"] | Callable[[Unknown], Decision | Awaitable[Decision]]
"""What becomes of a call that was started, has no result, and whose process is gone.

`fail` answers that the outcome is unknown. `retry` runs the function again, and is only for idempotent tools.
A function is given the call and finds out: it returns the result, or `Retry()`. Only one process asks it at a
time; it may be asked again if that one dies, so it should only look.
"""

Run = Callable[[Fresh], Awaitable[ToolResult]]
"""Runs the function. `attempts` of what it is given is above 1 if an earlier try may have had its effect."""


def check_policy(on_unknown: OnUnknown, idempotent: bool, tool: str = "A tool") -> None:
    """Refuse a policy that could run a function twice without its author's word.

    Raises:
        DefinitionRefused: `retry` for a tool that is not idempotent, or no policy at all.
    """
    if on_unknown == "retry" and not idempotent:
        raise DefinitionRefused(
            f'{tool} has on_unknown="retry", which may run it twice: say idempotent=True if that is '
            "harmless, or give a function that finds out whether the first run had its effect."
        )
    if on_unknown not in ("fail", "retry") and not callable(on_unknown):
        raise DefinitionRefused(f'{tool}: on_unknown is "fail", "retry" or a function, not {on_unknown!r}.')


async def run_once(
    journal: AsyncJournal,
    pair: CallPair,
    tool: str,
    arguments: Json,
    run: Run,
    *,
    on_unknown: OnUnknown = "fail",
    idempotent: bool = False,
    ledger: LedgerEdit[Any] | None = None,
) -> Finished:
    """The result of a call, whichever process runs it; the function runs here only if nobody else did.

    Args:
        journal: where calls are recorded.
        pair: the session, turn and call.
        tool: the function's name.
        arguments: the validated arguments.
        run: runs the function and says how it ended. If it raises, the call fails without the exception's
            text. If it is cancelled, the outcome is unknown.
        on_unknown: see `OnUnknown`.
        idempotent: whether running the function twice is as good as once.
        ledger: changes that the function, or `on_unknown`, makes; recorded with a successful result.

    Raises:
        JournalError: the journal cannot be used. The function has not run, or its outcome is unknown.
    """
    check_policy(on_unknown, idempotent, tool)
    begun = await journal.begin(pair, tool, arguments)
    pause = FIRST_PAUSE
    while True:
        match begun:
            case Finished():
                return begun
            case Fresh():
                return await _run(journal, begun, run, ledger)
            case Unknown():
                begun = await _decide(journal, begun, on_unknown, ledger)
            case Running():
                # Jitter, so that those who wait for one call do not ask in step.
                await asyncio.sleep(pause * random.uniform(0.8, 1.2))
                pause = min(LONGEST_PAUSE, pause * 2)
                begun = await journal.begin(pair, tool, arguments)
            case _:
                assert_never(begun)


async def deliver(
    journal: AsyncJournal, finished: Finished, send: Callable[[dict[str, Any]], Awaitable[object]]
) -> None:
    """Submit a result and record that the server took it.

    Args:
        journal: where the call is recorded.
        finished: the call's end.
        send: posts one input event; it returns when the server has accepted it, and raises otherwise.

    Raises:
        JournalError: the result was redacted after its turn, so it cannot be sent again.
    """
    if finished.is_redacted:
        raise JournalError(
            f"The result of call {finished.pair} was redacted when its turn had ended, and the server asks "
            "for it again."
        )
    reach("result:before-submit")
    await send(finished.result.event(finished.pair.turn_id, finished.pair.call_id))
    reach("result:after-submit")
    await journal.submitted(finished.pair)


async def _run(journal: AsyncJournal, fresh: Fresh, run: Run, ledger: LedgerEdit[Any] | None) -> Finished:
    reach("tool:before-run")
    try:
        result = await run(fresh)
    except Exception:
        # The model is not shown what an exception says, which may hold secrets of the application.
        log.exception("The function of call %s (%s) raised", fresh.pair, fresh.tool)
        result = ToolResult(False, error=f"{fresh.tool} failed.")
    except BaseException:
        await journal.abandon(fresh)
        raise
    reach("tool:after-run")
    try:
        return await journal.finish(fresh, result, ledger)
    except NotJson as error:
        log.warning("Call %s: %s", fresh.pair, error)
        failure = ToolResult(False, error=f"{fresh.tool} has run, but its output has no JSON form.")
        return await journal.finish(fresh, failure)


async def _decide(
    journal: AsyncJournal, unknown: Unknown, on_unknown: OnUnknown, ledger: LedgerEdit[Any] | None
) -> Finished | Fresh | Running | Unknown:
    claimed = await journal.claim(unknown)
    if not isinstance(claimed, Fresh) or on_unknown == "retry":
        return claimed
    if on_unknown == "fail":
        return await journal.finish(claimed, unknown_result(unknown))
    try:
        decision: object = on_unknown(unknown)
        if inspect.isawaitable(decision):
            decision = await decision
    except BaseException:
        await journal.abandon(claimed)
        raise
    match decision:
        case Retry():
            return claimed
        case ToolResult():
            return await journal.finish(claimed, decision, ledger)
        case _:
            await journal.abandon(claimed)
            raise JournalError(
                f"on_unknown of {unknown.tool} returned {type(decision).__name__}; it returns a ToolResult "
                "or Retry()."
            )


def unknown_result(unknown: Unknown) -> ToolResult:
    """What the model is told of a call whose outcome nobody knows."""
    started = datetime.fromtimestamp(unknown.started_us / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return ToolResult(
        False,
        error=(
            f"[{OUTCOME_UNKNOWN}] {unknown.tool} was started at {started}, and its process ended before a "
            "result was recorded. It may have had its effect or not, and was not run again."
        ),
    )
