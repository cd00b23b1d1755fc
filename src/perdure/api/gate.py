"""The gate in front of every route: request id, count, canonical path, beta header, key, scope.

The order is that of the official service: a missing beta header is answered before the key is looked
at. Paths are taken as they are; nothing is ever redirected.
"""

from __future__ import annotations

import logging
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from perdure.api.errors import send_error
from perdure.api.request_meter import RequestMeter
from perdure.api.services import Services
from perdure.config.logging import log_context
from perdure.wire.errors import ApiError, Forbidden, InternalError, InvalidBeta, NotFound, Unauthorized
from perdure.wire.ids import new_id

log = logging.getLogger(__name__)

METRICS_PATH = "/metrics"
OPEN_PATHS = frozenset({"/healthz", "/readyz", "/openapi.json"})
READ_SCOPE = "api.agents.read"
WRITE_SCOPE = "api.agents.write"
METRICS_SCOPE = "api.metrics.read"


class Gate:
    """ASGI middleware; puts `caller` and `request_id` into the scope's state."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = new_id("req")
        state: dict[str, Any] = scope.setdefault("state", {})
        state["request_id"] = request_id
        started = False
        services: Services = scope["app"].state.services
        meter = RequestMeter(services.metrics.http, scope)

        async def send_with_id(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                MutableHeaders(scope=message)["x-request-id"] = request_id
            meter.sends(message)
            await send(message)

        with log_context(request=request_id):
            try:
                await self._admit(scope, services)
                await self._app(scope, receive, send_with_id)
            except ApiError as error:
                await send_error(error, scope, receive, send_with_id)
            except ClientDisconnect:
                log.debug("the client of %s %s has left", scope["method"], scope["path"])
            except Exception:
                log.exception("%s %s failed", scope["method"], scope["path"])
                if started:
                    raise
                await send_error(InternalError(), scope, receive, send_with_id)
            finally:
                meter.end()

    async def _admit(self, scope: Scope, services: Services) -> None:
        path: str = scope["path"]
        raw: bytes = scope.get("raw_path") or path.encode()
        if path in OPEN_PATHS:
            return
        # No id and no route has a character that needs escaping: an escape is only ever a trick.
        if b"//" in raw or b"%" in raw or not raw.isascii() or raw.split(b"/")[-1] in (b"", b".", b".."):
            raise NotFound()
        if b"/../" in raw or b"/./" in raw:
            raise NotFound()
        headers = Headers(scope=scope)
        if path.startswith("/v1/") and services.settings.server.require_beta_header:
            _check_beta(headers)
        if path == METRICS_PATH and services.settings.server.metrics != "key":
            if services.settings.server.metrics == "off":
                raise NotFound()
            return
        caller = await services.keyring.caller(_bearer(headers))
        if caller is None:
            raise Unauthorized()
        needed = READ_SCOPE if scope["method"] in ("GET", "HEAD") else WRITE_SCOPE
        if path == METRICS_PATH:
            needed = METRICS_SCOPE
        if needed not in caller.scopes:
            raise Forbidden(f"This API key lacks the scope {needed}.")
        scope["state"]["caller"] = caller


def _check_beta(headers: Headers) -> None:
    values = headers.getlist("openai-beta")
    tokens = [token.strip() for value in values for token in value.split(",")]
    if "agents=v1" not in tokens:
        raise InvalidBeta()


def _bearer(headers: Headers) -> str:
    values = headers.getlist("authorization")
    if len(values) != 1:
        raise Unauthorized()
    scheme, _, token = values[0].partition(" ")
    if scheme.lower() != "bearer" or not token or token != token.strip() or len(token) > 512:
        raise Unauthorized()
    return token
