"""The parts of a running server, opened and closed together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from perdure.api.keyring import Keyring
from perdure.config.settings import Settings
from perdure.harness.deps import Deps
from perdure.live.hub import Hub
from perdure.models.registry import Registry
from perdure.store.engine import Store
from perdure.store.sqlite import SqliteStore
from perdure.store.tx import Announcement, Closed, Published, Woken
from perdure.work.embedded import EmbeddedWork


@dataclass(frozen=True, slots=True)
class Services:
    settings: Settings
    store: Store
    hub: Hub
    registry: Registry
    work: EmbeddedWork
    keyring: Keyring

    def begin_stopping(self) -> None:
        """End the streams and start no more work; requests are still answered."""
        self.hub.close()
        self.work.drain()


@asynccontextmanager
async def open_services(settings: Settings, *, bootstrap_key: str | None = None) -> AsyncIterator[Services]:
    """Open the store, the loop and the model registry; hand sessions back and close on the way out.

    Nothing runs before `work.start()`: a server that cannot serve must not call a model.

    Raises:
        StoreError, SchemaTooNew, ConfigError: the server cannot run with these settings.
    """
    hub = Hub(settings.server.stream_buffer)
    work: EmbeddedWork | None = None

    def announce(announcement: Announcement) -> None:
        match announcement:
            case Published():
                hub.publish(announcement.session_id, announcement.seq, announcement.event)
            case Woken():
                if work is not None:
                    work.wake(announcement.session_id)
            case Closed():
                hub.close_session(announcement.session_id)

    registry = Registry(settings)
    store = await SqliteStore.open(settings.database, announce)
    try:
        deps = Deps(settings, store, hub, registry, asyncio.Semaphore(settings.work.model_concurrency))
        work = EmbeddedWork(deps)
        try:
            yield Services(settings, store, hub, registry, work, Keyring(store, bootstrap_key))
        finally:
            hub.close()
            await work.stop()
    finally:
        await registry.close()
        await store.close()
