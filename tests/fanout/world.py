"""A small fleet in one process: a store, several exchanges, and a network that treats messages badly."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from perdure.live.bus import BusDown, Receive, Unsubscribe
from perdure.live.exchange import Exchange
from perdure.live.hub import Hub
from perdure.live.messages import PAYLOAD_BYTES, Letter, payloads
from perdure.wire.errors import InvalidRequest
from perdure.wire.events import Event

SESSION = "sess_0123456789abcdef01234567"


@dataclass(frozen=True)
class Weather:
    """How bad the network is: shares of payloads, and seconds."""

    lost: float = 0.0
    doubled: float = 0.0
    slowest: float = 0.01


class Network:
    """Carries payloads between buses, each on its own way: late, twice, or never, in any order."""

    def __init__(self, random: Random, weather: Weather) -> None:
        self.random = random
        self.weather = weather
        self.buses: list[FakeBus] = []
        self.up = True
        self.sent = 0

    def carry(self, origin: FakeBus, payload: bytes, to: Callable[[FakeBus], bool]) -> None:
        assert len(payload) <= PAYLOAD_BYTES
        self.sent += 1
        loop = asyncio.get_running_loop()
        for bus in self.buses:
            if bus is origin or not to(bus):
                continue
            copies = 2 if self.random.random() < self.weather.doubled else 1
            for _ in range(copies):
                if self.random.random() >= self.weather.lost:
                    delay = self.random.uniform(0.0005, self.weather.slowest)
                    loop.call_later(delay, bus.arrive, payload)

    def cut(self) -> None:
        self.up = False

    def mend(self) -> None:
        self.up = True
        for bus in self.buses:
            bus.reconnected()


class FakeBus:
    """The bus of one process on the network."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.receive: Receive = lambda payload: None
        self.reconnected: Callable[[], None] = lambda: None
        self.topics: list[str] = []
        network.buses.append(self)

    async def start(self, receive: Receive, reconnected: Callable[[], None]) -> None:
        self.receive, self.reconnected = receive, reconnected

    async def stop(self) -> None:
        self.network.buses.remove(self)

    async def publish(self, letters: Sequence[Letter]) -> None:
        await asyncio.sleep(self.network.random.uniform(0, 0.003))
        if not self.network.up:
            raise BusDown("cut")
        for letter in letters:
            topic = letter.session_id
            for payload in payloads([letter]):
                self.network.carry(self, payload, lambda bus, t=topic: t is None or t in bus.topics)

    async def subscribe(self, session_id: str) -> Unsubscribe:
        await asyncio.sleep(self.network.random.uniform(0, 0.01))
        self.topics.append(session_id)

        async def unsubscribe() -> None:
            self.topics.remove(session_id)

        return unsubscribe

    def arrive(self, payload: bytes) -> None:
        if self.network.up and self in self.network.buses:
            self.receive(payload)


@dataclass(frozen=True)
class Kept:
    seq: int
    event: Event


@dataclass(frozen=True)
class KeptStretch:
    events: tuple[Kept, ...]
    reached: int
    more: bool


@dataclass(frozen=True)
class KeptState:
    session_id: str
    seq: int
    deleted: bool


@dataclass
class Rows:
    """The stored events of the session, in the transactions that wrote them."""

    random: Random
    transactions: list[list[Kept]] = field(default_factory=list)
    deleted: bool = False
    forgotten: int = 0

    @property
    def seq(self) -> int:
        return self.transactions[-1][-1].seq if self.transactions else 0

    @property
    def events(self) -> list[Kept]:
        return [kept for transaction in self.transactions for kept in transaction]

    def append(self, make: Sequence[Callable[[str], Event]]) -> list[Kept]:
        """Commit events in one transaction."""
        first = self.seq + 1
        kept = [Kept(seq, each(f"evt_{SESSION[-16:]}_{seq}")) for seq, each in enumerate(make, first)]
        self.transactions.append(kept)
        return kept

    async def read_after(self, session_id: str, after: int, limit: int) -> KeptStretch | None:
        await asyncio.sleep(self.random.uniform(0, 0.004))
        if after < self.forgotten:
            raise InvalidRequest("no longer stored", param="after")
        found: list[Kept] = []
        for transaction in self.transactions:
            found += [kept for kept in transaction if kept.seq > after]
            if len(found) >= limit:
                break
        reached = found[-1].seq if found else after
        more = reached < self.seq
        await asyncio.sleep(self.random.uniform(0, 0.004))
        return KeptStretch(tuple(found), reached, more)

    async def read_states(self, session_ids: Sequence[str]) -> list[KeptState]:
        await asyncio.sleep(self.random.uniform(0, 0.004))
        return [KeptState(SESSION, self.seq, self.deleted)] if SESSION in session_ids else []


class Committing(Protocol):
    """A process that commits events and writes text."""

    rows: Rows
    hub: Hub
    may_speak: bool

    async def commit(self, epoch: int, *make: Callable[[str], Event]) -> int:
        """Store events in one transaction; returns the last one's sequence once they were announced."""
        ...


class Node:
    """One process: it may commit, write text and have readers."""

    def __init__(self, network: Network, rows: Rows) -> None:
        self.rows = rows
        self.hub = Hub(1 << 30)
        self.bus = FakeBus(network)
        self.woken: list[str] = []
        self.may_speak = True
        self.exchange = Exchange(
            self.hub,
            self.bus,
            rows.read_after,
            rows.read_states,
            may_speak=lambda session_id: self.may_speak,
            woken=self.woken.append,
        )
        self._announced: asyncio.Queue[tuple[int, list[Kept], asyncio.Event]] = asyncio.Queue()
        self._announcing = asyncio.create_task(self._announce())

    async def commit(self, epoch: int, *make: Callable[[str], Event]) -> int:
        """Store events in one transaction; returns the last one's sequence once they were announced."""
        await asyncio.sleep(self.rows.random.uniform(0, 0.003))
        kept = self.rows.append(make)
        announced = asyncio.Event()
        self._announced.put_nowait((epoch, kept, announced))
        await announced.wait()
        return kept[-1].seq

    async def _announce(self) -> None:
        while True:
            epoch, kept, announced = await self._announced.get()
            await asyncio.sleep(self.rows.random.uniform(0, 0.003))
            for each in kept:
                self.exchange.published(SESSION, epoch, each.seq, each.event)
            announced.set()

    async def stop(self) -> None:
        self._announcing.cancel()
        self.hub.close()
        await self.exchange.stop()
