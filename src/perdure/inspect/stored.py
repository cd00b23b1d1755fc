"""Sessions of a perdure database, read beside whatever server uses it, and never written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from perdure.inspect.exports import Resource
from perdure.inspect.faults import Unreadable

if TYPE_CHECKING:
    from pydantic import BaseModel
    from sqlalchemy import Connection

    from perdure.store.pages import PageRequest, Rows

PAGE = 1000
EVENT_PAGE = 1000


@contextmanager
def open_store(url: str) -> Iterator[StoreReader]:
    """A reader of one instant of a database.

    Args:
        url: its URL, `sqlite:///path/to/perdure.db` for example.

    Raises:
        Unreadable: the database is missing, not of perdure, or of another version.
    """
    from sqlalchemy.exc import SQLAlchemyError

    from perdure.store.engine import StoreError
    from perdure.store.reading import open_read_only

    try:
        with open_read_only(url) as conn:
            yield StoreReader(conn)
    except StoreError as error:
        raise Unreadable(f"{error}.") from error
    except SQLAlchemyError as error:
        raise Unreadable(f"The database cannot be read: {getattr(error, 'orig', None) or error}.") from error


class StoreReader:
    """Reads sessions of every project; made by `open_store`, and usable inside of it.

    Its methods raise `Unreadable` for a session that is not there.
    """

    is_snapshot = True

    def __init__(self, conn: Connection) -> None:
        self._conn = conn

    def session(self, session_id: str) -> Resource:
        """The session."""
        from perdure.store.sessions import read_session

        return read_session(self._conn, session_id, self._project(session_id)).model_dump(mode="json")

    def turns(self, session_id: str, subagent_id: str | None) -> Sequence[Resource]:
        """The turns of a subagent, or of the root agent for None."""
        from perdure.store.history import list_turns

        project = self._project(session_id)
        return _whole(lambda page: list_turns(self._conn, session_id, project, page, subagent_id=subagent_id))

    def items(self, session_id: str, subagent_id: str | None) -> Sequence[Resource]:
        """The items of a subagent, or of the root agent for None."""
        from perdure.store.history import list_items

        project = self._project(session_id)
        return _whole(lambda page: list_items(self._conn, session_id, project, page, subagent_id=subagent_id))

    def subagents(self, session_id: str) -> Sequence[Resource]:
        """The subagents."""
        from perdure.store.subagents import list_subagents

        project = self._project(session_id)
        return _whole(lambda page: list_subagents(self._conn, session_id, project, page))

    def events(self, session_id: str) -> Sequence[Resource]:
        """The stored events.

        Raises:
            Unreadable: the oldest ones are no longer kept.
        """
        from perdure.store.replay import read_events
        from perdure.wire.errors import InvalidRequest

        project = self._project(session_id)
        found: list[Resource] = []
        reached, more = 0, True
        while more:
            try:
                stretch = read_events(self._conn, session_id, project, reached, None, EVENT_PAGE)
            except InvalidRequest as error:
                raise Unreadable(f"The events of {session_id} cannot be read: {error}") from error
            found += [stored.event.model_dump(mode="json") for stored in stretch.events]
            reached, more = stretch.reached, stretch.more
        return found

    def _project(self, session_id: str) -> str:
        from perdure.store.reading import project_of

        project = project_of(self._conn, session_id)
        if project is None:
            raise Unreadable(f"The database has no session {session_id}.")
        return project


def _whole(read: Callable[[PageRequest], Rows[Any]]) -> list[Resource]:
    from perdure.store.pages import PageRequest

    found: list[BaseModel] = []
    after: str | None = None
    while True:
        page = read(PageRequest(PAGE, "asc", after))
        found += page.rows
        if not page.has_more:
            return [row.model_dump(mode="json") for row in found]
        after = page.rows[-1].id
