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

    pauses = delays(patience)
    while True:
        try:
            return await request()
        except (APIConnectionError, APIStatusError) as error:
            if isinstance(error, APIStatusError) and not (
                _may_pass(error) or (settles and error.status_code == 409)
            ):
                raise
            pause = next(pauses, None)
            if pause is None:
                raise
            log.info("The server gave %s; trying again in %.1f s", type(error).__name__, pause)
        await asyncio.sleep(pause)


def _may_pass(error: APIStatusError) -> bool:
    match error.response.headers.get("x-should-retry"):
        case "true":
            return True
        case "false":
            return False
        case _:
            return error.status_code in (408, 409, 429) or error.status_code >= 500
