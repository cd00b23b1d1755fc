"""Metrics as a scraper reads them: one answer, or a port of its own for a process without HTTP."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, CollectorRegistry, generate_latest, start_http_server
from prometheus_client.openmetrics import exposition as openmetrics

from perdure.config.metrics import Metrics


def render(registry: CollectorRegistry, accept: str) -> tuple[bytes, str]:
    """The metrics and their content type: OpenMetrics if the `Accept` header asks for it, else text."""
    if "application/openmetrics-text" in accept:
        text: bytes = openmetrics.generate_latest(registry, version="1.0.0")  # type: ignore[no-untyped-call]
        return text, "application/openmetrics-text; version=1.0.0; charset=utf-8"
    return generate_latest(registry), CONTENT_TYPE_PLAIN_0_0_4


@contextmanager
def serve_metrics(metrics: Metrics, host: str, port: int, *, ports: int = 1) -> Iterator[int]:
    """Answer scrapes on a port of their own, from a thread, until the context ends; yields the port.

    It asks for no key: whoever reaches the port reads the metrics. Port 0 picks a free one.

    Args:
        ports: from how many ports, beginning with `port`, to take the first that is free.

    Raises:
        OSError: the address cannot be used.
    """
    for each in range(port, port + ports):
        try:
            server, thread = start_http_server(each, host, metrics.registry)
            break
        except OSError as error:
            if error.errno != errno.EADDRINUSE or each == port + ports - 1:
                raise
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
