"""Rows as frozen values, and the protocol resources they are shown as."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from sqlalchemy import Row

from perdure.wire.actions import FunctionCallAction, RequiredAction
from perdure.wire.agents import AgentSettings, SessionAgent, session_agent_resource
from perdure.wire.items import Item, ItemAdapter
from perdure.wire.sessions import Session
from perdure.wire.subagents import Subagent, SubagentStatus
from perdure.wire.turns import Turn, TurnError, TurnStatus
from perdure.wire.usage import TokenUsage

SessionStatus = Literal["idle", "in_progress", "requires_action", "failed"]
CallState = Literal["open", "answered", "applied", "dropped", "refused"]
TERMINAL = frozenset({"completed", "failed", "cancelled"})


@dataclass(frozen=True, slots=True)
class Config:
    """One version of a session's configuration, parsed once and shared."""

    version: int
    settings: AgentSettings
    agent: SessionAgent


@dataclass(frozen=True, slots=True)
class TurnRow:
    id: str
    session_id: str
    agent_id: str
    subagent_id: str | None
    pos: int
    status: TurnStatus
    config_version: int
    created_us: int
    started_us: int | None
    completed_us: int | None
    active_us: int
    error: Mapping[str, Any] | None
    usage: Mapping[str, Any] | None
    usage_unknown: bool
    prompt_cache: Mapping[str, Any] | None
    outputs: int
    model_calls: int
    tool_calls: int
    spent: Mapping[str, int] | None = None

    @property
    def resource(self) -> Turn:
        return Turn(
            id=self.id,
            session_id=self.session_id,
            agent_id=self.agent_id,
            subagent_id=self.subagent_id,
            status=self.status,
            created_at=self.created_us // 1_000_000,
            started_at=None if self.started_us is None else self.started_us // 1_000_000,
            completed_at=None if self.completed_us is None else self.completed_us // 1_000_000,
            error=None if self.error is None else TurnError.model_validate(self.error),
            usage=None if self.usage is None else TokenUsage.model_validate(self.usage),
            prompt_cache_options=self.prompt_cache,
        )


@dataclass(frozen=True, slots=True)
class ItemRow:
    session_id: str
    pos: int
    id: str
    turn_id: str
    agent_id: str
    step: int | None
    type: str
    status: str | None
    output_index: int | None
    data: Mapping[str, Any]
    private: Mapping[str, Any] | None

    @property
    def resource(self) -> Item:
        shown = {**self.data, "id": self.id, "turn_id": self.turn_id, "type": self.type}
        if self.status is not None:
            shown["status"] = self.status
        return ItemAdapter.validate_python(shown)

    def emptied(self) -> ItemRow:
        """The item as it looked before any of its text was written."""
        empty: dict[str, Any] = {"content": [], "phase": None} if self.type == "message" else {"summary": []}
        return replace(self, data={**self.data, **empty})


@dataclass(frozen=True, slots=True)
class CallRow:
    session_id: str
    call_id: str
    turn_id: str
    agent_id: str
    item_id: str
    pos: int
    name: str
    arguments: Any
    is_async: bool
    state: CallState
    result: Mapping[str, Any] | None
    created_us: int

    @property
    def action(self) -> RequiredAction:
        return FunctionCallAction(
            turn_id=self.turn_id, call_id=self.call_id, name=self.name, arguments=self.arguments
        )


@dataclass(frozen=True, slots=True)
class SubagentRow:
    """`turn_id` is its unfinished turn; `depth` counts from 1 for the children of the root agent."""

    session_id: str
    pos: int
    id: str
    parent_agent_id: str
    depth: int
    name: str
    instructions: Sequence[Mapping[str, str]]
    status: SubagentStatus
    opened_us: int
    closed_us: int | None
    turn_id: str | None

    @property
    def state(self) -> str:
        """`running`, `idle` or `closed`: what other agents are told."""
        if self.turn_id is not None:
            return "running"
        return "closed" if self.status == "closed" else "idle"

    @property
    def task(self) -> str:
        return "".join(part["text"] for part in self.instructions)

    @property
    def resource(self) -> Subagent:
        return Subagent.model_validate(
            {
                "id": self.id,
                "session_id": self.session_id,
                "parent_agent_id": self.parent_agent_id,
                "name": self.name,
                "instructions": self.instructions,
                "status": self.status,
                "opened_at": self.opened_us // 1_000_000,
                "closed_at": None if self.closed_us is None else self.closed_us // 1_000_000,
            }
        )


def turn_row(row: Row[Any]) -> TurnRow:
    return TurnRow(**row._mapping)


def subagent_row(row: Row[Any]) -> SubagentRow:
    return SubagentRow(**row._mapping)


def call_row(row: Row[Any]) -> CallRow:
    return CallRow(**row._mapping)


def session_resource(row: Mapping[str, Any], config: Config, actions: list[RequiredAction]) -> Session:
    """The session as the protocol shows it, from its row, configuration and open actions."""
    review = row["review"]
    return Session(
        id=row["id"],
        agent=config.agent,
        created_at=row["created_us"] // 1_000_000,
        last_active_at=row["last_active_us"] // 1_000_000,
        environment=row["environment"],
        error=row["error"],
        metadata=row["metadata"],
        required_actions=actions,
        status=row["status"],
        usage=None if row["usage"] is None else TokenUsage.model_validate(row["usage"]),
        vault_ids=row["vault_ids"],
        prompt_cache_options=row["prompt_cache"],
        review=None if review == "none" else review,
    )


def config_of(version: int, settings: Mapping[str, Any], agent_id: str, name: str | None) -> Config:
    parsed = AgentSettings.model_validate(settings)
    return Config(version, parsed, session_agent_resource(agent_id, name, parsed))
