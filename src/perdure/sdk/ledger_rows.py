"""The rows of ledgers and their versions. Each function is one step, in the caller's transaction."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Unpack

from sqlalchemy import Connection, Row, delete, insert, select, update

from perdure.sdk.calls import CallPair
from perdure.sdk.journal_database import now_us
from perdure.sdk.journal_errors import LedgerError
from perdure.sdk.journal_json import Json, decode, encode
from perdure.sdk.journal_tables import ledger_versions, ledgers
from perdure.sdk.ledger import BOOKKEEPING, Bookkeeping, LedgerRecord
from perdure.sdk.ledger_edit import LedgerEdit, merged
from perdure.sdk.pinned import check_values

Kind = Literal["application", "call", "sdk"]


@dataclass(frozen=True, slots=True)
class Author:
    """Who changes a ledger: the application, a call's function, or the SDK's bookkeeping for a call."""

    kind: Kind
    turn_id: str | None = None
    call_id: str | None = None

    @classmethod
    def of_call(cls, pair: CallPair, kind: Kind = "call") -> Author:
        return cls(kind, pair.turn_id, pair.call_id)


APPLICATION = Author("application")


def create(
    connection: Connection, key: str, value: Mapping[str, Json], pinned: Sequence[str], form: str
) -> LedgerRecord:
    """Write version 1 of a ledger whose session is not known yet. Raises LedgerInvalid for a long pin."""
    check_values(pinned, value)
    record = LedgerRecord(key, None, 1, dict(value), pinned=tuple(pinned), form=form)
    at = now_us()
    connection.execute(
        insert(ledgers).values(
            key=key, version=1, value=encode(record.value, "the ledger"),
            pinned=encode(list(pinned), "pinned"), form=form, created_us=at, updated_us=at,
        )
    )  # fmt: skip
    _write_version(connection, record, sorted(value), APPLICATION, at)
    return record


def new_key() -> str:
    """A key for a ledger."""
    return f"ledger_{uuid.uuid4().hex}"


def by_key(connection: Connection, key: str, *, lock: bool = False) -> LedgerRecord | None:
    """The newest version of a ledger; with `lock`, nobody else changes it before the transaction ends."""
    return _one(connection, ledgers.c.key == key, lock)


def by_session(connection: Connection, session_id: str, *, lock: bool = False) -> LedgerRecord | None:
    """The newest version of a session's ledger."""
    return _one(connection, ledgers.c.session_id == session_id, lock)


def bind(connection: Connection, key: str, session_id: str) -> LedgerRecord:
    """Say which session a ledger belongs to. Saying it again changes nothing.

    Raises:
        LedgerError: there is no such ledger, it has another session, or the session another ledger.
    """
    record = by_key(connection, key, lock=True)
    if record is None:
        raise LedgerError(f"The journal has no ledger {key}.")
    if record.session_id == session_id:
        return record
    if record.session_id is not None:
        raise LedgerError(f"Ledger {key} belongs to session {record.session_id}, not to {session_id}.")
    other = by_session(connection, session_id)
    if other is not None:
        raise LedgerError(f"Session {session_id} has the ledger {other.key} already.")
    return _save(connection, record, replace(record, session_id=session_id), Author("sdk"))


def note(
    connection: Connection, session_id: str, author: Author, **kept: Unpack[Bookkeeping]
) -> LedgerRecord | None:
    """Write bookkeeping fields; a new version if one of them changes. None without a ledger."""
    record = by_session(connection, session_id, lock=True)
    return None if record is None else _save(connection, record, replace(record, **kept), author)


def apply(
    connection: Connection, edit: LedgerEdit[Any], author: Author, **kept: Unpack[Bookkeeping]
) -> LedgerRecord:
    """Make the changes of an edit to the newest version, and write bookkeeping with them.

    Raises:
        LedgerConflict, LedgerInvalid: the changes cannot be made. The transaction has changed nothing here.
        LedgerError: the ledger is gone.
    """
    record = by_key(connection, edit.key, lock=True)
    if record is None:
        raise LedgerError(f"The journal has no ledger {edit.key} any more.")
    value = merged(edit, record, _changed_since(connection, edit.key, edit.base.version))
    check_values(record.pinned, value)
    return _save(connection, record, replace(record, value=value, **kept), author)


def has_new_pins(connection: Connection, record: LedgerRecord, since: int) -> bool:
    """Whether a pinned field was changed after a version; also true if that is not known any more."""
    rows = connection.execute(
        select(ledger_versions.c.changed).where(
            ledger_versions.c.key == record.key,
            ledger_versions.c.version > since,
            ledger_versions.c.version <= record.version,
        )
    ).all()
    is_whole = len(rows) == record.version - since
    return not is_whole or any(set(decode(row.changed)) & set(record.pinned) for row in rows)


def pending(connection: Connection) -> list[LedgerRecord]:
    """The ledgers whose session is not known, oldest first."""
    rows = connection.execute(
        select(ledgers).where(ledgers.c.session_id.is_(None)).order_by(ledgers.c.created_us)
    )
    return [_record(row) for row in rows]


