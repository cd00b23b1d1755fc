"""What the loop needs from the rest of the house."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from perdure.config.metrics import Metrics
from perdure.config.settings import Settings
from perdure.harness.background import Background
from perdure.harness.conversations import Conversations
from perdure.harness.ownership import Ownership, Unending
from perdure.harness.room import Windows
from perdure.live.hub import Hub
from perdure.models.registry import Registry
from perdure.store.engine import Store


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
    ownership: Ownership = field(default_factory=lambda: Unending("worker"))

    @property
    def call_timeout_us(self) -> int | None:
        seconds = self.settings.work.call_timeout
        return None if seconds is None else int(seconds * 1e6)
