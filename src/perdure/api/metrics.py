"""`/metrics`: what this process counts, and what waits in the database, for a scraper.

Where several processes accept from one socket, a scrape meets any of them: it is told only what is the
same in all, and each process counts on a port of its own.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import ExitStack

from fastapi import APIRouter, Request, Response

from perdure.api.access import UseServices
from perdure.api.services import Services
from perdure.config.exposition import render, serve_metrics
from perdure.store.backlog import read_backlog
from perdure.store.engine import now_us

log = logging.getLogger(__name__)

LOOK_EVERY = 10.0
LOOK_SECONDS = 2.0

routes = APIRouter(include_in_schema=False)


@routes.get("/metrics")
async def scrape(request: Request, services: UseServices) -> Response:
    """The metrics as text, or as OpenMetrics where that is asked for."""
    await _look(services)
    accept = request.headers.get("accept", "")
    metrics = services.metrics
    registry = metrics.common if services.settings.work.workers > 1 else metrics.registry
    # Some thousand lines: the streams of others go on meanwhile.
    body, content_type = await asyncio.to_thread(render, registry, accept)
    return Response(body, headers={"content-type": content_type})


def open_port(services: Services) -> ExitStack:
    """Answer scrapes of this process alone on a port of its own, until the result is closed.

    It is one for each process from `work.metrics_port` on; without that setting there is none, and
    a process that is alone has no need of it.

    Raises:
        OSError: no such port is free.
    """
    work = services.settings.work
    opened = ExitStack()
    if work.metrics_port is not None and work.workers > 1:
        opened.enter_context(
            serve_metrics(services.metrics, work.metrics_host, work.metrics_port, ports=work.workers)
        )
    return opened


async def _look(services: Services) -> None:
    """Look at the database, unless that was done shortly before."""
    database = services.metrics.database
    if not database.is_older_than(LOOK_EVERY):
        return
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            backlog = await services.store.read(read_backlog, now_us())
    except Exception:
        # A scraper learns of a failing database by what it reads; it must get an answer.
        log.exception("the database could not be read for the metrics")
        database.show(None)
    else:
        database.show(backlog)
