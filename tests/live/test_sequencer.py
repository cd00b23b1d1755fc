"""One session's events and text as readers of a node get them, whatever arrives in which order."""

from __future__ import annotations

from dataclasses import dataclass

from perdure.live.frames import DeltaFrame, EventFrame
from perdure.live.hub import Hub, Subscription, Unfinished
from perdure.live.messages import Delta
from perdure.live.sequencer import Sequencer
from perdure.wire import events as wire
from perdure.wire.items import AssistantMessageItem, OutputText

SESSION, TURN = "sess_0123456789abcdef01234567", "turn_1"


@dataclass(frozen=True)
class Stored:
    seq: int
    event: wire.Event


@dataclass(frozen=True)
class Stretch:
    events: tuple[Stored, ...]
    reached: int
    more: bool = False


def item(text: str | None, status: str = "completed") -> AssistantMessageItem:
    content = [] if text is None else [OutputText(text=text)]
    return AssistantMessageItem(id="msg_1", turn_id=TURN, status=status, content=content)


def added(seq: int) -> wire.Event:
    shown = item(None, "in_progress")
    return wire.ItemAdded(event_id=f"evt_{seq}", session_id=SESSION, turn_id=TURN, item=shown, output_index=0)


def text_done(seq: int, text: str) -> wire.Event:
    return wire.OutputTextDone(
        event_id=f"evt_{seq}",
        session_id=SESSION,
        turn_id=TURN,
        item_id="msg_1",
        output_index=0,
        content_index=0,
        text=text,
    )


def done(seq: int, text: str) -> wire.Event:
    return wire.ItemDone(
        event_id=f"evt_{seq}", session_id=SESSION, turn_id=TURN, item=item(text), output_index=0
    )


def delta(at: int, text: str, *, after: int = 1, epoch: int = 1) -> Delta:
    return Delta(SESSION, epoch, TURN, "msg_1", 0, "output_text", 0, at, text, after)


async def told(reader: Subscription) -> list[int | str]:
    """Sequences of stored events, and text between them."""
    found: list[int | str] = []
    for frame in await reader.next_batch(0.01) or []:
        if isinstance(frame, DeltaFrame):
            found.append(frame.text)
        elif isinstance(frame, EventFrame):
            found.append(frame.seq)
    return found


def begun(seq: int = 0) -> tuple[Sequencer, Subscription]:
    hub = Hub(1 << 20)
    reader = hub.subscribe(SESSION, obfuscate=False)
    sequencer = Sequencer(hub, SESSION)
    sequencer.attach(seq, [])
    return sequencer, reader


async def test_an_event_ahead_of_others_waits_until_those_were_read() -> None:
    sequencer, reader = begun()
    sequencer.commit(1, 1, added(1))
    sequencer.commit(3, 1, done(3, "hi"))
    assert sequencer.behind
    assert await told(reader) == [1]
    sequencer.fill(Stretch((Stored(1, added(1)), Stored(2, text_done(2, "hi"))), 2))
    assert await told(reader) == ["hi", 2, 3]
    assert not sequencer.behind


async def test_nothing_is_told_before_the_first_snapshot_was_read() -> None:
    hub = Hub(1 << 20)
    reader = hub.subscribe(SESSION, obfuscate=False)
    sequencer = Sequencer(hub, SESSION)
    sequencer.commit(1, 1, added(1))
    sequencer.commit(2, 1, text_done(2, "hi"))
    assert not sequencer.behind
    sequencer.attach(1, [Unfinished("msg_1", TURN, 0, "output_text", ("h",))])
    assert await told(reader) == ["hi", 2]


async def test_a_snapshot_from_before_the_beginning_is_too_old() -> None:
    sequencer, _ = begun(5)
    assert not sequencer.reaches_back(4)
    assert sequencer.reaches_back(5)
    assert sequencer.reaches_back(9)


async def test_text_waits_for_the_event_it_belongs_behind() -> None:
    sequencer, reader = begun()
    sequencer.add(delta(0, "early"))
    assert sequencer.behind  # such an event is stored, or there would be no text behind it
    assert await told(reader) == []
    sequencer.fill(Stretch((Stored(1, added(1)),), 1))
    assert await told(reader) == [1, "early"]


async def test_text_that_came_before_is_cut_off_and_a_gap_is_closed_first() -> None:
    sequencer, reader = begun()
    sequencer.commit(1, 1, added(1))
    sequencer.add(delta(0, "abc"))
    sequencer.add(delta(1, "bcd"))
    sequencer.add(delta(6, "ghi"))
    assert sequencer.missing() == {"msg_1": 4}
    assert await told(reader) == [1, "abcd"]
    sequencer.add(delta(0, "abcdefg"))
    assert sequencer.missing() == {}
    sequencer.add(delta(2, "cdef"))
    assert await told(reader) == ["efghi"]


async def test_text_of_an_earlier_owner_is_dropped() -> None:
    sequencer, reader = begun()
    sequencer.commit(1, 1, added(1))
    sequencer.add(delta(0, "one", epoch=1))
    sequencer.add(delta(3, "two", epoch=2))
    sequencer.add(delta(6, "one again", epoch=1))
    assert await told(reader) == [1, "onetwo"]
    sequencer.commit(2, 3, added(2))
    sequencer.add(delta(0, "two again", epoch=2))
    assert await told(reader) == [2]


async def test_text_that_waits_is_dropped_when_a_later_owner_speaks() -> None:
    sequencer, reader = begun()
    sequencer.add(delta(0, "old", epoch=1))
    sequencer.add(delta(0, "new", epoch=2))
    sequencer.commit(1, 1, added(1))
    assert await told(reader) == [1, "new"]


async def test_what_is_missing_of_a_text_comes_before_its_end() -> None:
    sequencer, reader = begun()
    sequencer.commit(1, 1, added(1))
    sequencer.add(delta(0, "so far"))
    sequencer.commit(2, 1, text_done(2, "so far, and the rest"))
    sequencer.commit(3, 1, done(3, "so far, and the rest"))
    assert await told(reader) == [1, "so far, and the rest", 2, 3]
    sequencer.add(delta(6, ", and the rest"))
    assert await told(reader) == []


async def test_a_final_text_that_is_another_one_stands_alone() -> None:
    sequencer, reader = begun()
    sequencer.commit(1, 1, added(1))
    sequencer.add(delta(0, "what the dead owner wrote"))
    sequencer.commit(2, 2, text_done(2, "what"))
    sequencer.commit(3, 2, done(3, "what"))
    assert await told(reader) == [1, "what the dead owner wrote", 2, 3]


async def test_stored_events_without_rows_leave_no_hole() -> None:
    sequencer, reader = begun()
    sequencer.hint(5)
    sequencer.fill(Stretch((Stored(1, added(1)),), 4, more=True))
    assert sequencer.reached == 4
    sequencer.commit(5, 1, done(5, "-"))
    assert await told(reader) == [1, 5]
