"""Where traces go: an OTLP exporter over HTTP, told by the standard `OTEL_*` variables.

The provider of a server is its own and never the process's global one: other instrumentation, of a program
that embeds the server, neither gets our spans nor gives us its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
from typing import TYPE_CHECKING

from perdure import __version__
from perdure.config import telemetry as names
from perdure.config.problems import ConfigError, Problem
from perdure.config.settings import Settings
from perdure.harness.tracing import OFF, Tracing

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter

log = logging.getLogger(__name__)

LONGEST_FLUSH = 5.0
"""Seconds for which a process that stops waits for its collector, even if it has more."""
_KEY = "telemetry.traces"
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")


def open_tracing(settings: Settings) -> Tracing:
    """What the loop tells its work to; nothing is loaded for it unless traces are asked for.

    Raises:
        ConfigError: they cannot be sent from here.
    """
    if not settings.telemetry.traces:
        return OFF
    try:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        from perdure.harness.spans import Spans, TurnIds

        exporter = make_exporter()
        ids = TurnIds()
        provider = TracerProvider(
            resource=Resource.create(_resource()),
            id_generator=ids,
            # At exit it would wait for the collector for half a minute; `close` does not.
            shutdown_on_exit=False,
        )
        provider.add_span_processor(BatchSpanProcessor(exporter))
    except ImportError as error:
        raise _refuse(
            f"is on, but a package for it is missing ({error.name}); "
            "install it with: pip install 'perdure[telemetry]'"
        ) from error
    except ValueError as error:
        raise _refuse(f"is on, but an OTEL_* variable cannot be used: {error}") from error
    tracer = provider.get_tracer(names.SCOPE, __version__, schema_url=names.SCHEMA_URL)
    endpoints = {provider.name: names.endpoint_of(provider) for provider in settings.providers}

    async def close(seconds: float) -> None:
        await _shut_down(provider, min(seconds, LONGEST_FLUSH))

    return Spans(tracer, ids, endpoints, close)


def make_exporter() -> SpanExporter:
    """The exporter that the environment asks for.

    Raises:
        ConfigError: it asks for a protocol that is not spoken here.
        ImportError, ValueError: see `open_tracing`.
    """
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    for variable in _PROTOCOLS:
        if protocol := os.environ.get(variable):
            if protocol != "http/protobuf":
                raise _refuse(f"is on, but {variable} is {protocol!r}; allowed: http/protobuf, or unset")
            break
    return OTLPSpanExporter()


def _resource() -> dict[str, str]:
    """What the environment does not say of this service."""
    said = {names.SERVICE_VERSION: __version__}
    if not os.environ.get("OTEL_SERVICE_NAME") and names.SERVICE_NAME not in os.environ.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    ):
        said[names.SERVICE_NAME] = "perdure"
    return said


async def _shut_down(provider: TracerProvider, seconds: float) -> None:
    """Send what is left. A collector that does not answer is left to a thread that ends with the process."""
    loop = asyncio.get_running_loop()
    done = asyncio.Event()

    def flush() -> None:
        try:
            provider.shutdown()
        except Exception:
            log.exception("the last spans were not sent")
        with contextlib.suppress(RuntimeError):  # nobody waits any more
            loop.call_soon_threadsafe(done.set)

    threading.Thread(target=flush, name="last spans", daemon=True).start()
    try:
        async with asyncio.timeout(seconds):
            await done.wait()
    except TimeoutError:
        log.warning("the collector did not take the last spans within %.1f s", seconds)


def _refuse(message: str) -> ConfigError:
    return ConfigError([Problem(_KEY, message)])
