"""A process of perdure from its first line to its exit status, whatever it is there for."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Coroutine
from typing import Any

import uvloop

from perdure.config.logging import configure_logging
from perdure.config.memory import return_large_blocks
from perdure.config.settings import ConfigError, Settings
from perdure.secrets.redaction import Redactor
from perdure.store.engine import StoreError
from perdure.store.migrate import SchemaTooNew

EXIT_FAILED = 1
EXIT_REFUSED = 2


class Refused(Exception):
    """This process must not start with these settings; the message says why and what to do."""


def run_process(settings: Settings, main: Callable[[], Coroutine[Any, Any, int]]) -> int:
    """Run `main` in an event loop with logging configured; returns the exit status.

    0: ended cleanly. 1: could not start, or failed. 2: refused to start with these settings.
    """
    return_large_blocks()
    configure_logging(settings.log, Redactor(settings.secret_values()).redact)
    for noisy in ("alembic", "uvicorn"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(main())
    except (Refused, ConfigError, StoreError, SchemaTooNew, OSError) as error:
        return explain(error)
    except KeyboardInterrupt:
        return 0


def explain(error: Exception) -> int:
    """Say on standard error why the process ends; returns its exit status."""
    print(f"perdure: {error}", file=sys.stderr)
    return EXIT_REFUSED if isinstance(error, Refused | ConfigError) else EXIT_FAILED
