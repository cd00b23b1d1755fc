"""Fan-out inside a process: order, merging, bounds, and attaching in mid-text."""

from __future__ import annotations

import json

from perdure.live.frames import DeltaFrame, EventFrame, encode
from perdure.live.hub import Hub, LiveItem, Subscription
from perdure.wire import events as wire
from perdure.wire.events import SessionEventAdapter
from perdure.wire.items import AssistantMessageItem, OutputText

SESSION, TURN = "sess_0123456789abcdef01234567", "turn_1"


def hub(limit: int = 1 << 20) -> Hub:
    return Hub(limit)


def added(seq: int, item_id: str) -> wire.ItemAdded:
    item = AssistantMessageItem(id=item_id, turn_id=TURN, status="in_progress", content=[])
    return wire.ItemAdded(event_id=f"evt_{seq}", session_id=SESSION, turn_id=TURN, item=item, output_index=0)


def done(seq: int, item_id: str, text: str) -> wire.ItemDone:
    content = [OutputText(text=text)]
    item = AssistantMessageItem(id=item_id, turn_id=TURN, status="completed", content=content)
    return wire.ItemDone(event_id=f"evt_{seq}", session_id=SESSION, turn_id=TURN, item=item, output_index=0)


def opened(fan: Hub, item_id: str = "msg_1") -> LiveItem:
    return fan.open_item(SESSION, TURN, item_id, 0)


async def read(subscription: Subscription) -> list[dict[str, object]]:
    batch = await subscription.next_batch(0.01) or []
    return [json.loads(frame.encoded(False).split(b"data: ")[1]) for frame in batch]


async def test_deltas_of_one_part_merge_while_nobody_reads_and_events_keep_their_order() -> None:
    fan = hub()
    reader = fan.subscribe(SESSION, obfuscate=False)
    fan.publish(SESSION, 1, added(1, "msg_1"))
    live = opened(fan)
    for word in ("a", "b", "c"):
        live.append_text(word)
    fan.publish(SESSION, 2, done(2, "msg_1", "abc"))
    seen = await read(reader)
    assert [event["type"].rsplit(".", 1)[1] for event in seen] == ["added", "delta", "done"]  # type: ignore[attr-defined]
    assert seen[1]["delta"] == "abc"
    assert str(seen[1]["event_id"]).startswith("evt_1d")


async def test_a_delta_frame_is_a_valid_event_with_and_without_padding() -> None:
    fan = hub()
    reader = fan.subscribe(SESSION, obfuscate=True)
    opened(fan).append_text('quote " newline \n nul \x00 ☃')
    (frame,) = await reader.next_batch(0.01) or []
    assert isinstance(frame, DeltaFrame)
    for obfuscate in (False, True):
        head, data, end, rest = frame.encoded(obfuscate).split(b"\n", 3)
        assert (end, rest) == (b"", b"")
        event = SessionEventAdapter.validate_json(data.removeprefix(b"data: "))
        assert head == b"event: " + wire.type_of(event).encode()
        assert isinstance(event, wire.OutputTextDelta)
        assert event.delta == 'quote " newline \n nul \x00 ☃'
        assert (event.obfuscation is not None) == obfuscate
        if event.obfuscation is not None:
            assert 8 <= len(event.obfuscation) <= 32


async def test_a_slow_reader_gets_an_error_and_the_end_and_never_a_gap() -> None:
    fan = hub(limit=4096)
    slow, other = fan.subscribe(SESSION, obfuscate=False), fan.subscribe(SESSION, obfuscate=False)
    live = opened(fan)
    for _ in range(3):
        live.append_text("x" * 1000)
        await read(other)
    live.append_text("x" * 2000)
    live.append_text("x")
    (error,) = await read(slow)
    assert error["type"] == "error"
    assert error["error"]["code"] == "stream_interrupted"  # type: ignore[index]
    assert await slow.next_batch(0.01) is None
    assert (await read(other))[0]["delta"] == "x" * 2001


async def test_attaching_drops_what_the_snapshot_tells_and_keeps_the_rest() -> None:
    fan = hub()
    live = opened(fan, "msg_old")
    live.append_text("before ")
    reader = fan.subscribe(SESSION, obfuscate=False)
    assert [text for _, text in reader.written["msg_old"]] == ["before "]
    live.append_text("after")
    fan.publish(SESSION, 7, done(7, "msg_gone", "-"))
    opened(fan, "msg_gone").append_text("not shown")
    fan.publish(SESSION, 9, added(9, "msg_new"))
    opened(fan, "msg_new").append_text("new")
    reader.attach(8, ["msg_old"])
    seen = await read(reader)
    assert [(event.get("item_id"), event.get("delta")) for event in seen] == [
        ("msg_old", "after"),
        (None, None),
        ("msg_new", "new"),
    ]


async def test_silence_is_an_empty_batch_and_the_end_is_none() -> None:
    fan = hub()
    reader = fan.subscribe(SESSION, obfuscate=False)
    assert await reader.next_batch(0.001) == []
    fan.publish(SESSION, 1, added(1, "msg_1"))
    fan.close_session(SESSION)
    assert len(await reader.next_batch(1) or []) == 1
    assert await reader.next_batch(1) is None
    fan.close()
    late = fan.subscribe(SESSION, obfuscate=False)
    assert await late.next_batch(1) is None


def test_an_event_without_padding_has_no_member_for_it() -> None:
    assert b"obfuscation" not in encode(added(1, "msg_1"))
    frame = EventFrame(1, added(1, "msg_1"))
    assert frame.encoded(True) is frame.encoded(False)
