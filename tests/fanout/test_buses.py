"""Two processes' exchanges over real buses: text and events arrive, also after the bus was away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest
import uvloop
from tests import nats as nats_server
from tests import postgres_programs
from tests.nats import NatsServer
from tests.postgres import PostgresServer

from perdure.live.bus import Bus, BusDown
from perdure.live.exchange import Exchange
from perdure.live.hub import Hub
from perdure.live.messages import PAYLOAD_BYTES, Delta, Gone, Input, letters, messages
from perdure.live.nats import NatsBus
from perdure.live.notify import NotifyBus

from .readers import Heard, check, follow
from .story import Story
from .world import SESSION, Rows

MakeBus = Callable[[], Bus]


@pytest.fixture(params=["notify", "nats"])
def make_bus(request: pytest.FixtureRequest) -> MakeBus:
    if request.param == "nats":
        url = request.getfixturevalue("nats_url")
        return lambda: NatsBus(url)
    url = request.getfixturevalue("postgres_url")
    return lambda: NotifyBus(url)


class Process:
    """What a node of the simulated fleet is, over a real bus."""

    def __init__(self, bus: Bus, rows: Rows) -> None:
        self.rows = rows
        self.hub = Hub(1 << 30)
        self.woken: asyncio.Queue[str] = asyncio.Queue()
        self.may_speak = True
        self.exchange = Exchange(
            self.hub,
            bus,
            rows.read_after,
            rows.read_states,
            may_speak=lambda session_id: self.may_speak,
            woken=self.woken.put_nowait,
        )

    async def commit(self, epoch: int, *make: Callable[[str], Any]) -> int:
        kept = self.rows.append(make)
        for each in kept:
            self.exchange.published(SESSION, epoch, each.seq, each.event)
        return kept[-1].seq


@asynccontextmanager
async def processes(make_bus: MakeBus, rows: Rows, count: int = 2) -> AsyncIterator[list[Process]]:
    found = [Process(make_bus(), rows) for _ in range(count)]
    for each in found:
        await each.exchange.start()
    try:
        yield found
    finally:
        for each in found:
            each.hub.close()
            await each.exchange.stop()


def run(main: Coroutine[Any, Any, None]) -> None:
    """On the event loop of the server."""
    uvloop.run(_in_time(main))


async def _in_time(main: Coroutine[Any, Any, None]) -> None:
    async with asyncio.timeout(20):
        await main


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - conditions of many kinds, each soon true
        await asyncio.sleep(0.005)


def texts(heard: Heard) -> list[str]:
    return [event["delta"] for event in heard.events if "delta" in event]


def test_a_reader_elsewhere_sees_text_while_it_is_written_and_then_the_rest(make_bus: MakeBus) -> None:
    async def main() -> None:
        rows = Rows(Random(1))
        async with processes(make_bus, rows) as (writer, other):
            story = Story(rows.random, [])
            writing = await story.open(writer, "message")
            writing.live.append_text("text so far, ")
            heard: list[Heard] = []
            reading = asyncio.create_task(follow(other, story, heard))
            await until(lambda: bool(heard) and texts(heard[0]) == ["text so far, "])
            for word in ("and ", "more ", "of it"):
                before = "".join(texts(heard[0]))
                writing.live.append_text(word)
                await until(lambda want=before + word: "".join(texts(heard[0])) == want)
            await story.finish(writer, writing)
            await until(lambda: heard[0].seqs[-1:] == [rows.seq])
            other.hub.close()
            await reading
            check(heard[0], story, other)

    run(main())


def test_a_whole_story_by_several_owners_reaches_readers_on_every_node(make_bus: MakeBus) -> None:
    async def main() -> None:
        rows = Rows(Random(7))
        async with processes(make_bus, rows, 3) as fleet:
            story = Story(rows.random, fleet)
            heard: list[list[Heard]] = [[] for _ in fleet]
            reading = [
                asyncio.create_task(follow(process, story, mine))
                for process, mine in zip(fleet, heard, strict=True)
            ]
            await until(lambda: all(heard))
            await story.tell(30)
            await until(lambda: all(mine[0].seqs[-1:] == [rows.seq] for mine in heard))
            for process in fleet:
                process.hub.close()
            await asyncio.gather(*reading)
            for process, mine in zip(fleet, heard, strict=True):
                check(mine[0], story, process)

    run(main())


def test_input_accepted_elsewhere_wakes_and_a_deleted_session_ends_its_streams(make_bus: MakeBus) -> None:
    async def main() -> None:
        rows = Rows(Random(2))
        async with processes(make_bus, rows) as (one, other):
            story = Story(rows.random, [one])
            await story.tell(1)
            heard: list[Heard] = []
            reading = asyncio.create_task(follow(other, story, heard))
            await until(lambda: bool(heard))
            one.exchange.accepted(SESSION)
            assert await other.woken.get() == SESSION
            rows.deleted = True
            one.exchange.closed(SESSION)
            await reading
            assert heard[0].closed

    run(main())


def test_what_a_process_sends_does_not_come_back_to_it(make_bus: MakeBus) -> None:
    async def main() -> None:
        one, other = make_bus(), make_bus()
        mine: list[bytes] = []
        theirs: list[bytes] = []
        await one.start(mine.append, lambda: None)
        await other.start(theirs.append, lambda: None)
        try:
            await other.subscribe(SESSION)
            await one.subscribe(SESSION)
            long = Delta(SESSION, 1, "turn_1", "msg_1", 0, "output_text", 0, 0, "☃\x00" * 20_000, 1)
            sent = [Input("sess_a"), long, Gone(SESSION)]
            await one.publish([letter for message in sent for letter in letters(message)])
            await until(lambda: any(Gone(SESSION) in messages(payload) for payload in theirs))
            assert all(len(payload) <= PAYLOAD_BYTES for payload in theirs)
            heard = [message for payload in theirs for message in messages(payload)]
            text = "".join(message.text for message in heard if isinstance(message, Delta))
            assert text == long.text
            assert Input("sess_a") in heard
            assert mine == []
        finally:
            await one.stop()
            await other.stop()

    run(main())


Server = NatsServer | PostgresServer


@pytest.fixture(params=["notify", "nats"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server of its own, to be killed."""
    if request.param == "nats":
        if reason := nats_server.absence():
            pytest.skip(reason)
        with NatsServer() as nats:
            yield nats
        return
    if reason := postgres_programs.absence():
        pytest.skip(reason)
    with PostgresServer(durable=True) as postgres:
        yield postgres


