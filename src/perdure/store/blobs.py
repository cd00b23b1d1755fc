"""Large texts of a session, stored once by their content: images, results, long messages.

A JSON document that holds some is stored as an array of two: the document with null in their places,
and the places with the digests of what belongs there. The documents of rows are objects, and one that
is an array is wrapped in such an array as well. So whatever a client or a model writes, inside of a
document, is never taken for a reference, and documents that were stored before stay what they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any

from sqlalchemy import Connection, Select, select

from perdure.store.rows import CallRow, ItemRow
from perdure.store.statements import Statement, insert_into
from perdure.store.tables import blobs

LARGE_TEXT = 8 << 10
"""Texts of at least so many characters are stored by content."""
LARGE_URL = 1 << 10
"""And `data:` URLs from here on: the same image comes again and again."""
AT_ONCE = 500
"""How many digests one statement names."""

INSERT_BLOB: Statement = insert_into(blobs)
# What a model writes is written once, and while it grows again and again: it stays where it is.
_MODEL_WRITTEN = frozenset({"message", "reasoning", "function_call"})

Place = tuple[str | int, ...]
Row = Mapping[Any, Any]


class Blobs:
    """The large texts of one session, as one transaction meets them.

    Writing needs the session's lock: what is not there yet is looked for and then inserted.
    """

    def __init__(self, conn: Connection, session_id: str) -> None:
        self._conn = conn
        self._session_id = session_id
        # What is known to be stored: by text for writing, by digest for reading.
        self._digests: dict[str, str] = {}
        self._texts: dict[str, str] = {}

    def put(self, document: Any) -> Any:
        """The document as it is stored, with its large texts put away."""
        found: list[tuple[Place, str]] = []

        def take(text: str, place: Place) -> None:
            found.append((place, text))

        bare = _replaced(document, take)
        if found:
            self._store(dict.fromkeys(text for _, text in found))
        elif not isinstance(document, list | tuple):
            return document
        return [bare, [[list(place), self._digests[text]] for place, text in found]]

    def put_item(self, item: ItemRow) -> Any:
        """An item's data as it is stored."""
        if item.step is not None and item.type in _MODEL_WRITTEN:
            return item.data
        return self.put(item.data)

    def whole(self, rows: Sequence[Row], column: str) -> Sequence[Row]:
        """Rows of the session with the documents in `column` as they were put, by one query at most."""
        stored = [row[column] for row in rows if isinstance(row[column], list)]
        if not stored:
            return rows
        self._load(digest for _, places in stored for _, digest in places)
        return [
            {**row, column: self._restored(*row[column])} if isinstance(row[column], list) else row
            for row in rows
        ]

    def _restored(self, document: Any, places: Sequence[Any]) -> Any:
        for place, digest in places:
            if not place:
                return self._texts[digest]
            *way, last = place
            holder = document
            for step in way:
                holder = holder[step]
            holder[last] = self._texts[digest]
        return document

    def _store(self, texts: Iterable[str]) -> None:
        fresh: dict[str, tuple[str, bytes]] = {}
        for text in texts:
            if text not in self._digests:
                # Unlike a text column, bytes hold U+0000 and lone surrogates on every database.
                data = text.encode("utf-8", "surrogatepass")
                fresh[sha256(data).hexdigest()] = (text, data)
        stored = self._stored(list(fresh))
        while fresh:
            # Each is let go once it is written.
            digest, (text, data) = fresh.popitem()
            if digest not in stored:
                values = {"session_id": self._session_id, "digest": digest, "size": len(data), "data": data}
                INSERT_BLOB.execute(self._conn, values)
            self._digests[text] = digest
            self._texts[digest] = text

    def _stored(self, digests: Sequence[str]) -> set[str]:
        stored: set[str] = set()
        for start in range(0, len(digests), AT_ONCE):
            here = (blobs.c.session_id == self._session_id) & blobs.c.digest.in_(
                digests[start : start + AT_ONCE]
            )
            stored.update(row[0] for row in self._conn.execute(select(blobs.c.digest).where(here)))
        return stored

    def _load(self, digests: Iterable[str]) -> None:
        wanted = sorted(set(digests) - self._texts.keys())
        for start in range(0, len(wanted), AT_ONCE):
            found = _fetch(self._conn, self._session_id, wanted[start : start + AT_ONCE])
            while found:
                # Each is let go once it is read: it may be large.
                digest, data = found.pop()
                text = data.decode("utf-8", "surrogatepass")
                self._texts[digest] = text
                self._digests[text] = digest


