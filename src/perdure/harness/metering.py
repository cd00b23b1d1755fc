"""One model call as it is counted: waiting for its place, its first output, its end and its cost."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from perdure.config.metrics import LoopMetrics, ModelLabels
from perdure.config.prices import NANO, PriceSettings
from perdure.models.errors import ModelError
from perdure.models.registry import Resolved
from perdure.wire.usage import TokenUsage


class Meter:
    """A model call that is under way."""

    def __init__(self, loop: LoopMetrics, model: ModelLabels) -> None:
        self._loop = loop
        self._model = model
        self._began = time.monotonic()
        self._answers = False

    def output(self) -> None:
        """The answer has begun; said again, it changes nothing."""
        if not self._answers:
            self._answers = True
            self._loop.first_output.labels(self._model.provider, self._model.model).observe(
                time.monotonic() - self._began
            )

    def used(self, usage: TokenUsage | None) -> None:
        """What the provider told of the finished call."""
        if usage is None:
            return
        cached, reasoning = (
            usage.input_tokens_details.cached_tokens,
            usage.output_tokens_details.reasoning_tokens,
        )
        for kind, tokens in (
            ("input", usage.input_tokens - cached),
            ("cached_input", cached),
            ("output", usage.output_tokens - reasoning),
            ("reasoning", reasoning),
        ):
            # A provider may count apart what others count as a part.
            self._loop.tokens.labels(self._model.provider, self._model.model, kind).inc(max(tokens, 0))

    def cost(self, known: tuple[PriceSettings, int] | None) -> None:
        """What the call has cost by its price, in billionths of the currency's unit."""
        if known is not None:
            price, cost = known
            self._loop.cost.labels(self._model.provider, self._model.model, price.currency).inc(cost / NANO)

    def ended(self, outcome: str, code: str = "") -> None:
        model = self._model
        self._loop.model_calls.labels(model.provider, model.model, outcome, code).inc()
        self._loop.model_call_duration.labels(model.provider, model.model).observe(
            time.monotonic() - self._began
        )


def count_retry(loop: LoopMetrics, resolved: Resolved, error: ModelError) -> None:
    """Count a call that failed and is to be made again."""
    model = loop.labels_of(resolved.provider, resolved.upstream)
    loop.retries.labels(model.provider, model.model, error.code).inc()


@asynccontextmanager
async def metered_call(
    loop: LoopMetrics, places: asyncio.Semaphore, resolved: Resolved
) -> AsyncIterator[Meter]:
    """Wait for a place among the model calls of the process, hold it, and count how the call ended."""
    loop.model_calls_waiting.inc()
    try:
        await places.acquire()
    finally:
        loop.model_calls_waiting.dec()
    loop.model_calls_running.inc()
    meter = Meter(loop, loop.labels_of(resolved.provider, resolved.upstream))
    try:
        yield meter
    except ModelError as error:
        meter.ended("retryable_error" if error.retryable else "error", error.code)
        raise
    except TimeoutError:
        meter.ended("error", "request_timeout")
        raise
    except asyncio.CancelledError:
        meter.ended("cancelled")
        raise
    except Exception:
        # Ours, not the provider's: a lost session, a full disk, a bug.
        meter.ended("error", "internal_error")
        raise
    else:
        meter.ended("ok")
    finally:
        loop.model_calls_running.dec()
        places.release()
