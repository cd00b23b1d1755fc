"""Errors as HTTP responses: one envelope for everything that can go wrong."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import orjson
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match
from starlette.types import Receive, Scope, Send

from perdure.store.engine import StoreError
from perdure.store.locked import SessionGone
from perdure.wire.errors import ApiError, ErrorEnvelope, NotFound, ServiceUnavailable
from perdure.wire.validation import invalid_request

log = logging.getLogger(__name__)

# What every route may answer besides its success; kept in the OpenAPI document.
ERROR_RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorEnvelope, "description": text}
    for status, text in {
        400: "The request is not valid; `param` names the field.",
        401: "The API key is missing or not valid.",
        403: "The API key lacks a scope.",
        404: "There is no such resource in the key's project.",
        409: "The request conflicts with the resource's state.",
        500: "The server failed; see its log.",
        503: "The server cannot serve the request now.",
    }.items()
}

STREAM_RESPONSE: dict[str, Any] = {
    "description": "Server-sent events.",
    "content": {"text/event-stream": {"schema": {"type": "string"}}},
}


class MethodNotAllowed(ApiError):
    """405: the path exists, the method does not."""

    status = 405
    type = "invalid_request_error"

    def __init__(self, method: str, headers: Mapping[str, str]) -> None:
        super().__init__(f"{method} is not allowed here.", code="method_not_allowed", headers=headers)


def error_response(error: ApiError) -> Response:
    return Response(
        orjson.dumps(error.body()),
        status_code=error.status,
        headers=dict(error.headers),
        media_type="application/json",
    )


async def send_error(error: ApiError, scope: Scope, receive: Receive, send: Send) -> None:
    await error_response(error)(scope, receive, send)


def _allowed(request: Request) -> str:
    """The methods of the request's path, each of which is a route of its own."""
    matching = [route for route in request.app.routes if route.matches(request.scope)[0] != Match.NONE]
    methods = {method for route in matching if route.path == matching[0].path for method in route.methods}
    return ", ".join(sorted(methods))


def install(app: FastAPI) -> None:
    """Answer every exception a route may raise with the error envelope."""

    @app.exception_handler(ApiError)
    async def _api_error(_request: Request, error: ApiError) -> Response:
        return error_response(error)

    @app.exception_handler(RequestValidationError)
    async def _invalid(_request: Request, error: RequestValidationError) -> Response:
        return error_response(invalid_request(error.errors(), error.body, located=True))

    @app.exception_handler(SessionGone)
    async def _gone(_request: Request, _error: SessionGone) -> Response:
        return error_response(NotFound())

    @app.exception_handler(StoreError)
    async def _store(_request: Request, error: Exception) -> Response:
        log.error("the storage failed: %s", error)
        return error_response(ServiceUnavailable("The storage cannot be used now. Try again shortly."))

    @app.exception_handler(HTTPException)
    async def _http(request: Request, error: HTTPException) -> Response:
        if error.status_code == 405:
            return error_response(MethodNotAllowed(request.method, {"Allow": _allowed(request)}))
        return error_response(NotFound())
