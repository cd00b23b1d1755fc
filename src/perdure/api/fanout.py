"""Fan-out between processes: the bus that the settings name, with this process's store and hub."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from perdure.config.settings import Settings
from perdure.live.bus import Bus
from perdure.live.exchange import Exchange, State
from perdure.live.hub import Hub
from perdure.live.sequencer import Stretch
from perdure.store.engine import Store, StoreError, is_sqlite
from perdure.store.following import read_after, read_states
from perdure.wire.events import Event


class Alone:
    """The only process of its database: what it commits goes straight to its readers."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    def published(self, session_id: str, epoch: int, seq: int, event: Event) -> None:
        self._hub.publish(session_id, seq, event)

    def closed(self, session_id: str) -> None:
        self._hub.close_session(session_id)

    def accepted(self, session_id: str) -> None:
        """Nobody else runs sessions."""

    async def start(self) -> None:
        """Nothing to connect to."""

    async def stop(self) -> None:
        """Nothing to disconnect from."""


FanOut = Alone | Exchange


def make_fanout(
    settings: Settings,
    store: Store,
    hub: Hub,
    *,
    may_speak: Callable[[str], bool],
    woken: Callable[[str], None],
) -> FanOut:
    """The way of this process's events; it is to be started.

    Args:
        may_speak: whether this process may still say something about a session it runs.
        woken: called when another process accepted input for a session.

    Raises:
        StoreError: packages that the bus needs are not installed.
    """
    if is_sqlite(settings.database):
        return Alone(hub)

    async def stretch(session_id: str, after: int, limit: int) -> Stretch | None:
        return await store.read(read_after, session_id, after, limit)

    async def states(session_ids: Sequence[str]) -> Sequence[State]:
        return await store.read(read_states, session_ids)

    return Exchange(hub, _open_bus(settings), stretch, states, may_speak=may_speak, woken=woken)


def _open_bus(settings: Settings) -> Bus:
    if settings.bus is None:
        from sqlalchemy.engine import make_url

        from perdure.live.notify import NotifyBus
        from perdure.store.connections import POSTGRES_TRANSPORT, postgres_text

        return NotifyBus(postgres_text(make_url(settings.database)), POSTGRES_TRANSPORT)
    try:
        import nats  # noqa: F401
    except ImportError as error:
        raise StoreError(
            "The bus needs a package that is not installed; pip install 'perdure[nats]'"
        ) from error
    from perdure.live.nats import NatsBus

    return NatsBus(settings.bus)
