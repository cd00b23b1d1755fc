"""The rows of calls: begun, ended, submitted. Each function is one step, in the caller's transaction."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, Select, delete, select, update
from sqlalchemy.dialects import postgresql, sqlite

from perdure.sdk.calls import CallPair, ToolResult
from perdure.sdk.journal_database import now_us
from perdure.sdk.journal_errors import JournalError
from perdure.sdk.journal_json import Json, decode, encode
from perdure.sdk.journal_owners import told
from perdure.sdk.journal_tables import calls


@dataclass(frozen=True, slots=True)
class Fresh:
    """The call is recorded, and this process is to run it, now. `attempts` is 1 the first time."""

    pair: CallPair
    tool: str
    attempt_id: str
    attempts: int = 1


@dataclass(frozen=True, slots=True)
class Finished:
    """The call has ended. `result` answers it, now and whenever it is asked for again.

    `is_redacted` says that the result was masked after its turn had ended, so it is no answer any more.
    """

    pair: CallPair
    tool: str
    result: ToolResult
    is_submitted: bool = False
    is_redacted: bool = False


@dataclass(frozen=True, slots=True)
class Running:
    """A living process runs the call: `by` says which one, `is_ours` whether it is this journal's.

    Times are microseconds since the Unix epoch.
    """

    pair: CallPair
    tool: str
    by: str
    is_ours: bool
    started_us: int


@dataclass(frozen=True, slots=True)
class Unknown:
    """The call was started and has no end, and nobody runs it any more. It may have had its effect.

    `arguments` are those that were recorded, `attempts` how often it was started.
    """

    pair: CallPair
    tool: str
    arguments: Json
    started_us: int
    attempts: int
    attempt_id: str


Begun = Fresh | Finished | Running | Unknown

Alive = Callable[[Connection, str], bool]


def begin(
    connection: Connection,
    pair: CallPair,
    tool: str,
    arguments: str,
    *,
    owner: str,
    attempt_id: str,
    is_alive: Alive,
) -> Begun:
    """Record that a call starts, or tell what became of it earlier. `attempt_id` names this very try."""
    dialect = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    row = dialect(calls).values(
        session_id=pair.session_id, turn_id=pair.turn_id, call_id=pair.call_id,
        tool=tool, arguments=arguments, attempt_id=attempt_id, attempts=1, owner=owner,
        started_us=now_us(), redacted=False,
    )  # fmt: skip
    found = None
    while found is None:
        if connection.execute(row.on_conflict_do_nothing()).rowcount == 1:
            return Fresh(pair, tool, attempt_id)
        # None, if it was withdrawn in between.
        found = connection.execute(select(calls).where(*_is(pair)).with_for_update()).one_or_none()
    if found.finished_us is None and found.attempt_id == attempt_id:
        # Written by this try, whose answer was lost with the connection.
        return Fresh(pair, found.tool, attempt_id)
    return state_of(connection, found, owner, is_alive)


def state_of(connection: Connection, row: Row[Any], owner: str | None, is_alive: Alive) -> Begun:
    """What a row says of its call."""
    pair = _pair(row)
    if row.finished_us is not None:
        return _finished(row)
    if row.owner is not None and (row.owner == owner or is_alive(connection, row.owner)):
        return Running(pair, row.tool, told(row.owner), row.owner == owner, row.started_us)
    return Unknown(pair, row.tool, decode(row.arguments), row.started_us, row.attempts, row.attempt_id)


def look(connection: Connection, pair: CallPair, owner: str | None, is_alive: Alive) -> Begun | None:
    """What is known of a call; None when it was never begun."""
    row = connection.execute(select(calls).where(*_is(pair))).one_or_none()
    return None if row is None else state_of(connection, row, owner, is_alive)


def claim(connection: Connection, unknown: Unknown, *, owner: str, attempt_id: str, is_alive: Alive) -> Begun:
    """Take an unknown call over, as a new try of this process; tells the state if another was faster."""
    changed = connection.execute(
        update(calls)
        .where(*_is(unknown.pair), calls.c.attempt_id == unknown.attempt_id, calls.c.finished_us.is_(None))
        .values(attempt_id=attempt_id, owner=owner, attempts=calls.c.attempts + 1, started_us=now_us())
    )
    row = _row(connection, unknown.pair)
    if changed.rowcount == 1 or (row.finished_us is None and row.attempt_id == attempt_id):
        return Fresh(unknown.pair, row.tool, attempt_id, row.attempts)
    return state_of(connection, row, owner, is_alive)


def end(connection: Connection, fresh: Fresh, result: ToolResult) -> tuple[Finished | None, bool]:
    """Record a result. Returns what answers the call, and whether it was recorded by this.

    A call that was taken from this try keeps the result it has, or will have (None, while its other try
    runs); this one is put beside it as late.
    """
    changed = connection.execute(
        update(calls)
        .where(*_is(fresh.pair), calls.c.attempt_id == fresh.attempt_id, calls.c.finished_us.is_(None))
        .values(finished_us=now_us(), owner=None, **_columns(result))
    )
    row = _row(connection, fresh.pair)
    if changed.rowcount == 1:
        return _finished(row), True
    late = encode(_plain(result), "the result")
    if row.finished_us is None:
        # Another try runs, and its end is the one that counts.
        keep_late(connection, fresh.pair, late)
        return None, False
    if row.attempt_id != fresh.attempt_id:
        keep_late(connection, fresh.pair, late)
    return _finished(row), False


def replace_result(connection: Connection, pair: CallPair, result: ToolResult, late: ToolResult) -> Finished:
    """Give a call that was just ended another result; the one it had is kept as late."""
    connection.execute(
        update(calls).where(*_is(pair)).values(late=encode(_plain(late), "the result"), **_columns(result))
    )
    return _finished(_row(connection, pair))


def keep_late(connection: Connection, pair: CallPair, late: str) -> None:
    """Put something beside a call's result that is not its result."""
    connection.execute(update(calls).where(*_is(pair)).values(late=late))


