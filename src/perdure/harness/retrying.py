"""How long to wait before a failed model call is made again."""

from __future__ import annotations

import random

from perdure.config.settings import RetrySettings
from perdure.models.errors import ModelError


def is_too_large(error: ModelError) -> bool:
    """Whether the provider refused a request for its size: a smaller one may do."""
    return error.code == "context_length_exceeded" or error.status == 413


def retry_delay(error: ModelError, tries: int, retry: RetrySettings) -> float:
    """Seconds until the next attempt, the provider's own wish included; `tries` have failed."""
    backoff: float = min(retry.max_delay, retry.base_delay * 2 ** (tries - 1)) * random.uniform(0.5, 1.0)
    return backoff if error.retry_after is None else max(error.retry_after, backoff)
