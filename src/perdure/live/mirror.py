"""The text of a session's items in progress, as the readers of this node are told it.

Deltas come from whichever process writes the session; some are lost, some come twice. What readers
get is gapless: the text of each part in order, and before the event that ends a part whatever was
missing of it, so that deltas and final text agree. Where they cannot agree, because another owner
closed an item with less than was shown, the final text stands alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from perdure.live.frames import DeltaKind
from perdure.live.hub import Hub
from perdure.live.messages import Delta
from perdure.live.writing import ShownItem, Unfinished
from perdure.wire.events import (
    Event,
    ItemAdded,
    ItemDone,
    OutputTextDelta,
    OutputTextDone,
    ReasoningSummaryPartAdded,
    ReasoningSummaryPartDone,
    ReasoningSummaryTextDelta,
    ReasoningSummaryTextDone,
)
from perdure.wire.items import AssistantMessageItem, ReasoningItem

KEPT = 256
"""The most deltas that wait for the text before them, for each item."""


@dataclass(slots=True)
class _Open:
    """An item in progress. `shown` is there once it has text, `ends` are events that wait for its end."""

    turn_id: str
    output_index: int
    shown: ShownItem | None = None
    waiting: list[Delta] = field(default_factory=list)
    ends: list[tuple[int, Event]] = field(default_factory=list)

    @property
    def length(self) -> int:
        return 0 if self.shown is None else self.shown.length


class Mirror:
    """See the module's text."""

    def __init__(self, hub: Hub, session_id: str) -> None:
        self._hub = hub
        self._session_id = session_id
        self._open: dict[str, _Open] = {}

    def begin(self, unfinished: Iterable[Unfinished]) -> None:
        """The items that are in progress where the stream begins."""
        for item in unfinished:
            self._open[item.item_id] = _Open(item.turn_id, item.output_index)

    def missing(self) -> dict[str, int]:
        """Items that have text waiting for text before it, and from which character on that is missing."""
        return {item_id: item.length for item_id, item in self._open.items() if item.waiting}

    def add(self, delta: Delta) -> None:
        """Show the text, as far as it is new and there is none missing before it."""
        item = self._open.get(delta.item_id)
        if item is None or not delta.text:
            return  # final already: its end has told everything
        if delta.at > item.length:
            if len(item.waiting) < KEPT:
                item.waiting.append(delta)
            return
        self._show(delta, item)
        while item.waiting and (fitting := [each for each in item.waiting if each.at <= item.length]):
            item.waiting = [each for each in item.waiting if each.at > item.length]
            for each in sorted(fitting, key=lambda each: each.at):
                self._show(each, item)

    def tell(self, seq: int, event: Event) -> None:
        """Show a stored event, behind what was missing of the text that it ends."""
        match event:
            case OutputTextDelta() | ReasoningSummaryTextDelta():
                return  # text that left with a commit: the event that ends its part brings it
            case ItemAdded(
                item=AssistantMessageItem() | ReasoningItem() as item,
                output_index=int(index),
                turn_id=str(turn),
            ):
                self._open[item.id] = _Open(turn, index)
            case OutputTextDone():
                self._complete_text(event)
            case ReasoningSummaryPartAdded() | ReasoningSummaryTextDone() | ReasoningSummaryPartDone():
                if (unfinished := self._open.get(event.item_id)) is not None:
                    # Text of earlier parts may be missing, and only the item has all of it.
                    unfinished.ends.append((seq, event))
                    return
            case ItemDone():
                self._complete_summary(event)
                self._open.pop(event.item.id, None)
            case _:
                pass
        self._hub.publish(self._session_id, seq, event)

    def _show(self, delta: Delta, item: _Open) -> None:
        text = delta.text[item.length - delta.at :]
        if text:
            self._shown(delta.item_id, item).append(delta.kind, delta.part, text)

    def _shown(self, item_id: str, item: _Open) -> ShownItem:
        if item.shown is None:
            item.shown = self._hub.show_item(self._session_id, item.turn_id, item_id, item.output_index)
        return item.shown

    def _complete_text(self, event: OutputTextDone) -> None:
        item = self._open.get(event.item_id)
        if item is not None:
            self._complete(event.item_id, item, "output_text", event.content_index, event.text)

    def _complete_summary(self, event: ItemDone) -> None:
        """Say the events that end the parts of a reasoning summary, each part complete."""
        item = self._open.get(event.item.id)
        if item is None:
            return
        texts = [part.text for part in event.item.summary] if isinstance(event.item, ReasoningItem) else []
        for seq, end in item.ends:
            match end:
                case ReasoningSummaryPartAdded():
                    self._shown(event.item.id, item).note_summary()
                case ReasoningSummaryTextDone(summary_index=last):
                    for index, text in enumerate(texts[: last + 1]):
                        self._complete(event.item.id, item, "reasoning_summary_text", index, text)
                case _:
                    pass
            self._hub.publish(self._session_id, seq, end)

    def _complete(self, item_id: str, item: _Open, kind: DeltaKind, part: int, text: str) -> None:
        shown = self._shown(item_id, item)
        if part < len(shown.parts) - 1:
            return  # it has ended
        before = shown.parts[part].text if part < len(shown.parts) else ""
        if text.startswith(before):
            shown.append(kind, part, text[len(before) :])
