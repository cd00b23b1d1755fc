"""What one process sends and asks for, seen on a network that can be made to fail."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

from perdure.live.messages import Delta, Input, Newest, Want, WantText, WhoWants, messages

from .readers import Heard, check, follow
from .story import Story
from .timeless import run
from .world import SESSION, FakeBus, Network, Node, Rows, Weather


class Fleet:
    """Two nodes and what they send each other."""

    def __init__(self) -> None:
        self.random = Random(5)
        self.network = Network(self.random, Weather())
        self.rows = Rows(self.random)
        self.nodes = [self.node(), self.node()]
        self.story = Story(self.random, self.nodes)
        self.sent: list[object] = []
        carry = self.network.carry

        def noted(origin: FakeBus, payload: bytes, to: Callable[[FakeBus], bool]) -> None:
            self.sent.extend(messages(payload))
            carry(origin, payload, to)

        self.network.carry = noted  # type: ignore[method-assign]

    def node(self) -> Node:
        return Node(self.network, self.rows)

    def sent_of(self, *kinds: type) -> list[object]:
        return [message for message in self.sent if isinstance(message, kinds)]

    async def read(self, node: Node) -> tuple[Heard, asyncio.Task[None]]:
        """A reader of a node, attached and known to the others."""
        heard: list[Heard] = []
        reading = asyncio.create_task(follow(node, self.story, heard))
        await asyncio.sleep(0.3)
        return heard[0], reading


def play(scene: Callable[[Fleet], Awaitable[None]]) -> None:
    async def main() -> None:
        fleet = Fleet()
        for node in fleet.nodes:
            await node.exchange.start()
        await scene(fleet)
        for node in fleet.nodes:
            await node.stop()

    run(main())


def text_of(heard: Heard) -> str:
    return "".join(event["delta"] for event in heard.events if "delta" in event)


def test_nothing_is_sent_of_sessions_that_nobody_elsewhere_reads() -> None:
    async def scene(fleet: Fleet) -> None:
        writer = fleet.nodes[0]
        heard, _ = await fleet.read(writer)
        await Story(fleet.random, [writer]).tell(8)
        await asyncio.sleep(1)
        assert fleet.sent_of(Delta, Newest) == []
        assert heard.seqs[-1] == fleet.rows.seq

    play(scene)


def test_text_is_merged_before_it_leaves() -> None:
    async def scene(fleet: Fleet) -> None:
        writer, other = fleet.nodes
        heard, _ = await fleet.read(other)
        writing = await fleet.story.open(writer, "message")
        await asyncio.sleep(0.1)
        for _ in range(1000):
            writing.live.append_text("a")
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.1)
        assert text_of(heard) == "a" * 1000
        assert 20 <= len(fleet.sent_of(Delta)) <= 30

    play(scene)


def test_text_leaves_before_word_of_the_event_that_ends_it() -> None:
    async def scene(fleet: Fleet) -> None:
        writer, other = fleet.nodes
        await fleet.read(other)
        writing = await fleet.story.open(writer, "message")
        writing.live.append_text("first")
        await asyncio.sleep(0.1)
        fleet.sent.clear()
        writing.live.append_text("second")
        await fleet.story.finish(writer, writing)
        await asyncio.sleep(0.1)
        said = fleet.sent_of(Delta, Newest)
        assert [type(message) for message in said] == [Delta, Newest]
        assert said[-1] == Newest(SESSION, fleet.rows.seq)

    play(scene)


def test_lost_text_is_asked_for_and_told_while_the_item_is_still_written() -> None:
    async def scene(fleet: Fleet) -> None:
        writer, other = fleet.nodes
        heard, _ = await fleet.read(other)
        writing = await fleet.story.open(writer, "message")
        writing.live.append_text("one ")
        await asyncio.sleep(0.1)
        fleet.network.weather = Weather(lost=1.0)
        writing.live.append_text("two ")
        await asyncio.sleep(0.1)
        fleet.network.weather = Weather()
        assert text_of(heard) == "one "
        writing.live.append_text("three")
        await asyncio.sleep(0.1)
        assert text_of(heard) == "one two three"
        assert fleet.sent_of(WantText) == [WantText(SESSION, writing.item_id, 4)]

    play(scene)


def test_a_request_for_lost_text_that_is_lost_itself_is_repeated() -> None:
    async def scene(fleet: Fleet) -> None:
        writer, other = fleet.nodes
        heard, _ = await fleet.read(other)
        writing = await fleet.story.open(writer, "message")
        writing.live.append_text("one ")
        await asyncio.sleep(0.1)
        fleet.network.weather = Weather(lost=1.0)
        writing.live.append_text("two ")
        await asyncio.sleep(0.1)
        fleet.network.weather = Weather()
        writing.live.append_text("three")
        await asyncio.sleep(0.042)
        fleet.network.weather = Weather(lost=1.0)
        await asyncio.sleep(0.1)
        fleet.network.weather = Weather()
        await asyncio.sleep(2)
        assert text_of(heard) == "one two three"

    play(scene)


def test_who_starts_later_learns_who_wants_what() -> None:
    async def scene(fleet: Fleet) -> None:
        heard, _ = await fleet.read(fleet.nodes[1])
        late = fleet.node()
        await late.exchange.start()
        fleet.nodes.append(late)
        await asyncio.sleep(0.1)
        assert fleet.sent_of(WhoWants)
        writing = await fleet.story.open(late, "message")
        writing.live.append_text("told")
        await asyncio.sleep(0.1)
        assert text_of(heard) == "told"

    play(scene)


def test_interest_that_is_not_repeated_is_forgotten() -> None:
    async def scene(fleet: Fleet) -> None:
        writer, other = fleet.nodes
        _, reading = await fleet.read(other)
        writing = await fleet.story.open(writer, "message")
        await asyncio.sleep(45)
        assert len(fleet.sent_of(Want)) >= 4
        writing.live.append_text("wanted")
        await asyncio.sleep(0.1)
        assert len(fleet.sent_of(Delta)) == 1
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        await asyncio.sleep(45)
        writing.live.append_text("not wanted")
        await asyncio.sleep(0.1)
        assert len(fleet.sent_of(Delta)) == 1

    play(scene)


def test_a_process_that_may_not_speak_sends_nothing_of_its_sessions() -> None:
    async def scene(fleet: Fleet) -> None:
        writer, other = fleet.nodes
        far, _ = await fleet.read(other)
        near, _ = await fleet.read(writer)
        writing = await fleet.story.open(writer, "message")
        writing.live.append_text("in time")
        await asyncio.sleep(0.1)
        fleet.sent.clear()
        writing.live.append_text("held back when it would leave")
        writer.may_speak = False
        writing.live.append_text("too late")
        await fleet.story.whole(writer, "message")
        await asyncio.sleep(3)
        assert fleet.sent_of(Delta, Newest) == []
        assert "too late" not in text_of(near) + text_of(far)
        # What is stored is true, whoever stored it: a look at the store finds it.
        assert far.seqs[-1] == fleet.rows.seq

    play(scene)


def test_text_of_an_item_that_was_left_to_another_owner_does_not_leave_later() -> None:
    async def scene(fleet: Fleet) -> None:
        writer, other = fleet.nodes
        heard, _ = await fleet.read(other)
        writing = await fleet.story.open(writer, "message")
        writing.live.append_text("one ")
        await asyncio.sleep(0.1)
        writing.live.append_text("two")
        writer.hub.abandon(SESSION)
        writing.live.append_text("three")
        await asyncio.sleep(0.2)
        assert text_of(heard) == "one "

    play(scene)


def test_a_commit_that_is_never_announced_is_found() -> None:
    async def scene(fleet: Fleet) -> None:
        writer, other = fleet.nodes
        heard = [(await fleet.read(node))[0] for node in (writer, other)]
        writer.exchange.published = lambda *args: None  # type: ignore[method-assign]
        await fleet.story.whole(writer, "message")
        await asyncio.sleep(3)
        for node, each in zip((writer, other), heard, strict=True):
            check(each, fleet.story, node)

    play(scene)


def test_events_that_are_no_longer_stored_end_the_stream_with_an_error() -> None:
    async def scene(fleet: Fleet) -> None:
        writer, other = fleet.nodes
        heard, reading = await fleet.read(other)
        fleet.network.cut()
        await fleet.story.whole(writer, "message")
        fleet.rows.forgotten = fleet.rows.seq
        await reading
        assert heard.events[-1]["error"]["code"] == "stream_interrupted"
        assert "no longer stored" in heard.events[-1]["error"]["message"]

    play(scene)


def test_a_deleted_session_ends_its_streams_behind_its_last_event() -> None:
    async def scene(fleet: Fleet) -> None:
        writer, other = fleet.nodes
        heard, reading = await fleet.read(other)
        fleet.network.weather = Weather(lost=1.0)
        await fleet.story.tell(3)
        fleet.rows.deleted = True
        writer.exchange.closed(SESSION)
        await reading
        check(heard, fleet.story, other)

    play(scene)


def test_accepted_input_is_told_to_all_others() -> None:
    async def scene(fleet: Fleet) -> None:
        one, other = fleet.nodes
        one.exchange.accepted(SESSION)
        await asyncio.sleep(0.1)
        assert (one.woken, other.woken) == ([], [SESSION])
        assert fleet.sent_of(Input) == [Input(SESSION)]

    play(scene)


def test_what_could_not_be_sent_is_sent_when_the_bus_is_there_again() -> None:
    async def scene(fleet: Fleet) -> None:
        writer, other = fleet.nodes
        heard, _ = await fleet.read(other)
        writing = await fleet.story.open(writer, "message")
        fleet.network.up = False
        writing.live.append_text("one ")
        writer.exchange.accepted(SESSION)
        await asyncio.sleep(1)
        fleet.network.up = True  # and nobody is told that it was away
        await asyncio.sleep(1)
        assert text_of(heard) == "one "
        assert other.woken == [SESSION]

    play(scene)


def test_a_reader_that_comes_while_another_one_reads_starts_where_that_one_is() -> None:
    async def scene(fleet: Fleet) -> None:
        writer, other = fleet.nodes
        first, _ = await fleet.read(other)
        writing = await fleet.story.open(writer, "reasoning")
        writing.live.append_summary(0, "one")
        writing.live.append_summary(1, "two")
        await asyncio.sleep(0.1)
        second, _ = await fleet.read(other)
        writing.live.append_summary(1, " and three")
        await fleet.story.finish(writer, writing)
        await asyncio.sleep(0.5)
        for heard in (first, second):
            check(heard, fleet.story, other)
        assert text_of(first) == text_of(second) == "onetwo and three"

    play(scene)


def test_any_number_of_readers_that_come_at_once_are_told_to_the_others() -> None:
    async def scene(fleet: Fleet) -> None:
        other = fleet.nodes[1]
        names = [f"sess_{number:024x}" for number in range(1000)]
        readers = [other.hub.subscribe(name, obfuscate=False) for name in names]
        await asyncio.gather(*(other.hub.ready(name) for name in names))
        await asyncio.sleep(0.2)
        told = [name for want in fleet.sent_of(Want) if want.new for name in want.session_ids]  # type: ignore[attr-defined]
        assert sorted(told) == names
        for reader in readers:
            reader.close()

    play(scene)
