"""One model call as a span: what is known when its request leaves, and what is known at its end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any

from opentelemetry.trace import Span, Status, StatusCode

from perdure.config import telemetry as names
from perdure.config.prices import NANO
from perdure.config.telemetry import Endpoint
from perdure.harness.ownership import OwnershipLost
from perdure.harness.spending import CallRecord
from perdure.models.errors import ModelError
from perdure.store.locked import Fenced, SessionGone
from perdure.store.steps import TurnOver
from perdure.wire.usage import TokenUsage

log = logging.getLogger(__name__)


class CallSpan(AbstractContextManager[None]):
    """Records how a call ends, and never disturbs it.

    Args:
        begin: starts the span.
        ended: called at the end, before the span is.
    """

    def __init__(self, begin: Callable[[], Span], call: CallRecord, ended: Callable[[], None]) -> None:
        self._begin = begin
        self._call = call
        self._ended = ended
        self._span: Span | None = None

    def __enter__(self) -> None:
        try:
            self._span = self._begin()
        except Exception:
            log.exception("a model call is not traced")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._span is None:
            return
        try:
            self._ended()
            self._span.set_attributes(_told(self._call))
            _say_outcome(self._span, error)
            self._span.end()
        except Exception:
            log.exception("the end of a model call is not traced")


def call_attributes(call: CallRecord, endpoint: Endpoint) -> dict[str, Any]:
    """What is known of a call before it is made."""
    said: dict[str, Any] = {
        names.OPERATION: names.CHAT,
        names.PROVIDER: endpoint.name,
        names.CONFIGURED_PROVIDER: call.resolved.provider,
        names.REQUEST_MODEL: call.resolved.upstream,
        names.OUTPUT_TYPE: "text" if call.request.output_schema is None else "json",
        names.PURPOSE: call.purpose,
    }
    if call.purpose == "step":
        said[names.REQUEST_STREAM] = True
    if call.is_compacted:
        said[names.COMPACTED] = True
    if endpoint.address is not None:
        said |= {names.SERVER_ADDRESS: endpoint.address, names.SERVER_PORT: endpoint.port}
    return said


def usage_attributes(usage: TokenUsage) -> dict[str, int]:
    """Tokens as a provider told them; the cached ones are part of the input, reasoning of the output."""
    return {
        names.INPUT_TOKENS: usage.input_tokens,
        names.OUTPUT_TOKENS: usage.output_tokens,
        names.CACHE_READ_TOKENS: usage.input_tokens_details.cached_tokens,
        names.REASONING_TOKENS: usage.output_tokens_details.reasoning_tokens,
    }


def _told(call: CallRecord) -> dict[str, Any]:
    said: dict[str, Any] = {}
    if call.usage is not None:
        said |= usage_attributes(call.usage)
    if call.told is not None and call.told.cache_write_tokens is not None:
        said[names.CACHE_WRITE_TOKENS] = call.told.cache_write_tokens
    response_id = getattr(call.told, "response_id", None)
    if response_id is not None:
        said[names.RESPONSE_ID] = response_id
    if call.first_output_us is not None and call.started_us is not None:
        said[names.FIRST_CHUNK] = (call.first_output_us - call.started_us) / 1e6
    if call.cost is not None:
        price, cost = call.cost
        said |= {names.COST: cost / NANO, names.CURRENCY: price.currency}
    return said


def _say_outcome(span: Span, error: BaseException | None) -> None:
    """Say how a call ended; messages of errors are texts, and stay out."""
    match error:
        case None:
            span.set_attribute(names.OUTCOME, "ok")
            return
        case asyncio.CancelledError():
            span.set_attribute(names.OUTCOME, "cancelled")
            return
        case OwnershipLost() | Fenced() | SessionGone() | TurnOver():
            span.set_attribute(names.OUTCOME, "broken_off")
            return
        case ModelError():
            code: str = error.code
            span.set_attribute(names.RETRYABLE, error.retryable)
            if error.status is not None:
                span.set_attribute(names.HTTP_STATUS, error.status)
        case TimeoutError():
            code = "request_timeout"
        case _:
            code = "internal_error"
    span.set_attributes({names.OUTCOME: "failed", names.ERROR_TYPE: code})
    span.set_status(Status(StatusCode.ERROR))