def give_up(connection: Connection, fresh: Fresh) -> None:
    """Nobody runs this try any more, and how it ended is not known."""
    connection.execute(
        update(calls)
        .where(*_is(fresh.pair), calls.c.attempt_id == fresh.attempt_id, calls.c.finished_us.is_(None))
        .values(owner=None)
    )


def withdraw(connection: Connection, fresh: Fresh) -> None:
    """Forget a call whose function was not started: as if it had never begun.

    Of a later try only this try is forgotten; what the earlier ones did is as unknown as before.
    """
    if fresh.attempts > 1:
        give_up(connection, fresh)
        return
    connection.execute(
        delete(calls).where(
            *_is(fresh.pair), calls.c.attempt_id == fresh.attempt_id, calls.c.finished_us.is_(None)
        )
    )


def mark_submitted(connection: Connection, pair: CallPair) -> bool:
    """The server has taken the result. False when it was known already, or there is none."""
    changed = connection.execute(
        update(calls)
        .where(*_is(pair), calls.c.finished_us.is_not(None), calls.c.submitted_us.is_(None))
        .values(submitted_us=now_us(), refused=None)
    )
    return changed.rowcount == 1


def mark_refused(connection: Connection, pair: CallPair, reason: str) -> None:
    """The server does not want the result, for good: its turn ended, or it was answered already."""
    connection.execute(
        update(calls)
        .where(*_is(pair), calls.c.submitted_us.is_(None))
        .values(refused=encode(reason, "the reason"))
    )


def newest_open(connection: Connection, session_id: str) -> CallPair | None:
    """The call of a session that began last, of those whose result was not taken yet."""
    row = connection.execute(_open_calls(session_id).limit(1)).one_or_none()
    return None if row is None else _pair(row)


def close_turn(
    connection: Connection, session_id: str, turn_id: str, answered: Collection[str], reason: str
) -> None:
    """A turn has ended: results that were not known to be taken were, or never will be.

    `answered` are the call ids that have a result in the turn's items.
    """
    for row in connection.execute(_open_calls(session_id).where(calls.c.turn_id == turn_id)).all():
        if row.finished_us is None:
            continue
        if row.call_id in answered:
            mark_submitted(connection, _pair(row))
        else:
            mark_refused(connection, _pair(row), reason)


def is_awaited(
    connection: Connection, session_id: str, ended_turn_id: str, owner: str | None, is_alive: Alive
) -> bool:
    """Whether a session still waits for a call, after a turn of it has ended.

    Calls of that turn count as long as they run: those of background functions outlive it.
    """
    return any(
        row.turn_id != ended_turn_id or isinstance(state_of(connection, row, owner, is_alive), Running)
        for row in connection.execute(_open_calls(session_id)).all()
    )


