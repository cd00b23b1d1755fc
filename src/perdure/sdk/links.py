"""How sessions that belong together are tied: metadata on both, and keys that make one session per call."""

from __future__ import annotations

import hashlib
from typing import Literal

from perdure.sdk.calls import CallPair

Kind = Literal["agent_tool", "handoff"]

AGENT = "perdure_agent"
LINK = "perdure_link"
FROM_SESSION = "perdure_from_session"
FROM_TURN = "perdure_from_turn"
FROM_CALL = "perdure_from_call"
TO_SESSION = "perdure_handoff_session"
TO_TURN = "perdure_handoff_turn"
TO_CALL = "perdure_handoff_call"
FORWARD = (TO_SESSION, TO_TURN, TO_CALL)


def backward(kind: Kind, pair: CallPair) -> dict[str, str]:
    """Metadata of a session that a call began: which call of which turn of which session."""
    return {
        LINK: kind,
        FROM_SESSION: pair.session_id,
        FROM_TURN: pair.turn_id,
        FROM_CALL: pair.call_id,
    }


def forward(session_id: str, pair: CallPair) -> dict[str, str]:
    """Metadata of a session that was handed over: where to, and by which call."""
    return {TO_SESSION: session_id, TO_TURN: pair.turn_id, TO_CALL: pair.call_id}


def creation_key(kind: Kind, pair: CallPair) -> str:
    """The idempotency key under which a call creates its session: one call, one session."""
    return f"perdure-{kind}-{hashlib.sha256(str(pair).encode()).hexdigest()}"
