"""The parts of a running server, opened and closed together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from perdure.api.fanout import Alone, FanOut, make_fanout
from perdure.api.keyring import Keyring
from perdure.api.traces import open_tracing
from perdure.config.metrics import Metrics
from perdure.config.settings import Settings
from perdure.harness.deps import Deps
from perdure.live.hub import Hub
from perdure.models.registry import Registry
from perdure.store.engine import Store, is_sqlite
from perdure.store.sqlite import SqliteStore
from perdure.store.tx import Announcement, Closed, Published, TurnEnded, TurnRecovered, Woken
from perdure.work.opening import open_work
from perdure.work.port import Work


@dataclass(frozen=True, slots=True)
class Services:
    settings: Settings
    store: Store
    hub: Hub
    registry: Registry
    work: Work
    keyring: Keyring
    metrics: Metrics

    def begin_stopping(self) -> None:
        """End the streams and start no more work; requests are still answered."""
        self.hub.close()
        self.work.drain()


@asynccontextmanager
async def open_services(
    settings: Settings, *, bootstrap_key: str | None = None, runs_sessions: bool = True
) -> AsyncIterator[Services]:
    """Open the store, the loop and the model registry; hand sessions back and close on the way out.

    Nothing runs before `work.start()`: a server that cannot serve must not call a model.

    Args:
        bootstrap_key: a key that is valid without being in the database.
        runs_sessions: whether this process is a worker; otherwise it leaves all sessions to others.

    Raises:
        StoreError, SchemaTooNew, ConfigError: the server cannot run with these settings.
    """
    metrics = Metrics()
    hub = Hub(settings.server.stream_buffer)
    hub.on_interrupted = metrics.http.streams_interrupted.inc
    work: Work | None = None
    fanout: FanOut = Alone(hub)

    def announce(announcement: Announcement) -> None:
        match announcement:
            case Published(session_id, epoch, seq, event):
                fanout.published(session_id, epoch, seq, event)
            case Woken(session_id):
                wake(session_id)
                if work is None or not work.owns(session_id):
                    fanout.accepted(session_id)
            case Closed(session_id):
                fanout.closed(session_id)
            case TurnEnded(status=status, code=code, active_us=active_us, turn=turn):
                metrics.loop.turn_ended(status, code, active_us)
                tracing.ended(turn)
            case TurnRecovered(session_id, turn_id):
                metrics.loop.turns_recovered.inc()
                tracing.recovered(session_id, turn_id)

    def wake(session_id: str) -> None:
        if work is not None:
            work.wake(session_id)

    def wake_from_afar(session_id: str) -> None:
        if runs_sessions:
            wake(session_id)

    def may_speak(session_id: str) -> bool:
        return work is None or not work.owns(session_id) or work.may_publish()

    registry = Registry(settings)
    tracing = open_tracing(settings)
    store = await _open_store(settings, announce, metrics)
    try:
        fanout = make_fanout(settings, store, hub, may_speak=may_speak, woken=wake_from_afar)
        places = asyncio.Semaphore(settings.work.model_concurrency)
        deps = Deps(settings, store, hub, registry, places, metrics=metrics, tracing=tracing)
        work = open_work(deps, runs_sessions=runs_sessions)
        try:
            await fanout.start()
            yield Services(settings, store, hub, registry, work, Keyring(store, bootstrap_key), metrics)
        finally:
            hub.close()
            await work.stop()
            await fanout.stop()
    finally:
        await registry.close()
        await store.close()
        await tracing.close(settings.server.shutdown_grace)


async def _open_store(
    settings: Settings, announce: Callable[[Announcement], None], metrics: Metrics
) -> Store:
    if is_sqlite(settings.database):
        return await SqliteStore.open(settings.database, announce, metrics.store)
    from perdure.store.postgres import PostgresStore
    from perdure.work.queue import enqueue
    from perdure.work.queue_schema import prepare_queue

    store = await PostgresStore.open(
        settings.database,
        announce,
        enqueue=enqueue,
        connections=settings.database_connections,
        metrics=metrics.store,
    )
    try:
        await asyncio.to_thread(prepare_queue, settings.database)
    except BaseException:
        await store.close()
        raise
    return store
