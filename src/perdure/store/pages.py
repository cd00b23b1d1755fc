"""Keyset pages: rows after a cursor in a total order, in either direction."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from sqlalchemy import ColumnElement, Connection, Row, Select, tuple_

from perdure.wire.errors import InvalidRequest

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PageRequest:
    """`after` is exclusive: an id of the same list."""

    limit: int = 20
    order: Literal["asc", "desc"] = "desc"
    after: str | None = None


@dataclass(frozen=True, slots=True)
class Rows(Generic[T]):
    rows: list[T]
    has_more: bool


def fetch_page(
    conn: Connection,
    query: Select[Any],
    keys: tuple[ColumnElement[Any], ...],
    identity: ColumnElement[str],
    request: PageRequest,
    convert: Callable[[Row[Any]], T],
    *,
    visible: ColumnElement[bool] | None = None,
) -> Rows[T]:
    """One page of `query` ordered by `keys` (a total order).

    `query` is restricted to the list's own rows, so a cursor of another list is unknown here.
    `visible` hides rows (tombstones) whose ids still work as cursors.

    Raises:
        InvalidRequest: `after` is no id of this list.
    """
    position: tuple[Any, ...] | None = None
    if request.after is not None:
        found = conn.execute(query.with_only_columns(*keys).where(identity == request.after)).first()
        if found is None:
            raise InvalidRequest(
                f"No entry with id '{request.after[:64]}' in this list. Use the last_id of a page of it.",
                param="after",
            )
        position = tuple(found)
    statement = query if visible is None else query.where(visible)
    if position is not None:
        cursor = tuple_(*keys)
        bound = tuple_(*position)
        statement = statement.where(cursor > bound if request.order == "asc" else cursor < bound)
    ordered = [key.asc() if request.order == "asc" else key.desc() for key in keys]
    rows = conn.execute(statement.order_by(*ordered).limit(request.limit + 1)).fetchall()
    return Rows([convert(row) for row in rows[: request.limit]], len(rows) > request.limit)
