"""Routes that read their JSON themselves, so that every fault of a body or query is named."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute

from perdure.api.errors import ERROR_RESPONSES
from perdure.api.services import Services
from perdure.wire.body import parse_json
from perdure.wire.errors import InvalidRequest, PayloadTooLarge, RequestTimeout

METADATA_KEY = re.compile(r"metadata\[(.*)\]", re.DOTALL)
# The longest silence in the middle of a body.
BODY_SECONDS = 60.0
JSON_TYPE = re.compile(r"application/(json|[\w.-]+\+json)\s*(;.*)?", re.IGNORECASE)


class StrictRoute(APIRoute):
    """Parses the body strictly and refuses query parameters the route does not know."""

    def _filters(self, name: str) -> bool:
        return bool(getattr(self.endpoint, "filters_metadata", False) and METADATA_KEY.fullmatch(name))

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        solve = super().get_route_handler()
        reads_body = self.body_field is not None
        known = {parameter.alias for parameter in self.dependant.query_params}
        known |= {name for each in self.dependant.dependencies for name in _query_names(each)}

        async def strict(request: Request) -> Response:
            repeatable = getattr(self.endpoint, "repeatable", ())
            given: set[str] = set()
            for name, _ in request.query_params.multi_items():
                if name not in known and not self._filters(name):
                    raise InvalidRequest(f"Unknown parameter: '{name[:64]}'.", param=name[:64])
                if name in given and name not in repeatable:
                    raise InvalidRequest(f"'{name[:64]}' is given twice.", param=name[:64])
                given.add(name)
            if reads_body:
                request = await _with_json(request)
            # A hot route may read its request itself: solving dependencies costs more than it does.
            handle = getattr(self.endpoint, "reads_request", solve)
            return await handle(request)

        return strict


def _query_names(dependant: Any) -> set[str]:
    names = {parameter.alias for parameter in dependant.query_params}
    for each in dependant.dependencies:
        names |= _query_names(each)
    return names


async def _with_json(request: Request) -> Request:
    content_type = request.headers.get("content-type", "")
    if not JSON_TYPE.fullmatch(content_type):
        raise InvalidRequest("The request body must be JSON; send it with Content-Type: application/json.")
    services: Services = request.app.state.services
    limit = services.settings.server.max_body
    raw = await _read_body(request, limit)
    parsed = parse_json(raw, max_bytes=limit)
    # What was parsed is all that is read from here on; the bytes would be kept until the answer.
    request._body = b"{}"
    request._json = parsed
    request.state.body = parsed
    return request


async def _read_body(request: Request, limit: int) -> bytes:
    """The whole body; a client that sends more than the limit is told before all of it is read."""
    declared = request.headers.get("content-length", "0")
    if declared.isdecimal() and int(declared) > limit:
        raise PayloadTooLarge(limit)
    chunks: list[bytes] = []
    size = 0
    stream = request.stream()
    while True:
        try:
            async with asyncio.timeout(BODY_SECONDS):
                chunk = await anext(stream, None)
        except TimeoutError:
            raise RequestTimeout(BODY_SECONDS) from None
        if chunk is None:
            return b"".join(chunks)
        size += len(chunk)
        if size > limit:
            raise PayloadTooLarge(limit)
        chunks.append(chunk)


def router(prefix: str, tag: str) -> APIRouter:
    return APIRouter(prefix=prefix, tags=[tag], route_class=StrictRoute, responses=ERROR_RESPONSES)