def newest(connection: Connection) -> list[LedgerRecord]:
    """Every ledger, last changed first."""
    return [_record(row) for row in connection.execute(select(ledgers).order_by(ledgers.c.updated_us.desc()))]


def version(connection: Connection, record: LedgerRecord, number: int) -> LedgerRecord | None:
    """An earlier version of a ledger; None when there is none, or it was cleaned up."""
    if number == record.version:
        return record
    row = connection.execute(
        select(ledger_versions).where(
            ledger_versions.c.key == record.key, ledger_versions.c.version == number
        )
    ).one_or_none()
    if row is None:
        return None
    document = decode(row.document)
    kept = {name: document.pop(name) for name in BOOKKEEPING}
    return replace(record, version=number, value=document, **kept)


def history(connection: Connection, key: str) -> list[dict[str, Json]]:
    """Every version of a ledger that is kept, oldest first: who changed what and when, and the whole."""
    rows = connection.execute(
        select(ledger_versions).where(ledger_versions.c.key == key).order_by(ledger_versions.c.version)
    )
    return [
        {
            "version": row.version,
            "at_us": row.at_us,
            "changed_by": row.changed_by,
            "turn_id": row.turn_id,
            "call_id": row.call_id,
            "changed": decode(row.changed),
            "ledger": decode(row.document),
        }
        for row in rows
    ]


def remove_before(connection: Connection, before_us: int) -> int:
    """Delete ledgers, with all versions, that nobody changed since a time; returns how many."""
    keys = list(connection.execute(select(ledgers.c.key).where(ledgers.c.updated_us < before_us)).scalars())
    for key in keys:
        remove(connection, key)
    return len(keys)


def remove(connection: Connection, key: str) -> None:
    """Delete a ledger with all its versions."""
    connection.execute(delete(ledger_versions).where(ledger_versions.c.key == key))
    connection.execute(delete(ledgers).where(ledgers.c.key == key))


def remove_versions_before(connection: Connection, before_us: int) -> int:
    """Delete versions older than a time, except the newest of each ledger; returns how many."""
    newest = (
        select(ledgers.c.version).where(ledgers.c.key == ledger_versions.c.key).correlate(ledger_versions)
    ).scalar_subquery()
    return connection.execute(
        delete(ledger_versions).where(ledger_versions.c.at_us < before_us, ledger_versions.c.version < newest)
    ).rowcount


def _one(connection: Connection, condition: Any, lock: bool) -> LedgerRecord | None:
    query = select(ledgers).where(condition)
    row = connection.execute(query.with_for_update() if lock else query).one_or_none()
    return None if row is None else _record(row)


def _record(row: Row[Any]) -> LedgerRecord:
    return LedgerRecord(
        row.key, row.session_id, row.version, decode(row.value), row.last_turn_id, row.last_call_id,
        row.awaiting, row.compact_checkpoint, tuple(decode(row.pinned)), row.form,
    )  # fmt: skip


def _save(connection: Connection, old: LedgerRecord, new: LedgerRecord, author: Author) -> LedgerRecord:
    before, after = old.document(), new.document()
    changed = [name for name in (before | after) if _differs(before.get(name), after.get(name))]
    if not changed:
        return old
    new = replace(new, version=old.version + 1)
    at = now_us()
    written = connection.execute(
        update(ledgers)
        .where(ledgers.c.key == old.key, ledgers.c.version == old.version)
        .values(
            version=new.version, value=encode(dict(new.value), "the ledger"), updated_us=at,
            **{name: getattr(new, name) for name in BOOKKEEPING},
        )
    )  # fmt: skip
    # The row is locked, so only a missing lock could let this happen.
    assert written.rowcount == 1, f"ledger {old.key} has left version {old.version}"
    _write_version(connection, new, changed, author, at)
    return new


def _differs(one: Json, other: Json) -> bool:
    # As JSON, because Python takes 1, 1.0 and True for the same.
    return encode(one, "the ledger") != encode(other, "the ledger")


def _write_version(
    connection: Connection, record: LedgerRecord, changed: Sequence[str], author: Author, at: int
) -> None:
    connection.execute(
        insert(ledger_versions).values(
            key=record.key, version=record.version, document=encode(record.document(), "the ledger"),
            changed=encode(list(changed), "changed"), changed_by=author.kind, turn_id=author.turn_id,
            call_id=author.call_id, at_us=at,
        )
    )  # fmt: skip


def _changed_since(connection: Connection, key: str, base: int) -> dict[str, tuple[str, int]]:
    """The fields that were changed after a version, each with who changed it last, and the version."""
    rows = connection.execute(
        select(
            ledger_versions.c.version, ledger_versions.c.changed, ledger_versions.c.changed_by,
            ledger_versions.c.call_id,
        )
        .where(ledger_versions.c.key == key, ledger_versions.c.version > base)
        .order_by(ledger_versions.c.version)
    )  # fmt: skip
    return {
        name: (row.call_id or row.changed_by, row.version) for row in rows for name in decode(row.changed)
    }