def bus_of(server: Server) -> MakeBus:
    if isinstance(server, NatsServer):
        return lambda: NatsBus(server.url)
    url = server.create_database()
    return lambda: NotifyBus(url)


@pytest.mark.slow
def test_a_bus_that_is_killed_in_mid_text_and_comes_back_leaves_no_gap(server: Server) -> None:
    async def main() -> None:
        rows = Rows(Random(3))
        make_bus = bus_of(server)
        async with processes(make_bus, rows) as (writer, other):
            story = Story(rows.random, [writer])
            heard: list[Heard] = []
            reading = asyncio.create_task(follow(other, story, heard))
            await until(lambda: bool(heard))
            writing = await story.open(writer, "message")
            writing.live.append_text("before, ")
            await until(lambda: texts(heard[0]) == ["before, "])
            await asyncio.to_thread(server.kill)
            writing.live.append_text("during, ")
            # An event of another item is found without any bus.
            told = rows.seq
            await story.whole(writer, "message")
            await until(lambda: heard[0].seqs[-1] > told)
            await asyncio.to_thread(server.start)
            writing.live.append_text("after")
            await until(lambda: "".join(texts(heard[0])).endswith("during, after"))
            await story.finish(writer, writing)
            await until(lambda: heard[0].seqs[-1] == rows.seq)
            other.hub.close()
            await reading
            check(heard[0], story, other)

    run(main())


@pytest.mark.slow
def test_a_bus_that_is_not_there_delays_nothing_for_long_and_is_found_later(server: Server) -> None:
    async def main() -> None:
        rows = Rows(Random(4))
        make_bus = bus_of(server)
        await asyncio.to_thread(server.kill)
        bus = make_bus()
        with pytest.raises(BusDown):
            await bus.publish(list(letters(Gone(SESSION))))
        async with processes(make_bus, rows) as (writer, other):
            story = Story(rows.random, [writer])
            heard: list[Heard] = []
            reading = asyncio.create_task(follow(other, story, heard))
            await until(lambda: bool(heard))
            await story.whole(writer, "message")
            await until(lambda: heard[0].seqs[-1:] == [rows.seq])
            await asyncio.to_thread(server.start)
            writing = await story.open(writer, "message")
            writing.live.append_text("found")
            await until(lambda: texts(heard[0])[-1] == "found")
            await story.finish(writer, writing)
            await until(lambda: heard[0].seqs[-1] == rows.seq)
            other.hub.close()
            await reading
            check(heard[0], story, other)

    run(main())
