"""What the model sees of an agent's history: built from items, always valid.

Every call is followed by exactly one result before anything else; reasoning is replayed only to the
provider and model that produced it, and only in front of the output that followed it; a step that
broke off is shown only where nothing replaced it. Whatever ended a turn, the next request is sound.
Once the beginning of a history is compacted, a note of the server stands in its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from perdure.harness.checks import Checked
from perdure.harness.entries import ACCEPTED, NOT_EXECUTED, ImagePlace, Shape, Shown, images_of, make_entries
from perdure.harness.notes import facts_entries, note_entries
from perdure.harness.repetition import Past, Step
from perdure.harness.room import Room
from perdure.harness.tokens import Gauge, entries_tokens
from perdure.models.messages import Entry
from perdure.store.blobs import share
from perdure.store.compactions import Compaction
from perdure.store.rows import ItemRow

__all__ = ["ACCEPTED", "NOT_EXECUTED", "Conversation"]

ROW_OVERHEAD = 200
IMAGES_KEPT = 2
"""By how much the images that are shown become fewer once they are too many: rarely, and then by half."""


class Conversation:
    """An agent's items in order, kept up to date by the transactions that change them.

    `compaction` is what stands in place of the oldest ones, which are not among the items here.
    """

    def __init__(self, items: Iterable[ItemRow], compaction: Compaction | None = None) -> None:
        self.compaction = compaction
        self.gauge = Gauge()
        # How often the provider refused the conversation as too large.
        self.tightness = 0
        # Whether no model could write a summary beside a turn since the last compaction.
        self.beside_failed = False
        # Tokens of the entries last built, estimated.
        self.estimate = 0
        # Whether one of them shows a result in part.
        self.is_cut = False
        self._rows: list[ItemRow] = []
        self._steps_gone: tuple[Step, ...] = ()
        self._places: dict[str, int] = {}
        self._finished: _Finished | None = None
        # Large texts, each as the one object that all items share.
        self._texts: dict[str, str] = {}
        self._images: dict[ImagePlace, int] = {}
        self._images_from: ImagePlace = (0, 0)
        self.size = 0
        self._add(items)

    @property
    def images_from(self) -> ImagePlace:
        """The first image that is shown; older ones are told in words."""
        return self._images_from

    @property
    def rows(self) -> Sequence[ItemRow]:
        """The items that are not compacted, or are shown all the same, in order."""
        return self._rows

    @property
    def past(self) -> Past:
        """What the agent did, for the question whether it repeats itself."""
        through = 0 if self.compaction is None else self.compaction.through_pos
        return Past(self._rows, self._steps_gone, through)

    def update(self, items: Iterable[ItemRow]) -> None:
        """Take in items that were added (in order) or changed."""
        through = 0 if self.compaction is None else self.compaction.through_pos
        self._add(item for item in items if item.pos > through or item.id in self._places)

    def compact(self, compaction: Compaction) -> None:
        """Put a note in place of what a compaction covers."""
        carried = set(compaction.data["carried"])
        rows = [row for row in self._rows if row.pos > compaction.through_pos or row.pos in carried]
        self._steps_gone = self.past.compacted(compaction.through_pos)
        self.compaction = compaction
        self._rows, self._places, self._images, self._texts, self.size = [], {}, {}, {}, 0
        self._finished = None
        self.beside_failed = False
        self._add(rows)

    def of_turn(self, turn_id: str) -> list[ItemRow]:
        """The items of one turn, in order; those that are compacted are not among them."""
        return [item for item in self._rows if item.turn_id == turn_id]

    @property
    def settled(self) -> int:
        """How many of the entries last built belong to turns that have ended."""
        return 0 if self._finished is None else len(self._finished.entries)

    @property
    def checked(self) -> Checked:
        """What of these entries was found to be sound before."""
        return Checked() if self._finished is None else self._finished.checked

    def view(
        self, provider: str, model: str, running_turn: str, room: Room, pinned: Mapping[str, str]
    ) -> tuple[Entry, ...]:
        """The history as entries of a request to `model` of `provider`, within the model's room.

        Args:
            pinned: the application's facts by name; they are restated behind a compaction.
        """
        self._choose_images(room)
        shape = Shape(provider, model, room.result_bytes, room.shows_images, self._images_from)
        return self._build(shape, running_turn, pinned, room.pins)

    def entries(self, provider: str, model: str, running_turn: str, result_bytes: int) -> tuple[Entry, ...]:
        """The history as entries, with all of its images.

        `result_bytes` bounds how much of one tool result the model is shown.
        """
        return self._build(Shape(provider, model, result_bytes), running_turn, {}, 0)

    def note(self, pinned: Mapping[str, str], pin_tokens: int, target: tuple[str, str]) -> tuple[Entry, ...]:
        """What stands before the items for a model of a provider: the compacted ones, and the facts."""
        if self.compaction is None:
            return facts_entries(pinned)
        return note_entries(self.compaction, pinned, pin_tokens, target)

    def _build(
        self, shape: Shape, running_turn: str, pinned: Mapping[str, str], pin_tokens: int
    ) -> tuple[Entry, ...]:
        target = (shape, tuple(sorted(pinned.items())), pin_tokens)
        before = self._finished
        if before is None or before.target != target:
            note = self.note(pinned, pin_tokens, (shape.provider, shape.model))
            before = _Finished(target, 0, note, Checked(), Shown(), entries_tokens(note))
        rows = self._rows
        past = before.rows
        while past < len(rows) and rows[past].turn_id != running_turn:
            past += 1
        finished, tokens = before.entries, before.tokens
        if past > before.rows:
            # Items of turns that have ended never change: what they say is built once.
            more = make_entries(rows[before.rows : past], running_turn, shape, before.shown)
            finished += tuple(more)
            tokens += entries_tokens(more)
        self._finished = _Finished(target, past, finished, before.checked, before.shown, tokens)
        shown = before.shown.copy()
        running = make_entries(rows[past:], running_turn, shape, shown)
        self.estimate = tokens + entries_tokens(running)
        self.is_cut = shown.is_cut
        return finished + tuple(running)

    def _add(self, items: Iterable[ItemRow]) -> None:
        for item in items:
            data, shared = share(item.data, self._texts)
            if data is not item.data:
                item = replace(item, data=data)
            place = self._places.setdefault(item.id, len(self._rows))
            if place == len(self._rows):
                self._rows.append(item)
                for image, url in images_of(item):
                    self._images[image] = len(url)
            else:
                self._rows[place] = item
            # Roughly the memory it takes, counted again when an item changes.
            self.size += _weight(item.data) - shared + _weight(item.private) + ROW_OVERHEAD

    def _choose_images(self, room: Room) -> None:
        """Show fewer images once they are too many or too large; the newest one is always shown."""
        shown = [size for place, size in self._images.items() if place >= self._images_from]
        if len(shown) < 2 or (len(shown) <= room.image_count and sum(shown) <= room.image_bytes):
            return
        size = 0
        for count, place in enumerate(sorted(self._images, reverse=True), 1):
            size += self._images[place]
            if count > 1 and (
                count > room.image_count // IMAGES_KEPT or size > room.image_bytes // IMAGES_KEPT
            ):
                break
            self._images_from = place


Target = tuple[Shape, tuple[tuple[str, str], ...], int]


@dataclass(frozen=True, slots=True)
class _Finished:
    """The entries of the first `rows` items, all of turns that have ended, for one model."""

    target: Target
    rows: int
    entries: tuple[Entry, ...]
    checked: Checked
    shown: Shown
    tokens: int


def _weight(value: Any) -> int:
    """About how many bytes of memory a JSON value takes."""
    match value:
        case str():
            return len(value)
        case Mapping():
            return sum(len(key) + _weight(inner) for key, inner in value.items()) + 20
        case list() | tuple():
            return sum(map(_weight, value)) + 20
    return 8
