"""Ceilings: checked in the one place that spends, before each model call."""

from __future__ import annotations

from perdure.config.settings import Settings
from perdure.store.boundary import Failure
from perdure.store.rows import TurnRow
from perdure.store.steps import Spent


def exceeded(turn: TurnRow, settings: Settings, unsaved: Spent) -> Failure | None:
    """Why the turn may make no further model call, if it may not; `unsaved` is not in its row yet."""
    limits = settings.limits
    model_calls = turn.model_calls + unsaved.model_calls
    active_us = turn.active_us + unsaved.active_us
    if model_calls >= limits.model_calls_per_turn:
        return Failure(
            "usage_limit_exceeded",
            f"The turn has made {model_calls} model calls, which is the limit (limits.model_calls_per_turn).",
        )
    if turn.tool_calls >= limits.tool_calls_per_turn:
        return Failure(
            "usage_limit_exceeded",
            f"The turn has made {turn.tool_calls} tool calls, which is the limit "
            "(limits.tool_calls_per_turn).",
        )
    if active_us >= settings.work.turn_timeout * 1e6:
        return Failure(
            "request_timeout",
            f"The turn was active for longer than {int(settings.work.turn_timeout)} seconds.",
        )
    return None
