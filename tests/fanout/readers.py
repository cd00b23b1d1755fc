"""A reader of one node: it starts from a snapshot and keeps all it is told, to be checked at the end."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from perdure.api.streams import SnapshotFrames
from perdure.live.frames import EventFrame, Frame
from perdure.live.writing import Unfinished
from perdure.store.rows import ItemRow

from .story import TURN, Story
from .world import SESSION, Committing

PREFIX = "agent.session.turn."


@dataclass
class Heard:
    """What a reader was told: stored sequences, and everything as JSON."""

    start: int
    seqs: list[int] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    closed: bool = False

    def take(self, frames: list[Frame]) -> None:
        for frame in frames:
            data = json.loads(frame.encoded(False).partition(b"data: ")[2])
            self.events.append(data)
            if isinstance(frame, EventFrame) and frame.seq:
                self.seqs.append(frame.seq)


async def follow(node: Committing, story: Story, heard: list[Heard]) -> None:
    """Read from now on until the stream ends."""
    subscription = node.hub.subscribe(SESSION, obfuscate=False)
    try:
        await node.hub.ready(SESSION)
        rows = node.rows
        while True:
            await asyncio.sleep(rows.random.uniform(0, 0.004))
            seq, unfinished = rows.seq, story.unfinished(rows)
            await asyncio.sleep(rows.random.uniform(0, 0.02))
            if node.hub.attach(subscription, seq, f"evt_{SESSION[-16:]}_{seq}", unfinished):
                break
        mine = Heard(seq)
        heard.append(mine)
        say = SnapshotFrames(node.hub, SESSION, seq)
        for item in unfinished:
            say.item(_row(item), subscription)
        subscription.forget_beginning()
        mine.take(say.frames)
        while (batch := await subscription.next_batch(60)) is not None:
            mine.take(batch)
        mine.closed = True
    finally:
        subscription.close()


def _row(item: Unfinished) -> ItemRow:
    kind = "message" if item.kind == "output_text" else "reasoning"
    parts = [{"type": "output_text" if kind == "message" else "summary_text", "text": t} for t in item.texts]
    data = {"role": "assistant", "content": parts, "phase": None} if kind == "message" else {"summary": parts}
    return ItemRow(
        session_id=SESSION,
        pos=0,
        id=item.item_id,
        turn_id=TURN,
        agent_id="agent",
        step=0,
        type=kind,
        status="in_progress",
        output_index=item.output_index,
        data=data,
        private=None,
    )


def check(heard: Heard, story: Story, node: Committing) -> None:
    """Every stored event once and in order; text without gap, in its place, and equal to what ends it."""
    kept = {each.seq: each.event for each in node.rows.events}
    assert heard.seqs == list(range(heard.start + 1, node.rows.seq + 1))
    stored = [event for event in heard.events if _is_stored_id(event["event_id"])]
    assert stored == [json.loads(kept[seq].model_dump_json(by_alias=True)) for seq in heard.seqs]
    parts: dict[tuple[str, int], str] = defaultdict(str)
    added: set[tuple[str, int]] = set()
    ended: set[tuple[str, int]] = set()
    open_items: set[str] = set()
    for event in heard.events:
        kind = event["type"].removeprefix(PREFIX)
        if kind == "item.added":
            assert event["item"]["id"] not in open_items
            open_items.add(event["item"]["id"])
            continue
        if kind == "item.done":
            open_items.remove(event["item"]["id"])
            _check_item(event["item"], parts, story)
            continue
        key = (event["item_id"], event.get("content_index", event.get("summary_index")))
        assert key[0] in open_items, f"{kind} of an item that is not in progress"
        match kind.rpartition(".")[2], "part" in kind:
            case "added", True:
                assert key not in added
                assert key[1] == 0 or (key[0], key[1] - 1) in ended
                added.add(key)
            case "delta", _:
                assert key in added
                assert key not in ended
                parts[key] += event["delta"]
            case "done", False:
                if key[0] not in story.torn:
                    assert parts[key] == event["text"]
                ended.add(key)
            case _:
                pass


def _check_item(item: dict[str, Any], parts: dict[tuple[str, int], str], story: Story) -> None:
    texts = [part["text"] for part in item.get("content", item.get("summary"))]
    assert texts == story.final[item["id"]]
    told = [parts[item["id"], index] for index in range(len(texts))]
    if item["id"] not in story.torn:
        assert told == texts
        return
    written = "".join(story.torn[item["id"]])
    shown = "".join(text for (item_id, _), text in sorted(parts.items()) if item_id == item["id"])
    assert written.startswith(shown)
    assert shown.startswith("".join(texts))


def _is_stored_id(event_id: str) -> bool:
    return event_id.rpartition("_")[2].isdecimal()
