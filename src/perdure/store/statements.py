"""Statements of the hot path: compiled once per database, then run without a query builder.

A `Statement` is an ordinary SQLAlchemy statement whose text, parameter order and JSON columns are
looked up once; it runs on the driver's own cursor of the connection, inside its transaction, and
costs little more than the driver does. Everything else in the store uses SQLAlchemy as usual.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from sqlalchemy import JSON, Boolean, Connection, Insert, Select, Table, Update, bindparam, insert, update
from sqlalchemy.engine import Dialect
from sqlalchemy.sql import Delete

from perdure.wire.jsontext import dumps, loads

Convert = Callable[[Any], Any]

_LARGE = 1 << 20


def _dump(value: Any) -> str | None:
    return None if value is None else dumps(value).decode()


def _load(value: Any) -> Any:
    return loads(value) if isinstance(value, str | bytes) else value


@dataclass(frozen=True, slots=True)
class _Compiled:
    sql: str
    names: tuple[str, ...]
    take: Callable[[Mapping[str, Any]], Any]
    positional: bool
    dumps: tuple[int, ...]
    columns: tuple[str, ...]
    loads: tuple[tuple[int, Convert], ...]
    cursor: Callable[[Connection], Any]
    forgets: bool


class Statement:
    """See the module's text. Every parameter of the statement is a `bindparam`."""

    def __init__(self, clause: Select[Any] | Insert | Update | Delete) -> None:
        self._clause = clause
        self._compiled: dict[str, _Compiled] = {}

    def execute(self, conn: Connection, parameters: Mapping[str, Any]) -> int:
        """Run it for its effect; returns how many rows it touched, or -1 while that is not known."""
        compiled = self._for(conn.dialect)
        cursor = compiled.cursor(conn)
        try:
            bound = _bound(compiled, parameters)
            cursor.execute(compiled.sql, bound)
            count = int(cursor.rowcount)
            if compiled.forgets and any(map(_is_large, bound)):
                _unbind(cursor, compiled)
            return count
        finally:
            cursor.close()

    def fetch(self, conn: Connection, parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Run it and return its rows by column name, JSON parsed."""
        compiled = self._for(conn.dialect)
        cursor = compiled.cursor(conn)
        try:
            cursor.execute(compiled.sql, _bound(compiled, parameters))
            found = cursor.fetchall()
        finally:
            cursor.close()
        rows: list[dict[str, Any]] = []
        found.reverse()
        while found:
            # Each row is let go once it is parsed: its texts may be large.
            row = list(found.pop())
            for index, load in compiled.loads:
                row[index] = load(row[index])
            rows.append(dict(zip(compiled.columns, row, strict=True)))
        return rows

    def _for(self, dialect: Dialect) -> _Compiled:
        compiled = self._compiled.get(dialect.name)
        if compiled is None:
            compiled = self._compiled[dialect.name] = _compile(self._clause, dialect)
        return compiled


def insert_into(table: Table) -> Statement:
    """An insert of one whole row; parameters are named like the columns."""
    return Statement(insert(table).values({column.name: bindparam(column.name) for column in table.columns}))


def update_where(table: Table, columns: Sequence[str], *keys: str) -> Statement:
    """An update of `columns` (parameters named like them) where each key equals `key_<name>`."""
    statement = update(table).values({name: bindparam(name) for name in columns})
    for key in keys:
        statement = statement.where(table.c[key] == bindparam(f"key_{key}"))
    return Statement(statement)


def _compile(clause: Select[Any] | Insert | Update | Delete, dialect: Dialect) -> _Compiled:
    compiled = clause.compile(dialect=dialect)
    binds: Mapping[str, Any] = compiled.binds
    columns: tuple[str, ...] = ()
    loads: list[tuple[int, Convert]] = []
    if isinstance(clause, Select):
        selected = list(clause.selected_columns)
        columns = tuple(column.name for column in selected)
        for index, column in enumerate(selected):
            if dialect.name != "sqlite":
                pass  # the driver knows the types of what it reads
            elif isinstance(column.type, JSON):
                loads.append((index, _load))
            elif isinstance(column.type, Boolean):
                loads.append((index, bool))
    names = tuple(compiled.positiontup) if compiled.positiontup is not None else tuple(binds)
    return _Compiled(
        sql=str(compiled),
        names=names,
        take=itemgetter(*names) if len(names) > 1 else _take_one(names),
        positional=compiled.positiontup is not None,
        dumps=tuple(index for index, name in enumerate(names) if isinstance(binds[name].type, JSON)),
        columns=columns,
        loads=tuple(loads),
        cursor=_cursor if dialect.name == "sqlite" else _queueing_cursor,
        forgets=dialect.name == "sqlite" and isinstance(clause, Update | Insert),
    )


def _is_large(value: Any) -> bool:
    return isinstance(value, str | bytes) and len(value) > _LARGE


def _unbind(cursor: Any, compiled: _Compiled) -> None:
    """Let go of what a statement was run with: SQLite keeps a copy until the statement is run again.

    Run without keys, an update changes no row and an insert is refused; neither touches the transaction.
    """
    with contextlib.suppress(sqlite3.IntegrityError):
        cursor.execute(compiled.sql, [None] * len(compiled.names))


def _cursor(conn: Connection) -> Any:
    return conn.connection.cursor()


def _queueing_cursor(conn: Connection) -> Any:
    """In a pipeline, a cursor that waits for the server only when its rows are fetched."""
    from psycopg import Cursor

    return Cursor(conn.connection.driver_connection)  # type: ignore[arg-type]


def _take_one(names: tuple[str, ...]) -> Callable[[Mapping[str, Any]], Any]:
    return lambda parameters: tuple(parameters[name] for name in names)


def _bound(compiled: _Compiled, parameters: Mapping[str, Any]) -> Any:
    values = compiled.take(parameters)
    if compiled.dumps:
        values = list(values)
        for index in compiled.dumps:
            values[index] = _dump(values[index])
    return values if compiled.positional else dict(zip(compiled.names, values, strict=True))
