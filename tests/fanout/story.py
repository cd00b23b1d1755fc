"""What happens in a session: items that stream, items that come whole, owners that die in mid-text."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from perdure.live.frames import DeltaKind
from perdure.live.writing import LiveItem, Unfinished
from perdure.wire import events as wire
from perdure.wire.items import AssistantMessageItem, OutputText, ReasoningItem, SummaryText
from perdure.wire.items import UserMessageItem as UserMessage

from .world import SESSION, Committing, Rows

TURN = "turn_1"
ALPHABET = 'abc é☃\n"\\\x00😀'

Make = Callable[[str], wire.Event]


@dataclass
class Writing:
    """An item in progress."""

    item_id: str
    kind: str
    index: int
    live: LiveItem


@dataclass
class Story:
    """Tells a session's events through nodes of a fleet, and knows what readers must end up with."""

    random: Random
    nodes: Sequence[Committing]
    epoch: int = 1
    items: int = 0
    final: dict[str, list[str]] = field(default_factory=dict)
    torn: dict[str, list[str]] = field(default_factory=dict)
    saved: dict[str, list[str]] = field(default_factory=dict)

    def unfinished(self, rows: Rows) -> list[Unfinished]:
        """The items in progress as a snapshot taken now shows them."""
        found = {}
        for kept in rows.events:
            match kept.event:
                case wire.ItemAdded(
                    item=AssistantMessageItem() | ReasoningItem() as item, output_index=int(index)
                ):
                    kind: DeltaKind = "output_text" if item.type == "message" else "reasoning_summary_text"
                    texts = tuple(self.saved.get(item.id, ()))
                    found[item.id] = Unfinished(item.id, TURN, index, kind, texts)
                case wire.ItemDone(item=item):
                    del found[item.id]
                case _:
                    pass
        return list(found.values())

    async def tell(self, scenes: int) -> None:
        """Tell some scenes, most of them by one owner after the other."""
        owner = self.random.choice(self.nodes)
        for _ in range(scenes):
            match self.random.choice(("message", "reasoning", "whole", "whole reasoning", "input", "torn")):
                case "message" | "reasoning" as kind:
                    await self.finish(owner, await self._write(owner, kind))
                case "whole":
                    await self.whole(owner, "message")
                case "whole reasoning":
                    await self.whole(owner, "reasoning")
                case "input":
                    await self._input(self.random.choice(self.nodes))
                case _:
                    owner = await self._tear(owner)
            if self.random.random() < 0.3:
                await asyncio.gather(self._input(self.nodes[0]), self._input(self.nodes[-1]))
        await owner.commit(self.epoch, _said)

    def text(self) -> str:
        length = self.random.choice((1, 3, 10, 60))
        return "".join(self.random.choice(ALPHABET) for _ in range(length))

    async def pause(self) -> None:
        await asyncio.sleep(self.random.choice((0.0, 0.001, 0.02, 0.08)))

    async def _input(self, node: Committing) -> None:
        self.items += 1
        item = UserMessage(id=f"msg_user{self.items}", turn_id=TURN, content=[])
        await node.commit(self.epoch, partial(_event, wire.ItemAdded, item=item, output_index=None))

    async def open(self, owner: Committing, kind: str) -> Writing:
        """Announce an item and begin to write it."""
        self.items += 1
        item_id, index = f"item_{self.items}", self.items
        after = await owner.commit(self.epoch, *_opening(item_id, kind, index))
        live = owner.hub.open_item(SESSION, TURN, item_id, index, epoch=self.epoch, after=after)
        return Writing(item_id, kind, index, live)

    async def _write(self, owner: Committing, kind: str) -> Writing:
        writing = await self.open(owner, kind)
        for part in range(1 if kind == "message" else self.random.randint(1, 3)):
            for _ in range(self.random.choice((1, 4, 25))):
                if kind == "message":
                    writing.live.append_text(self.text())
                else:
                    writing.live.append_summary(part, self.text())
                await self.pause()
                if self.random.random() < 0.1:
                    self.saved[writing.item_id] = writing.live.texts()
        return writing

    async def finish(self, owner: Committing, writing: Writing) -> None:
        """Close an item with all that was written."""
        texts = writing.live.texts()
        self.final[writing.item_id] = texts
        await owner.commit(self.epoch, *_closing(writing.item_id, writing.kind, writing.index, texts))

    async def whole(self, owner: Committing, kind: str) -> None:
        """An item that never streamed: one transaction, its text in it."""
        self.items += 1
        item_id, index = f"item_{self.items}", self.items
        texts = [self.text() for _ in range(1 if kind == "message" else self.random.randint(1, 3))]
        self.final[item_id] = texts
        parts = _whole_parts(item_id, index, texts) if kind == "reasoning" else []
        opening, closing = _opening(item_id, kind, index), _closing(item_id, kind, index, texts)
        await owner.commit(self.epoch, *opening, *parts, *closing)

    async def _tear(self, owner: Committing) -> Committing:
        """The owner is silenced in mid-text; another closes the item with what was saved."""
        writing = await self._write(owner, self.random.choice(("message", "reasoning")))
        self.torn[writing.item_id] = writing.live.texts()
        self.final[writing.item_id] = saved = self.saved.get(writing.item_id, [])
        other = self.random.choice(self.nodes)
        if other is not owner:
            owner.may_speak = False
        owner.hub.abandon(SESSION)
        self.epoch += 1
        await other.commit(
            self.epoch, *_closing(writing.item_id, writing.kind, writing.index, saved, "incomplete")
        )
        writing.live.append_text("too late")
        owner.may_speak = True
        return other


