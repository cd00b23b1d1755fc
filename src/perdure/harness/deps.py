"""What the loop needs from the rest of the house."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from functools import lru_cache

from perdure.config.metrics import Metrics
from perdure.config.settings import Settings, SubagentSettings
from perdure.harness.background import Background
from perdure.harness.conversations import Conversations
from perdure.harness.ownership import Ownership, Unending
from perdure.harness.room import Windows
from perdure.harness.tracing import OFF, Tracing
from perdure.live.hub import Hub
from perdure.models.registry import Registry
from perdure.store.engine import Store
from perdure.store.policy import Policy


@dataclass(frozen=True, slots=True)
class Deps:
    """`model_calls` bounds the model calls of the process that run at once."""

    settings: Settings
    store: Store
    hub: Hub
    registry: Registry
    model_calls: asyncio.Semaphore
    conversations: Conversations = field(default_factory=Conversations)
    background: Background = field(default_factory=Background)
    windows: Windows = field(default_factory=Windows)
    metrics: Metrics = field(default_factory=Metrics)
    tracing: Tracing = OFF
    ownership: Ownership = field(default_factory=lambda: Unending("worker"))

    @property
    def policy(self) -> Policy:
        """What the settings say about waiting and about subagents."""
        return _policy(self.settings.work.call_timeout, self.settings.subagents)


@lru_cache(maxsize=16)
def _policy(call_timeout: float | None, subagents: SubagentSettings) -> Policy:
    return Policy(
        call_timeout_us=None if call_timeout is None else int(call_timeout * 1e6),
        depth=subagents.depth,
        most=subagents.per_session,
        wait_us=int(subagents.wait * 1e6),
        longest_wait_us=int(subagents.longest_wait * 1e6),
        reports_wake=subagents.reports_wake,
    )
