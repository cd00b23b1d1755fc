"""The tool journal: a call of a function runs once, whatever crashes.

Before a function runs, its call is recorded durably under the pair that pins it; after it, its result. Who
meets the call again, in whatever process, learns from `begin` which of four it is:

| `begin` returns | The call | What to do |
|---|---|---|
| `Fresh` | was never started | run the function, then `finish` |
| `Finished` | has a result | submit that result, with the same pair |
| `Running` | is being run by a living process | wait |
| `Unknown` | was started, has no result, and nobody runs it any more | decide by policy; `claim` it first |

`run_once` in `perdure.sdk.run_once` does all of that. How a dead process is told from a living one is said
in `perdure.sdk.journal_owners`.
"""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self

from sqlalchemy import Connection

from perdure.sdk import journal_calls, ledger_rows
from perdure.sdk.calls import CallPair, ToolResult
from perdure.sdk.crash_points import reach
from perdure.sdk.journal_calls import Begun, Finished, Fresh, Running, Unknown
from perdure.sdk.journal_database import JournalDatabase, default_location, now_us
from perdure.sdk.journal_errors import JournalError, LedgerError, NotJson
from perdure.sdk.journal_json import Json, encode
from perdure.sdk.journal_owners import Owner, owner_for
from perdure.sdk.ledger import Bookkeeping
from perdure.sdk.ledger_edit import LedgerEdit
from perdure.sdk.ledger_rows import Author
from perdure.sdk.ledgers import Ledgers

if TYPE_CHECKING:
    from perdure.sdk.journal_async import AsyncJournal

__all__ = [
    "AWAITING_RESULT",
    "Begun",
    "Cleaned",
    "Finished",
    "Fresh",
    "Journal",
    "Redact",
    "Running",
    "Unknown",
]

log = logging.getLogger(__name__)

AWAITING_RESULT = "tool_result"
"""What a ledger's `awaiting` says while a call of its session has no accepted result."""

Redact = Callable[[Literal["arguments", "result"], str, Json], Json]
"""Masks secrets: takes what it is, the tool's name and the value, and returns what may be kept.

Arguments are masked before they are recorded. Results must be kept as they are until they are submitted, so
they are masked by `turn_ended`.
"""


@dataclass(frozen=True, slots=True)
class Cleaned:
    """How much a clean-up removed."""

    calls: int
    ledgers: int
    versions: int


