"""Pages of lists, and the query that asks for one."""

from __future__ import annotations

from typing import Annotated, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from perdure.wire.shapes import Resource

T = TypeVar("T", bound=BaseModel)
Order = Literal["asc", "desc"]

MAX_LIMIT = 100
DEFAULT_LIMIT = 20

Limit = Annotated[int, Field(ge=1, le=MAX_LIMIT)]


class Page(Resource, Generic[T]):
    """The ordinary page: go on with `after` = `last_id` while `has_more`."""

    object: Literal["list"] = "list"
    data: list[T]
    first_id: str | None = None
    last_id: str | None = None
    has_more: bool

    @classmethod
    def of(cls, data: list[T], *, has_more: bool) -> Page[T]:
        """A page of resources that have ids."""
        ids = [getattr(data[0], "id", None), getattr(data[-1], "id", None)] if data else [None, None]
        return cls(data=data, first_id=ids[0], last_id=ids[1], has_more=has_more)


class TokenPage(Resource, Generic[T]):
    """A page of things without ids: go on with `page` = `next` while `has_more`."""

    object: Literal["page"] = "page"
    data: list[T]
    next: str | None = None
    has_more: bool


class Query(BaseModel):
    """The query of a request; values arrive as text, unknown names are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class PageQuery(Query):
    """Query of an ordinary list; out of range is an error."""

    limit: Limit = DEFAULT_LIMIT
    order: Order = "desc"
    after: Annotated[str, Field(min_length=1, max_length=256)] | None = None


class SessionQuery(PageQuery):
    """Query of the list of sessions, without its `metadata[key]` pairs: `metadata_filter` reads those."""

    agent_id: Annotated[str, Field(min_length=1, max_length=256)] | None = None


class ArtifactQuery(PageQuery):
    environment_id: Annotated[str, Field(min_length=1, max_length=256)] | None = None


class EnvironmentQuery(PageQuery):
    type: Literal["openai_hosted"] | None = None


class AutomationQuery(PageQuery):
    session_id: Annotated[str, Field(min_length=1, max_length=256)] | None = None


class VaultQuery(PageQuery):
    """Query of the lists of vaults and credentials; `status` is one value or several."""

    status: list[Literal["active", "archived"]] | None = None


class EventsQuery(Query):
    """Query of a session's stream; `stream` is tolerated and means nothing."""

    include_obfuscation: bool = True
    stream: str | None = None


class FileQuery(Query):
    """Query of the list of an environment's files; a token goes with the same path, order and limit."""

    limit: Limit = DEFAULT_LIMIT
    order: Order = "desc"
    page: Annotated[str, Field(min_length=1, max_length=4096)] | None = None
    path: Annotated[str, Field(min_length=1, max_length=4096)] | None = None
