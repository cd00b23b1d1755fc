"""Requests that are repeated until their outcome is known, each under one idempotency key."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, TypeVar
from uuid import uuid4

if TYPE_CHECKING:
    from openai import APIStatusError

log = logging.getLogger(__name__)

T = TypeVar("T")

RACE_DELAYS = (0.1, 0.3, 0.6)
FIRST_DELAY = 0.1
MOST_DELAY = 5.0
LONGEST_ASKED = 60.0
CONFLICT_PATIENCE = 5.0
"""A turn that is cancelled winds down for about as long; a conflict that lasts is meant."""


def new_key() -> str:
    """A fresh idempotency key."""
    return f"perdure-{uuid4()}"


def delays(patience: float) -> Iterator[float]:
    """Growing pauses in seconds, with some chance in them, that add up to about `patience`."""
    left, delay = patience, FIRST_DELAY
    while left > 0:
        pause = min(delay, left) * random.uniform(0.8, 1.0)
        yield pause
        left -= pause
        delay = min(delay * 2, MOST_DELAY)


async def persistently(request: Callable[[], Awaitable[T]], patience: float, *, settles: bool = False) -> T:
    """Make a request until it is answered, for about `patience` seconds.

    What may help is tried again: lost connections, 408, 429, 5xx, and a 409 of a server that asks for it.
    The request must carry an idempotency key, or be one that may be repeated.

    Args:
        settles: also try again on any 409, for requests that a turn holds up while it winds down.

    Raises:
        openai.APIError: the last one.
    """
    from openai import APIConnectionError, APIStatusError

    pauses, conflicts = delays(patience), delays(min(patience, CONFLICT_PATIENCE))
    while True:
        try:
            return await request()
        except APIConnectionError as error:
            told: Exception = error
            pause = next(pauses, None)
        except APIStatusError as error:
            is_conflict = error.status_code == 409
            if not (_may_pass(error) or (settles and is_conflict)):
                raise
            told = error
            pause = next(conflicts if is_conflict else pauses, None)
            if pause is not None:
                pause = max(pause, _asked_pause(error))
        if pause is None:
            raise told
        log.info("The server gave %s; trying again in %.1f s", type(told).__name__, pause)
        await asyncio.sleep(pause)


def _may_pass(error: APIStatusError) -> bool:
    match error.response.headers.get("x-should-retry"):
        case "true":
            return True
        case "false":
            return False
        case _:
            return error.status_code in (408, 409, 429) or error.status_code >= 500


def _asked_pause(error: APIStatusError) -> float:
    """The seconds that the server asks to wait, if it does; at most `LONGEST_ASKED`."""
    try:
        return min(float(error.response.headers.get("retry-after", 0)), LONGEST_ASKED)
    except ValueError:  # a date
        return 0.0
