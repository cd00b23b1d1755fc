"""What route functions are given: the services, the caller, a page request, an idempotency key."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

from fastapi import Depends, Header, Query, Request, Response
from pydantic import BaseModel, BeforeValidator
from pydantic_core import PydanticKnownError

from perdure.api.keyring import Caller
from perdure.api.services import Services
from perdure.store.idempotency import IdempotencyKey
from perdure.store.pages import PageRequest, Rows
from perdure.wire.errors import InvalidRequest
from perdure.wire.pages import Page

M = TypeVar("M", bound=BaseModel)


async def _services(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


async def _caller(request: Request) -> Caller:
    caller: Caller = request.state.caller
    return caller


def _digits(value: Any) -> Any:
    """A number in a query as JSON would write it: no sign, blanks or underscores."""
    if isinstance(value, str) and not (value.isascii() and value.isdecimal()):
        raise PydanticKnownError("int_parsing")
    return value


Count = Annotated[int, BeforeValidator(_digits)]


async def _page(
    limit: Annotated[Count, Query(ge=1, le=100, description="How many entries a page holds.")] = 20,
    order: Annotated[Literal["asc", "desc"], Query(description="By creation.")] = "desc",
    after: Annotated[str | None, Query(description="An id of the list; the page starts behind it.")] = None,
) -> PageRequest:
    return PageRequest(limit, order, after)


async def _idempotency_key(
    request: Request,
    idempotency_key: Annotated[
        str | None, Header(description="1–256 characters; the same key and body have one effect.")
    ] = None,
) -> IdempotencyKey | None:
    return idempotency_key_of(request, idempotency_key)


def idempotency_key_of(request: Request, idempotency_key: str | None) -> IdempotencyKey | None:
    """The request's key with the body it came with.

    Raises:
        InvalidRequest: it is empty or too long.
    """
    if idempotency_key is None:
        return None
    if not 1 <= len(idempotency_key) <= 256:
        raise InvalidRequest("Idempotency-Key must have 1 to 256 characters.", param="Idempotency-Key")
    caller: Caller = request.state.caller
    body = getattr(request.state, "body", None)
    return IdempotencyKey(
        caller.project_id, f"{request.method} {request.url.path}"[:160], idempotency_key, body
    )


UseServices = Annotated[Services, Depends(_services)]
UseCaller = Annotated[Caller, Depends(_caller)]
UsePage = Annotated[PageRequest, Depends(_page)]
UseKey = Annotated[IdempotencyKey | None, Depends(_idempotency_key)]


def json_response(model: BaseModel, status_code: int = 200) -> Response:
    """A resource as JSON, without a second validation."""
    body = model.__pydantic_serializer__.to_json(model, by_alias=True)
    return Response(body, status_code=status_code, media_type="application/json")


def page_response(rows: Rows[M]) -> Response:
    """A page of resources with its cursors."""
    parts = [each.__pydantic_serializer__.to_json(each, by_alias=True) for each in rows.rows]
    ids = [getattr(each, "id", None) for each in rows.rows]
    envelope = Page[BaseModel](
        object="list",
        data=[],
        first_id=ids[0] if ids else None,
        last_id=ids[-1] if ids else None,
        has_more=rows.has_more,
    )
    head = envelope.model_dump_json(exclude={"data"})
    body = head[:-1].encode() + b',"data":[' + b",".join(parts) + b"]}"
    return Response(body, media_type="application/json")
