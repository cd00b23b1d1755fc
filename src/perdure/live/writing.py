"""Text that a model is writing now: where the loop appends it, and how the readers of a node see it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from perdure.live.frames import DeltaKind, LivePart
from perdure.wire.events import (
    Event,
    ReasoningSummaryPartAdded,
    ReasoningSummaryPartDone,
    ReasoningSummaryTextDone,
)
from perdure.wire.items import SummaryText


class LiveItem(Protocol):
    """An item that a model is writing now, as the loop knows it."""

    @property
    def item_id(self) -> str: ...

    def append_text(self, text: str) -> None:
        """Text of a message's one part."""
        ...

    def append_summary(self, part: int, text: str) -> None:
        """Text of a part of a reasoning summary; a new part is said first."""
        ...

    def texts(self) -> list[str]:
        """The text so far of each part."""
        ...


@dataclass(frozen=True, slots=True)
class Unfinished:
    """An item in progress as a snapshot shows it; `texts` is what was saved of each of its parts."""

    item_id: str
    turn_id: str
    output_index: int
    kind: DeltaKind
    texts: tuple[str, ...] = ()


class Speaker(Protocol):
    """Where a shown item says what is appended to it."""

    def delta(self, session_id: str, part: LivePart, text: str) -> None: ...

    def say(self, session_id: str, make: Callable[[str], Event]) -> None: ...


class ShownItem:
    """An item in progress as subscribers were told it, and as snapshots for new ones read it.

    `length` counts the characters of all its parts.
    """

    def __init__(
        self, speaker: Speaker, session_id: str, turn_id: str, item_id: str, output_index: int
    ) -> None:
        self.item_id = item_id
        self.parts: list[LivePart] = []
        self.length = 0
        self._speaker = speaker
        self._session_id = session_id
        self._turn_id = turn_id
        self._output_index = output_index

    def append_text(self, text: str) -> None:
        if not self.parts:
            self._open_part("output_text")
        self._append(self.parts[0], text)

    def append_summary(self, part: int, text: str) -> None:
        while len(self.parts) <= part:
            if self.parts:
                self._close_summary(len(self.parts) - 1)
            self._open_part("reasoning_summary_text")
            self._say(ReasoningSummaryPartAdded, len(self.parts) - 1, part=SummaryText(text=""))
        if text:
            self._append(self.parts[part], text)

    def append(self, kind: DeltaKind, part: int, text: str) -> None:
        """Text of a part of either kind of item."""
        if kind == "reasoning_summary_text":
            self.append_summary(part, text)
        elif text:
            self.append_text(text)

    def note_summary(self) -> None:
        """The next part of the summary is announced by a stored event."""
        self._open_part("reasoning_summary_text")

    def texts(self) -> list[str]:
        return [part.text for part in self.parts]

    def _append(self, part: LivePart, text: str) -> None:
        part.pieces.append(text)
        self.length += len(text)
        self._speaker.delta(self._session_id, part, text)

    def _open_part(self, kind: DeltaKind) -> None:
        opened = LivePart.open(
            kind, self._session_id, self._turn_id, self.item_id, self._output_index, len(self.parts)
        )
        self.parts.append(opened)

    def _close_summary(self, index: int) -> None:
        text = self.parts[index].text
        self._say(ReasoningSummaryTextDone, index, text=text)
        self._say(ReasoningSummaryPartDone, index, part=SummaryText(text=text))

    def _say(self, kind: Callable[..., Event], index: int, **fields: object) -> None:
        self._speaker.say(
            self._session_id,
            lambda event_id: kind(
                event_id=event_id,
                session_id=self._session_id,
                turn_id=self._turn_id,
                item_id=self.item_id,
                output_index=self._output_index,
                summary_index=index,
                **fields,
            ),
        )


class _Unheard:
    """Says nothing to anybody."""

    def delta(self, session_id: str, part: LivePart, text: str) -> None:
        pass

    def say(self, session_id: str, make: Callable[[str], Event]) -> None:
        pass


def unheard_item(session_id: str, turn_id: str, item_id: str, output_index: int) -> ShownItem:
    """An item whose text is kept and shown to no stream."""
    return ShownItem(_Unheard(), session_id, turn_id, item_id, output_index)