def _event(kind: type[wire.Event], event_id: str, **fields: Any) -> wire.Event:
    return kind(event_id=event_id, session_id=SESSION, turn_id=TURN, **fields)


def _said(event_id: str) -> wire.Event:
    item = UserMessage(id="msg_last", turn_id=TURN, content=[])
    return _event(wire.ItemAdded, event_id, item=item, output_index=None)


def _item(item_id: str, kind: str, texts: list[str], status: str) -> Any:
    if kind == "message":
        content = [OutputText(text=text) for text in texts]
        return AssistantMessageItem(id=item_id, turn_id=TURN, status=status, content=content)
    summary = [SummaryText(text=text) for text in texts]
    return ReasoningItem(id=item_id, turn_id=TURN, status=status, summary=summary)


def _opening(item_id: str, kind: str, index: int) -> list[Make]:
    item = _item(item_id, kind, [], "in_progress")
    made: list[Make] = [partial(_event, wire.ItemAdded, item=item, output_index=index)]
    if kind == "message":
        where = {"item_id": item_id, "output_index": index, "content_index": 0}
        made.append(partial(_event, wire.ContentPartAdded, **where, part=OutputText(text="")))
    return made


def _whole_parts(item_id: str, index: int, texts: list[str]) -> list[Make]:
    made: list[Make] = []
    for part, text in enumerate(texts):
        where = {"item_id": item_id, "output_index": index, "summary_index": part}
        made.append(partial(_event, wire.ReasoningSummaryPartAdded, **where, part=SummaryText(text="")))
        if part < len(texts) - 1:
            made.append(partial(_event, wire.ReasoningSummaryTextDone, **where, text=text))
            made.append(partial(_event, wire.ReasoningSummaryPartDone, **where, part=SummaryText(text=text)))
    return made


def _closing(item_id: str, kind: str, index: int, texts: list[str], status: str = "completed") -> list[Make]:
    made: list[Make] = []
    place: dict[str, Any] = {"item_id": item_id, "output_index": index}
    for part, text in list(enumerate(texts))[-1:]:
        if kind == "message":
            where = {**place, "content_index": part}
            made.append(partial(_event, wire.OutputTextDone, **where, text=text))
            made.append(partial(_event, wire.ContentPartDone, **where, part=OutputText(text=text)))
        else:
            where = {**place, "summary_index": part}
            made.append(partial(_event, wire.ReasoningSummaryTextDone, **where, text=text))
            made.append(partial(_event, wire.ReasoningSummaryPartDone, **where, part=SummaryText(text=text)))
    item = _item(item_id, kind, texts, status)
    made.append(partial(_event, wire.ItemDone, item=item, output_index=index))
    return made