def mask_results(
    connection: Connection, session_id: str, turn_id: str, mask: Callable[[str, Json], Json]
) -> int:
    """Replace the results of an ended turn by what `mask` makes of them; returns how many."""
    rows = connection.execute(
        select(calls).where(
            calls.c.session_id == session_id, calls.c.turn_id == turn_id,
            calls.c.finished_us.is_not(None), calls.c.redacted.is_(False),
        )
    ).all()  # fmt: skip
    for row in rows:
        values: dict[str, Any] = {"redacted": True}
        for name in ("output", "error", "late"):
            text = getattr(row, name)
            if text is not None:
                values[name] = encode(mask(row.tool, decode(text)), f"the redacted {name}")
        connection.execute(update(calls).where(*_is(_pair(row))).values(**values))
    return len(rows)


def list_calls(
    connection: Connection, session_id: str, owner: str | None, is_alive: Alive
) -> list[dict[str, Json]]:
    """The calls of a session in the order they began, as plain data."""
    rows = connection.execute(
        select(calls)
        .where(calls.c.session_id == session_id)
        .order_by(calls.c.started_us, calls.c.turn_id, calls.c.call_id)
    )
    return [_document(row, state_of(connection, row, owner, is_alive)) for row in rows.all()]


def remove_before(connection: Connection, before_us: int, *, all_ended: bool) -> int:
    """Delete calls that ended before a time and were taken by the server, or by choice all that ended."""
    conditions = [calls.c.finished_us < before_us]
    if not all_ended:
        conditions.append(calls.c.submitted_us.is_not(None) | calls.c.refused.is_not(None))
    return connection.execute(delete(calls).where(*conditions)).rowcount


def new_attempt() -> str:
    """A name for one try."""
    return uuid.uuid4().hex


def _open_calls(session_id: str) -> Select[Any]:
    return (
        select(calls)
        .where(calls.c.session_id == session_id, calls.c.submitted_us.is_(None), calls.c.refused.is_(None))
        .order_by(calls.c.started_us.desc())
    )


def _is(pair: CallPair) -> tuple[Any, Any, Any]:
    return (
        calls.c.session_id == pair.session_id,
        calls.c.turn_id == pair.turn_id,
        calls.c.call_id == pair.call_id,
    )


def _row(connection: Connection, pair: CallPair) -> Row[Any]:
    row = connection.execute(select(calls).where(*_is(pair))).one_or_none()
    if row is None:
        raise JournalError(f"The journal has no call {pair}; it was withdrawn or cleaned up.")
    return row


def _pair(row: Row[Any]) -> CallPair:
    return CallPair(row.session_id, row.turn_id, row.call_id)


def _columns(result: ToolResult) -> dict[str, Any]:
    return {
        "success": result.success,
        "output": None if result.output is None else encode(result.output, "the output"),
        "error": None if result.error is None else encode(result.error, "the error"),
    }


def _plain(result: ToolResult) -> dict[str, Json]:
    return {"success": result.success, "output": result.output, "error": result.error}


def _finished(row: Row[Any]) -> Finished:
    result = ToolResult(row.success, decode(row.output), decode(row.error))
    return Finished(_pair(row), row.tool, result, row.submitted_us is not None, row.redacted)


def _document(row: Row[Any], state: Begun) -> dict[str, Json]:
    document: dict[str, Json] = {
        "turn_id": row.turn_id,
        "call_id": row.call_id,
        "name": row.tool,
        "arguments": decode(row.arguments),
        "state": type(state).__name__.lower(),
        "attempts": row.attempts,
        "started_us": row.started_us,
    }
    if row.finished_us is None:
        return {**document, "owner": None if row.owner is None else told(row.owner)}
    document |= {
        "finished_us": row.finished_us,
        "success": row.success,
        "output": decode(row.output),
        "error": decode(row.error),
        "submitted_us": row.submitted_us,
    }
    for name in ("refused", "late"):
        if getattr(row, name) is not None:
            document[name] = decode(getattr(row, name))
    return {**document, "redacted": True} if row.redacted else document
