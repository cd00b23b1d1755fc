"""The id of an event that is not stored stands for the last stored one its reader has been told."""

from __future__ import annotations

import asyncio
import json

from perdure.live.frames import DeltaFrame
from perdure.live.hub import Hub, Subscription
from perdure.wire import events as wire
from perdure.wire.items import AssistantMessageItem

SESSION, TURN = "sess_0123456789abcdef01234567", "turn_1"
STORED = f"evt_{SESSION[-16:]}_"


def added(seq: int, item_id: str) -> wire.ItemAdded:
    item = AssistantMessageItem(id=item_id, turn_id=TURN, status="in_progress", content=[])
    identity = f"{STORED}{seq}"
    return wire.ItemAdded(event_id=identity, session_id=SESSION, turn_id=TURN, item=item, output_index=0)


async def read(subscription: Subscription) -> list[int]:
    """The sequence each event stands for."""
    batch = await subscription.next_batch(0.01) or []
    events = [json.loads(frame.encoded(False).split(b"data: ")[1]) for frame in batch]
    return [int(event["event_id"].removeprefix(STORED).split("d")[0]) for event in events]


async def test_text_behind_a_snapshot_is_named_after_the_snapshot() -> None:
    fan = Hub(1 << 20)
    live = fan.open_item(SESSION, TURN, "msg_1", 0)
    reader = fan.subscribe(SESSION, obfuscate=False)
    live.append_text("while the snapshot is read ")
    reader.attach(5, ["msg_1"])
    assert await read(reader) == [5]
    live.append_text("behind it")
    assert await read(reader) == [5]
    fan.publish(SESSION, 6, added(6, "msg_2"))
    live.append_text("behind another event")
    assert await read(reader) == [6, 6]


async def test_text_is_not_named_after_an_event_that_is_still_to_be_announced() -> None:
    fan = Hub(1 << 20)
    early = fan.subscribe(SESSION, obfuscate=False)
    early.attach(3, [])
    fan.publish(SESSION, 4, added(4, "msg_1"))
    live = fan.open_item(SESSION, TURN, "msg_1", 0)
    late = fan.subscribe(SESSION, obfuscate=False)
    late.attach(5, ["msg_1"])  # 5 is committed, and published below
    live.append_text("one")
    fan.publish(SESSION, 5, added(5, "msg_2"))
    live.append_text("two")
    assert await read(early) == [4, 4, 5, 5]
    assert await read(late) == [5]


async def test_summary_events_are_named_after_the_snapshot_too() -> None:
    fan = Hub(1 << 20)
    live = fan.open_item(SESSION, TURN, "rs_1", 0)
    reader = fan.subscribe(SESSION, obfuscate=False)
    live.append_summary(0, "first")
    live.append_summary(1, "second")
    reader.attach(9, ["rs_1"])
    assert set(await read(reader)) == {9}


async def test_an_interruption_is_named_after_the_last_event_that_was_told() -> None:
    fan = Hub(2000)
    reader = fan.subscribe(SESSION, obfuscate=False)
    reader.attach(1, [])
    fan.publish(SESSION, 2, added(2, "msg_1"))
    assert await read(reader) == [2]
    live = fan.open_item(SESSION, TURN, "msg_1", 0)
    fan.publish(SESSION, 3, added(3, "msg_2"))
    fan.publish(SESSION, 4, added(4, "msg_3"))
    live.append_text("x" * 3000)
    assert await read(reader) == [2]
    assert await reader.next_batch(0.01) is None


async def test_an_interruption_by_text_alone_is_named_after_the_snapshot() -> None:
    fan = Hub(2000)
    live = fan.open_item(SESSION, TURN, "msg_1", 0)
    reader = fan.subscribe(SESSION, obfuscate=False)
    reader.attach(7, ["msg_1"])
    live.append_text("x" * 3000)
    assert await read(reader) == [7]


async def test_an_interruption_before_the_snapshot_is_named_after_it() -> None:
    fan = Hub(2000)
    live = fan.open_item(SESSION, TURN, "msg_1", 0)
    reader = fan.subscribe(SESSION, obfuscate=False)
    live.append_text("x" * 3000)
    reader.attach(7, ["msg_1"])
    assert await read(reader) == [7]


async def test_who_waits_for_more_is_not_behind_however_large_it_is() -> None:
    fan = Hub(2000)
    reader = fan.subscribe(SESSION, obfuscate=False)
    reader.attach(1, ["msg_1"])
    live = fan.open_item(SESSION, TURN, "msg_1", 0)
    reading = asyncio.create_task(reader.next_batch(10))
    await asyncio.sleep(0)  # now it waits
    live.append_text("x" * 3000)
    (frame,) = await reading or []
    assert isinstance(frame, DeltaFrame)
    assert frame.text == "x" * 3000
