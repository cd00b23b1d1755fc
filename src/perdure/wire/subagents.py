"""Subagents: agents that a session's agent created."""

from __future__ import annotations

from typing import Literal

from perdure.wire.items import AgentContent
from perdure.wire.shapes import Resource

SubagentStatus = Literal["active", "closed"]


class Subagent(Resource):
    """A subagent; `opened_at` stays when it is closed and resumed. Times in Unix seconds."""

    id: str
    object: Literal["agent.session.subagent"] = "agent.session.subagent"
    session_id: str
    parent_agent_id: str
    name: str | None = None
    instructions: list[AgentContent] | None = None
    status: SubagentStatus
    opened_at: int
    closed_at: int | None = None
