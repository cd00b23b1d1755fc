"""The tables of the tool journal and the ledgers, and the versions of their schema.

Names begin with `perdure_`, since the journal may live in a database of the application. Times are
microseconds since the Unix epoch; columns that hold JSON are text, because the JSON types of databases
refuse U+0000 and reorder members.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    insert,
    inspect,
    select,
    update,
)

from perdure.sdk.journal_errors import JournalError

metadata = MetaData()

schema_version = Table("perdure_journal", metadata, Column("version", Integer, nullable=False))

calls = Table(
    "perdure_calls",
    metadata,
    Column("session_id", Text, nullable=False),
    Column("turn_id", Text, nullable=False),
    Column("call_id", Text, nullable=False),
    Column("tool", Text, nullable=False),
    Column("arguments", Text, nullable=False),
    # Names one try of one process; only the holder of this name may write its end.
    Column("attempt_id", Text, nullable=False),
    Column("attempts", Integer, nullable=False),
    # Which open journal runs it; NULL when that one gave it up without an end.
    Column("owner", Text),
    Column("started_us", BigInteger, nullable=False),
    Column("finished_us", BigInteger),
    Column("success", Boolean),
    Column("output", Text),
    Column("error", Text),
    Column("submitted_us", BigInteger),
    # Why the server did not take the result, when it was offered in vain.
    Column("refused", Text),
    # What a function brought after its call had been ended by somebody else, or what could not be applied.
    Column("late", Text),
    # The result was redacted after its turn had ended, and can no longer be submitted.
    Column("redacted", Boolean, nullable=False),
    PrimaryKeyConstraint("session_id", "turn_id", "call_id"),
)
Index("perdure_calls_finished", calls.c.finished_us)

owners = Table(
    "perdure_owners",
    metadata,
    Column("id", Text, primary_key=True),
    Column("seen_us", BigInteger, nullable=False),
)

ledgers = Table(
    "perdure_ledgers",
    metadata,
    Column("key", Text, primary_key=True),
    # NULL until the session is known: the row is written before the session is created.
    Column("session_id", Text, unique=True),
    Column("version", Integer, nullable=False),
    Column("value", Text, nullable=False),
    Column("last_turn_id", Text),
    Column("last_call_id", Text),
    Column("awaiting", Text),
    Column("compact_checkpoint", Text),
    Column("pinned", Text, nullable=False),
    Column("form", Text, nullable=False),
    Column("created_us", BigInteger, nullable=False),
    Column("updated_us", BigInteger, nullable=False),
)

ledger_versions = Table(
    "perdure_ledger_versions",
    metadata,
    Column("key", Text, nullable=False),
    Column("version", Integer, nullable=False),
    Column("document", Text, nullable=False),
    Column("changed", Text, nullable=False),
    Column("changed_by", Text, nullable=False),
    Column("turn_id", Text),
    Column("call_id", Text),
    Column("at_us", BigInteger, nullable=False),
    PrimaryKeyConstraint("key", "version"),
)


def _first(connection: Connection) -> None:
    metadata.create_all(connection, checkfirst=False)


UPGRADES: tuple[Callable[[Connection], None], ...] = (_first,)
"""The n-th brings a journal of version n to version n + 1. A released one is never changed."""

VERSION = len(UPGRADES)


def found_version(connection: Connection) -> int:
    """The version of the tables in a database; 0 when there are none."""
    if not inspect(connection).has_table(schema_version.name):
        return 0
    return int(connection.execute(select(schema_version.c.version)).scalar_one())


def check_version(found: int, where: str) -> None:
    """Raises JournalError for a version that only a newer release knows."""
    if found > VERSION:
        raise JournalError(
            f"The journal {where} has schema version {found}, and this perdure knows versions up to "
            f"{VERSION}. Upgrade perdure here too, or name another journal with PERDURE_JOURNAL."
        )


def upgrade(connection: Connection, where: str) -> None:
    """Bring the tables to this release's version, in the caller's transaction.

    Raises:
        JournalError: the tables are of a newer release.
    """
    found = found_version(connection)
    check_version(found, where)
    for step in UPGRADES[found:]:
        step(connection)
    if found == 0:
        connection.execute(insert(schema_version).values(version=VERSION))
    elif found < VERSION:
        connection.execute(update(schema_version).values(version=VERSION))
