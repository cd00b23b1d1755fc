"""The ledgers of a journal: made before the session, bound to it, read, changed, and looked back on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Unpack

from sqlalchemy import Connection

from perdure.sdk import ledger_rows
from perdure.sdk.crash_points import reach
from perdure.sdk.journal_errors import LedgerError
from perdure.sdk.journal_json import Json
from perdure.sdk.ledger import BOOKKEEPING, LEDGER_METADATA, Bookkeeping, LedgerForm, LedgerRecord
from perdure.sdk.ledger_edit import Change, LedgerEdit
from perdure.sdk.ledger_rows import APPLICATION, Author

if TYPE_CHECKING:
    from perdure.sdk.journal_database import JournalDatabase

ANY_OBJECT = {"type": "object", "properties": {}, "additionalProperties": True}
"""What a ledger is typed by when nobody says more: any JSON object."""


class Ledgers:
    """`journal.ledgers`. Every method is one durable transaction; safe for threads and processes."""

    def __init__(self, database: JournalDatabase) -> None:
        self._database = database

    def create(self, value: Any, form: Any = None, *, pinned: Iterable[str] = ()) -> LedgerRecord:
        """Record a new ledger, before the request that creates its session leaves.

        Put `record.key` into the session's metadata under `LEDGER_METADATA`, and `bind` it when the session
        is known. A crash in between leaves it `pending`, and the metadata tells which session it is of.

        Args:
            value: the first value, of any schema form; a dict needs `form`.
            form: what it is typed by, if not by its own type; may be a `LedgerForm`.
            pinned: more fields whose values are pinned facts of the session.

        Raises:
            LedgerError, LedgerInvalid, FormRefused, SchemaRefused: the value or its form will not do.
        """
        typed = form if isinstance(form, LedgerForm) else LedgerForm.of(value, form, pinned)
        plain = typed.plain(value)
        key = ledger_rows.new_key()
        record = self._database.write(
            lambda connection: ledger_rows.create(connection, key, plain, typed.pinned, typed.name)
        )
        reach("ledger:after-create")
        return record

    def bind(self, key: str, session_id: str) -> LedgerRecord:
        """Say which session a ledger belongs to; saying it twice changes nothing.

        Raises:
            LedgerError: there is no such ledger, it has another session, or the session another ledger.
        """
        reach("ledger:before-bind")
        record = self._database.write(lambda connection: ledger_rows.bind(connection, key, session_id))
        reach("ledger:after-bind")
        return record

    def adopt(self, session_id: str, metadata: Mapping[str, str] | None) -> LedgerRecord | None:
        """The ledger of a session that was read, bound now if a crash kept it from being bound.

        Returns None for a session without ledger, and for one whose ledger is in another journal.

        Raises:
            LedgerError: the metadata names a ledger of another session.
        """
        key = (metadata or {}).get(LEDGER_METADATA)

        def run(connection: Connection) -> LedgerRecord | None:
            if key is None or ledger_rows.by_key(connection, key) is None:
                return ledger_rows.by_session(connection, session_id)
            return ledger_rows.bind(connection, key, session_id)

        reach("ledger:before-bind")
        record = self._database.write(run)
        reach("ledger:after-bind")
        return record

    def pending(self) -> list[LedgerRecord]:
        """The ledgers whose session is not known, oldest first: being created, or left by a crash."""
        return self._database.read(ledger_rows.pending)

    def records(self) -> list[LedgerRecord]:
        """Every ledger at its newest version, last changed first: what an application has going on."""
        return self._database.read(ledger_rows.newest)

    def discard(self, key: str) -> None:
        """Forget a pending ledger, because its session was certainly not created.

        Raises:
            LedgerError: it belongs to a session.
        """

        def run(connection: Connection) -> None:
            record = ledger_rows.by_key(connection, key, lock=True)
            if record is not None and record.session_id is not None:
                raise LedgerError(f"Ledger {key} belongs to session {record.session_id}.")
            ledger_rows.remove(connection, key)

        self._database.write(run)

    def read(self, session_id: str, version: int | None = None) -> LedgerRecord | None:
        """A session's ledger, as it is or as it was in a version; None when there is none."""

        def run(connection: Connection) -> LedgerRecord | None:
            record = ledger_rows.by_session(connection, session_id)
            if record is None or version is None:
                return record
            return ledger_rows.version(connection, record, version)

        return self._database.read(run)

    def history(self, session_id: str) -> list[dict[str, Json]]:
        """Every version of a session's ledger, oldest first, as plain data.

        Each has `version`, `at_us`, `changed_by` (`application`, `call` for a tool's own change, `sdk` for
        bookkeeping), the `turn_id` and `call_id` it was made for, the names that `changed`, and the whole
        `ledger`.
        """

        def run(connection: Connection) -> list[dict[str, Json]]:
            record = ledger_rows.by_session(connection, session_id)
            return [] if record is None else ledger_rows.history(connection, record.key)

        return self._database.read(run)

    def edit(self, session_id: str, form: Any = None) -> LedgerEdit[Any] | None:
        """What a tool gets as `context.ledger`: the newest value, and changes that wait for its result.

        `form` may be a `LedgerForm`. Returns None for a session without ledger.
        """
        record = self.read(session_id)
        return None if record is None else LedgerEdit(record, _form(form))

    def update(
        self,
        session_id: str,
        change: Change | None = None,
        /,
        *,
        form: Any = None,
        expected: int | None = None,
        **fields: Any,
    ) -> LedgerRecord:
        """Change a ledger outside of any tool; the version says that the application did.

        No request is made, so the session's pinned facts follow at its next run, resume or `reconcile`.
        `Session.update_ledger` changes both.

        Args:
            session_id: whose ledger.
            change: a function of the value; it is applied to the newest one.
            form: what the ledger is typed by.
            expected: the version the change is based on; without it, the newest.
            fields: fields to set, in place of a function.

        Raises:
            LedgerConflict: the fields were changed after `expected`.
            LedgerInvalid: the new value does not fit.
            LedgerError: the session has no ledger, or not that version.
        """
        typed = _form(form)

        def run(connection: Connection) -> LedgerRecord:
            newest = ledger_rows.by_session(connection, session_id, lock=True)
            if newest is None:
                raise LedgerError(f"Session {session_id} has no ledger in this journal.")
            base = newest if expected is None else ledger_rows.version(connection, newest, expected)
            if base is None:
                raise LedgerError(f"The ledger of session {session_id} has no version {expected}.")
            edit = LedgerEdit(base, typed)
            edit.update(change, **fields)
            return ledger_rows.apply(connection, edit, APPLICATION)

        return self._database.write(run)

    def has_new_pins(self, record: LedgerRecord, since: int) -> bool:
        """Whether a pinned field was changed after the version `since`, up to that of the record."""
        return self._database.read(lambda connection: ledger_rows.has_new_pins(connection, record, since))

    def note(self, session_id: str, **kept: Unpack[Bookkeeping]) -> LedgerRecord | None:
        """Write bookkeeping: `last_turn_id`, `last_call_id`, `awaiting`, `compact_checkpoint`.

        `compact_checkpoint` says up to where the model's context was compacted, as `after_<turn id>`.
        """
        if strange := [name for name in kept if name not in BOOKKEEPING[1:]]:
            raise LedgerError(
                f"{strange[0]} is no bookkeeping field; these are {', '.join(BOOKKEEPING[1:])}."
            )
        return self._database.write(
            lambda connection: ledger_rows.note(connection, session_id, Author("sdk"), **kept)
        )


def _form(form: Any) -> LedgerForm[Any]:
    if isinstance(form, LedgerForm):
        return form
    return LedgerForm(ANY_OBJECT if form is None else form)