class Journal:
    """An open journal. Safe for threads; other processes may have the same one open. Close it at the end.

    Methods block; `aio` has the same as coroutines. Each raises `JournalUnavailable` while the database does
    not answer. In a forked child the journal goes on as another owner.
    """

    def __init__(self, database: JournalDatabase, owner: Owner, redact: Redact | None = None) -> None:
        self._database = database
        self._owner = owner
        self._redact = redact
        self.ledgers = Ledgers(database)
        _open_journals.add(self)

    @classmethod
    def open(cls, location: str | Path | None = None, *, redact: Redact | None = None) -> Journal:
        """Open a journal, and make or upgrade it if needed.

        Args:
            location: a file, or a database URL. Default: `PERDURE_JOURNAL`, else
                `$XDG_DATA_HOME/perdure/journal.db`.
            redact: masks secrets, see `Redact`.

        Raises:
            JournalError: the location is none that can hold a journal, or a newer release wrote it.
            JournalUnavailable: the database cannot be opened.
        """
        database = JournalDatabase.open(default_location(os.environ) if location is None else location)
        return cls(database, owner_for(database), redact)

    @classmethod
    def open_read_only(cls, location: str | Path | None = None) -> Journal:
        """Open an existing journal to look at it; nothing is made or upgraded.

        Raises:
            JournalError: there is no journal, or it is of a newer release.
        """
        database = JournalDatabase.open(
            default_location(os.environ) if location is None else location, read_only=True
        )
        return cls(database, owner_for(database))

    @property
    def where(self) -> str:
        """The file or the database, without a password."""
        return self._database.where

    @cached_property
    def aio(self) -> AsyncJournal:
        """The same methods as coroutines, which run in threads of the journal's own."""
        from perdure.sdk.journal_async import AsyncJournal

        return AsyncJournal(self)

    # ---- the life of a call

    def begin(self, pair: CallPair, tool: str, arguments: Json) -> Begun:
        """Record that a call is about to run, or tell what became of it.

        Only after `Fresh` may the function run; by then it is durable that it was started.

        Args:
            pair: the session, turn and call, as the required action names them.
            tool: the function's name.
            arguments: the validated arguments.

        Raises:
            NotJson: the arguments have no JSON form.
        """
        kept = arguments if self._redact is None else self._redact("arguments", tool, arguments)
        text = encode(kept, "the arguments")
        attempt_id = journal_calls.new_attempt()
        reach("journal:before-begin")
        owner = self._owner.take()

        def run(connection: Connection) -> Begun:
            begun = journal_calls.begin(
                connection, pair, tool, text,
                owner=owner, attempt_id=attempt_id, is_alive=self._owner.is_alive,
            )  # fmt: skip
            if isinstance(begun, Fresh):
                self._note_started(connection, pair)
            return begun

        begun = self._database.write(run)
        reach("journal:after-begin")
        return begun

    def look(self, pair: CallPair) -> Begun | None:
        """What is known of a call, without starting it; None when it was never begun."""
        return self._database.read(
            lambda connection: journal_calls.look(connection, pair, self._owner.id, self._owner.is_alive)
        )

    def claim(self, unknown: Unknown) -> Begun:
        """Take an unknown call over, so that only this process decides about it.

        Returns `Fresh` with the number of the try; or what the call has become, if another was faster.
        """
        attempt_id = journal_calls.new_attempt()
        owner = self._owner.take()

        def run(connection: Connection) -> Begun:
            begun = journal_calls.claim(
                connection, unknown, owner=owner, attempt_id=attempt_id, is_alive=self._owner.is_alive
            )
            if isinstance(begun, Fresh):
                self._note_started(connection, unknown.pair)
            return begun

        return self._database.write(run)

    def finish(self, fresh: Fresh, result: ToolResult, ledger: LedgerEdit[object] | None = None) -> Finished:
        """Record a result together with the ledger changes of the call, in one transaction.

        What is returned answers the call. It is not the given result when another process ended the call
        meanwhile, which can only be if this one seemed gone; or when the ledger changes could not be made:
        then the call fails with a reason that says so. What the function brought is kept as late in both.

        Raises:
            NotJson: the result has no JSON form; nothing was recorded.
            JournalError: another try of the call is running, and its end will count.
        """
        reach("journal:before-finish")

        def run(connection: Connection) -> Finished | None:
            finished, is_recorded = journal_calls.end(connection, fresh, result)
            if (
                finished is not None
                and is_recorded
                and result.success
                and ledger is not None
                and ledger.steps
            ):
                finished = self._apply(connection, fresh, result, ledger) or finished
            reach("journal:finish-before-commit")
            return finished

        finished = self._database.write(run)
        reach("journal:after-finish")
        if finished is None:
            raise JournalError(
                f"Call {fresh.pair} was taken over by another process while this one ran. The result of this "
                "one is kept as late and must not be sent."
            )
        return finished

    def submitted(self, pair: CallPair) -> None:
        """Record that the server has accepted the call's result."""

        def run(connection: Connection) -> None:
            if journal_calls.mark_submitted(connection, pair):
                self._note_settled(connection, pair)

        self._database.write(run)
        reach("journal:after-submitted")

    def refused(self, pair: CallPair, reason: str) -> None:
        """Record that the server does not want the result any more: the turn ended, or another came first."""

        def run(connection: Connection) -> None:
            journal_calls.mark_refused(connection, pair, reason)
            self._note_settled(connection, pair)

        self._database.write(run)

    def abandon(self, fresh: Fresh) -> None:
        """This process stops running the call without knowing its end: from now on it is `Unknown`."""
        self._database.write(lambda connection: journal_calls.give_up(connection, fresh))

    def withdraw(self, fresh: Fresh) -> None:
        """The function was certainly not started: the call is as if it had never begun."""
        self._database.write(lambda connection: journal_calls.withdraw(connection, fresh))

    def turn_ended(self, session_id: str, turn_id: str, *, answered: Collection[str] = ()) -> None:
        """Nothing of a turn will be submitted any more: settle its calls, and mask their results.

        A process may die after the server took a result and before that was recorded; `answered`, the call
        ids that have a result in the turn's items, tells those from results that were never taken. Results
        are masked if there is a hook for that.
        """
        redact = self._redact
        reason = "the turn ended, and it is not known that the server took the result"

        def run(connection: Connection) -> None:
            journal_calls.close_turn(connection, session_id, turn_id, answered, reason)
            if redact is not None:
                journal_calls.mask_results(
                    connection, session_id, turn_id, lambda tool, value: redact("result", tool, value)
                )
            self._note_ended(connection, session_id, turn_id)

        self._database.write(run)

    # ---- looking back, and cleaning up

    def calls(self, session_id: str) -> list[dict[str, Json]]:
        """The calls of a session in the order they began, as plain data.

        Each has `turn_id`, `call_id`, `name`, `arguments`, `state` (`running`, `unknown` or `finished`),
        `attempts` and `started_us`. A finished one has `success`, `output`, `error`, `finished_us` and
        `submitted_us` (None until the server took it), and `refused`, `late` and `redacted` where that
        happened. One without an end has `owner`: who runs or ran it.
        """
        return self._database.read(
            lambda connection: journal_calls.list_calls(
                connection, session_id, self._owner.id, self._owner.is_alive
            )
        )

    def cleanup(self, older_than: timedelta, *, unsubmitted: bool = False, ledgers: bool = False) -> Cleaned:
        """Delete what is older: calls whose result was taken or refused, and old versions of ledgers.

        Args:
            older_than: age, by the end of a call or the last change of a ledger.
            unsubmitted: also calls with a result that no server took. Calls without an end stay always.
            ledgers: also whole ledgers that nobody changed for so long.
        """
        before = now_us() - int(older_than.total_seconds() * 1e6)

        def run(connection: Connection) -> Cleaned:
            return Cleaned(
                calls=journal_calls.remove_before(connection, before, all_ended=unsubmitted),
                ledgers=ledger_rows.remove_before(connection, before) if ledgers else 0,
                versions=ledger_rows.remove_versions_before(connection, before),
            )

        cleaned = self._database.write(run)
        self._owner.clean()
        return cleaned

    def close(self) -> None:
        """Close the journal. Calls that still run here count as unknown from now on."""
        if (aio := self.__dict__.pop("aio", None)) is not None:
            aio.shutdown()
        self._owner.release()
        self._database.close()
        _open_journals.discard(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # ---- inside of transactions

    def _apply(
        self, connection: Connection, fresh: Fresh, result: ToolResult, edit: LedgerEdit[object]
    ) -> Finished | None:
        try:
            ledger_rows.apply(connection, edit, Author.of_call(fresh.pair))
        except (LedgerError, NotJson) as error:
            log.warning("The ledger change of call %s could not be made: %s", fresh.pair, error)
            failure = ToolResult(False, error=f"[ledger_not_changed] {fresh.tool} has run, but: {error}")
            return journal_calls.replace_result(connection, fresh.pair, failure, result)
        return None

    def _note_started(self, connection: Connection, pair: CallPair) -> None:
        kept: Bookkeeping = {"last_turn_id": pair.turn_id, "last_call_id": pair.call_id}
        kept["awaiting"] = AWAITING_RESULT
        ledger_rows.note(connection, pair.session_id, Author.of_call(pair, "sdk"), **kept)

    def _note_settled(self, connection: Connection, pair: CallPair) -> None:
        still_open = journal_calls.newest_open(connection, pair.session_id)
        kept: Bookkeeping = {"awaiting": None}
        if still_open is not None:
            kept = {"last_turn_id": still_open.turn_id, "last_call_id": still_open.call_id}
        ledger_rows.note(connection, pair.session_id, Author.of_call(pair, "sdk"), **kept)

    def _note_ended(self, connection: Connection, session_id: str, turn_id: str) -> None:
        kept: Bookkeeping = {"last_turn_id": turn_id}
        if not journal_calls.is_awaited(
            connection, session_id, turn_id, self._owner.id, self._owner.is_alive
        ):
            kept["awaiting"] = None
        ledger_rows.note(connection, session_id, Author("sdk", turn_id), **kept)

    def _forget_after_fork(self) -> None:
        self.__dict__.pop("aio", None)
        self._database.forget_after_fork()
        self._owner.forget_after_fork()


_open_journals: weakref.WeakSet[Journal] = weakref.WeakSet()


def _after_fork() -> None:
    for journal in list(_open_journals):
        journal._forget_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
