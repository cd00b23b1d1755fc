"""`perdure worker`: a process that runs sessions and answers no requests."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal

from perdure.api.process import Refused, explain, run_process
from perdure.api.services import Services, open_services
from perdure.config.settings import Settings
from perdure.store.engine import is_sqlite

log = logging.getLogger(__name__)


def run(settings: Settings) -> int:
    """Run sessions until SIGTERM or SIGINT; returns the exit status (see `run_process`)."""
    if is_sqlite(settings.database):
        return explain(
            Refused(
                "A worker needs PostgreSQL: one process owns a SQLite database, and that is perdure serve. "
                "Name a --database postgresql://… for both."
            )
        )
    return run_process(settings, lambda: _work(settings))


async def _work(settings: Settings) -> int:
    stopping = asyncio.Event()
    async with open_services(settings, runs_sessions=True) as services:
        _handle_signals(services, stopping)
        with contextlib.ExitStack() as stack:
            if settings.work.metrics_port is not None:
                from perdure.config.exposition import serve_metrics

                stack.enter_context(
                    serve_metrics(services.metrics, settings.work.metrics_host, settings.work.metrics_port)
                )
            await services.work.start()
            print("perdure worker ready", flush=True)
            await stopping.wait()
    return 0


def _handle_signals(services: Services, stopping: asyncio.Event) -> None:
    """The first signal drains; a second SIGINT waits for nothing more."""

    def stop(number: signal.Signals) -> None:
        if stopping.is_set():
            if number == signal.SIGINT:
                services.work.hurry()
            return
        log.info("draining")
        services.begin_stopping()
        stopping.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)
