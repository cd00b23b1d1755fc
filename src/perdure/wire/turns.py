"""Turns: one cycle of work of one agent."""

from __future__ import annotations

from typing import Literal

from perdure.wire.shapes import Resource
from perdure.wire.usage import TokenUsage

TurnStatus = Literal["queued", "in_progress", "waiting", "completed", "failed", "cancelled"]
CacheLifetime = Literal["30m", "12h"]
TurnErrorCode = Literal[
    "context_length_exceeded",
    "max_output_tokens",
    "usage_limit_exceeded",
    "project_spend_limit_exceeded",
    "organization_spend_limit_exceeded",
    "organization_usage_limit_exceeded",
    "billing_not_active",
    "credit_balance_exhausted",
    "rate_limit_exceeded",
    "flex_unavailable",
    "server_overloaded",
    "cyber_policy",
    "misalignment_policy_violation",
    "connection_failed",
    "server_error",
    "authentication_error",
    "invalid_request",
    "resource_not_found",
    "sandbox_error",
    "executor_version_incompatible",
    "active_turn_not_steerable",
    "request_timeout",
    "internal_error",
]


_TYPES = {
    "authentication_error": "authentication_error",
    "context_length_exceeded": "invalid_request_error",
    "invalid_request": "invalid_request_error",
    "rate_limit_exceeded": "rate_limit_error",
    "resource_not_found": "invalid_request_error",
}


def error_type(code: TurnErrorCode) -> str:
    """The family of a turn's error, as the `error` event names it."""
    return _TYPES.get(code, "server_error")


class TurnError(Resource):
    """Why a turn failed."""

    code: TurnErrorCode
    message: str


class PromptCacheOptions(Resource):
    ttl: CacheLifetime


class Turn(Resource):
    """A turn of a session's root agent, or of a subagent (`subagent_id` set). Times in Unix seconds."""

    id: str
    object: Literal["agent.session.turn"] = "agent.session.turn"
    session_id: str
    agent_id: str
    subagent_id: str | None = None
    status: TurnStatus
    created_at: int
    started_at: int | None = None
    completed_at: int | None = None
    error: TurnError | None = None
    usage: TokenUsage | None = None
    prompt_cache_options: PromptCacheOptions | None = None
