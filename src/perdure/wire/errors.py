"""Every error the API answers with: HTTP status, code, and a sentence that says what to do."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

from perdure.wire.shapes import Resource


class ErrorBody(Resource):
    """The inner object of an error answer, and the payload of an `error` event."""

    message: str
    type: str
    code: str | None = None
    param: str | None = None


class ErrorEnvelope(Resource):
    """The JSON body of every error answer."""

    error: ErrorBody


class ApiError(Exception):
    """An answer that is an error.

    Attributes:
        status: the HTTP status.
        type: the family of the error, by status.
        code: what programs branch on.
        message: one sentence for people: what was wrong and what to do.
        param: dotted path of the offending member, e.g. `agent.tools[0].name`.
        headers: extra response headers.
    """

    status: ClassVar[int] = 500
    type: ClassVar[str] = "server_error"

    def __init__(
        self,
        message: str,
        *,
        code: str,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.param = param
        self.headers: Mapping[str, str] = headers or {}

    def body(self) -> dict[str, Any]:
        """The answer's JSON body."""
        error = {"message": self.message, "type": self.type, "code": self.code, "param": self.param}
        return {"error": error}


class InvalidRequest(ApiError):
    """The request itself is wrong; the same request will never succeed."""

    status = 400
    type = "invalid_request_error"

    def __init__(self, message: str, param: str | None = None, code: str = "invalid_request_error") -> None:
        super().__init__(message, code=code, param=param)


class PayloadTooLarge(InvalidRequest):
    """The body exceeds the server's limit (answered as 400, as the protocol has no 413)."""

    def __init__(self, max_bytes: int) -> None:
        limit = f"{max_bytes >> 20} MiB" if max_bytes % (1 << 20) == 0 else f"{max_bytes:,} bytes"
        super().__init__(
            f"The request body is too large. Send at most {limit}, for example by passing images as URLs "
            "instead of data URLs."
        )


class RequestTimeout(ApiError):
    """408: the client stopped in the middle of the request's body."""

    status = 408
    type = "invalid_request_error"

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"Nothing came of the request's body for {seconds:.0f} seconds. Send the request again.",
            code="request_timeout",
        )


class InvalidBeta(InvalidRequest):
    """The beta header is missing or names another version."""

    def __init__(
        self, message: str = "This endpoint is in beta. Send the header 'OpenAI-Beta: agents=v1'."
    ) -> None:
        super().__init__(message, code="invalid_beta")


class Unauthorized(ApiError):
    status = 401
    type = "authentication_error"

    def __init__(
        self, message: str = "Missing or unknown API key. Send it as 'Authorization: Bearer <key>'."
    ) -> None:
        super().__init__(message, code="unauthorized", headers={"www-authenticate": "Bearer"})


class Forbidden(ApiError):
    status = 403
    type = "permission_error"

    def __init__(
        self,
        message: str = "The API key has no permission for this request. Use a key with a wider scope.",
        *,
        param: str | None = None,
    ) -> None:
        super().__init__(message, code="forbidden", param=param)


class NotFound(ApiError):
    """Missing, or not the caller's: both read the same, so that nothing can be probed."""

    status = 404
    type = "invalid_request_error"

    def __init__(
        self,
        message: str = "No such resource. Check the id and that it belongs to the project of your API key.",
        param: str | None = None,
    ) -> None:
        super().__init__(message, code="not_found_error", param=param)


class ModelNotFound(ApiError):
    status = 404
    type = "invalid_request_error"

    def __init__(self, model: str, param: str | None = None) -> None:
        shown = model if len(model) <= 64 else model[:63] + "…"
        super().__init__(
            f"The model '{shown}' is not available. Use a model that one of the server's providers serves.",
            code="model_not_found",
            param=param,
        )


class Conflict(ApiError):
    """The resource's state forbids the request now."""

    status = 409
    type = "invalid_request_error"

    def __init__(self, message: str, param: str | None = None, code: str = "conflict_error") -> None:
        # The SDK repeats every 409 unless it is told not to.
        super().__init__(message, code=code, param=param, headers={"x-should-retry": "false"})


class McpStartupFailed(ApiError):
    """A required MCP server could not be started."""

    status = 424
    type = "invalid_request_error"

    def __init__(self, server_label: str, reason: str | None = None, param: str | None = None) -> None:
        because = f": {reason.rstrip('.')}" if reason else ""
        super().__init__(
            f"The required MCP server '{server_label}' could not be started{because}. Check its transport "
            "and credentials, or set 'required' to false.",
            code="mcp_server_startup_failed",
            param=param,
        )


class RateLimited(ApiError):
    status = 429
    type = "rate_limit_error"

    def __init__(
        self,
        message: str = "Too many requests for this API key. Wait a moment and send the request again.",
        *,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message, code="rate_limit_exceeded", headers=_retry_after(retry_after))


class InternalError(ApiError):
    def __init__(
        self, message: str = "The server had an error. Try again; report the x-request-id if it stays."
    ) -> None:
        super().__init__(message, code="internal_error")


class ServiceUnavailable(ApiError):
    """Temporary: the server is starting, draining, overloaded or cut off from its database."""

    status = 503

    def __init__(
        self,
        message: str = "The server is not available for a moment. Send the request again.",
        *,
        retry_after: float | None = None,
        code: str = "service_unavailable_error",
    ) -> None:
        super().__init__(message, code=code, headers=_retry_after(retry_after))


def _size(count: int) -> str:
    return f"{count >> 20} MiB" if count and count % (1 << 20) == 0 else f"{count:,} bytes"


def _retry_after(seconds: float | None) -> dict[str, str]:
    return {} if seconds is None else {"retry-after": str(max(1, math.ceil(seconds)))}