def whole(conn: Connection, rows: Sequence[Row], column: str) -> Sequence[Row]:
    """Rows of one session with the documents in `column` as they were put, by one query at most."""
    return Blobs(conn, rows[0]["session_id"]).whole(rows, column) if rows else rows


def item_rows(conn: Connection, query: Select[Any]) -> list[ItemRow]:
    """The items of one session that a query selects, whole."""
    return [ItemRow(**row) for row in whole(conn, conn.execute(query).mappings().all(), "data")]


def call_rows(conn: Connection, query: Select[Any]) -> list[CallRow]:
    """The calls of one session that a query selects, with their results, whole."""
    return [CallRow(**row) for row in whole(conn, conn.execute(query).mappings().all(), "result")]


def share(document: Any, kept: dict[str, str]) -> tuple[Any, int]:
    """A document whose large texts are the same objects as equal ones in `kept`, which takes in new ones.

    Also returns how many characters were found there.
    """
    found = 0

    def take(text: str, _: Place) -> str:
        nonlocal found
        if text in kept:
            found += len(text)
        return kept.setdefault(text, text)

    return _replaced(document, take), found


def _replaced(value: Any, replace: Callable[[str, Place], Any]) -> Any:
    """A JSON value with its large texts replaced; what holds none is not copied."""
    return _walked(value, replace, ()) if _may_hold_large(value) else value


def _walked(value: Any, replace: Callable[[str, Place], Any], place: Place) -> Any:
    if isinstance(value, str):
        return replace(value, place) if _is_large(value) else value
    if isinstance(value, dict):
        made = {key: _walked(inner, replace, (*place, key)) for key, inner in value.items()}
        return made if any(made[key] is not inner for key, inner in value.items()) else value
    if isinstance(value, list | tuple):
        parts = [_walked(inner, replace, (*place, index)) for index, inner in enumerate(value)]
        return parts if any(new is not old for new, old in zip(parts, value, strict=True)) else value
    return value


def _may_hold_large(value: Any) -> bool:
    """Quickly, for almost every document is small."""
    kind = type(value)
    if kind is str:
        return len(value) >= LARGE_URL
    if kind is dict:
        value = value.values()
    elif kind is not list and kind is not tuple:
        return False
    for inner in value:
        kind = type(inner)
        if kind is str:
            if len(inner) >= LARGE_URL:
                return True
        elif (kind is dict or kind is list or kind is tuple) and _may_hold_large(inner):
            return True
    return False


def _is_large(text: str) -> bool:
    return len(text) >= LARGE_TEXT or (len(text) >= LARGE_URL and text[:5].lower() == "data:")


def _fetch(conn: Connection, session_id: str, digests: list[str]) -> list[tuple[str, bytes]]:
    if conn.dialect.name == "sqlite":
        query = select(blobs.c.digest, blobs.c.data).where(
            blobs.c.session_id == session_id, blobs.c.digest.in_(digests)
        )
        return [(row[0], row[1]) for row in conn.execute(query)]
    from psycopg import Cursor

    # As text, bytes come in hexadecimal and take twice their size.
    with Cursor(conn.connection.driver_connection) as cursor:  # type: ignore[arg-type]
        cursor.execute(
            "SELECT digest, data FROM blobs WHERE session_id = %s AND digest = ANY(%s)",
            (session_id, digests),
            binary=True,
        )
        return cursor.fetchall()
