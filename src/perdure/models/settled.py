"""Histories that are written once: what earlier requests of a conversation said comes again unchanged.

A history grows with every turn and is sent whole with every request. The part of it that belongs to
turns that have ended is kept as it was written, so that a request costs what is new.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from perdure.models.jsontext import Encoded, encode
from perdure.models.messages import Entry, ModelRequest

S = TypeVar("S")

KEPT = 512
KEPT_BYTES = 32 << 20

Write = Callable[[Sequence[Entry], S], tuple[list[dict[str, Any]], S]]


@dataclass(frozen=True, slots=True)
class Settled(Generic[S]):
    """JSON of the first entries, without brackets, and the writer's state behind them."""

    entries: tuple[Entry, ...]
    data: bytes
    state: S


class SettledHistories(Generic[S]):
    """The settled parts of the most recent conversations of one adapter.

    `holds` tells whether what was written up to the first state stays right once the second is reached.
    """

    def __init__(self, holds: Callable[[S, S], bool] = lambda _before, _after: True) -> None:
        self._holds = holds
        self._kept: OrderedDict[Hashable, Settled[S]] = OrderedDict()
        self._size = 0

    def write(self, key: Hashable, request: ModelRequest, start: S, write: Write[S]) -> Encoded:
        """The entries of a request as a JSON array.

        Args:
            key: names the conversation, and everything that `write` depends on.
            start: the state of a writer that has written nothing.
            write: turns entries behind a state into JSON objects, and the state behind them.
        """
        base = self.settle(key, request, start, write)
        items, state = write(request.entries[len(base.entries) :], base.state)
        if not self._holds(base.state, state):
            return Encoded(encode(write(request.entries, start)[0]))
        return Encoded(b"[%b]" % joined(base.data, items))

    def settle(self, key: Hashable, request: ModelRequest, start: S, write: Write[S]) -> Settled[S]:
        """Only the settled entries of a request; see `write`."""
        base = self._take(key, request.entries) or Settled((), b"", start)
        if request.settled > len(base.entries):
            settled = request.entries[: request.settled]
            items, state = write(settled[len(base.entries) :], base.state)
            if self._holds(base.state, state):
                base = Settled(settled, joined(base.data, items), state)
            else:
                items, state = write(settled, start)
                base = Settled(settled, joined(b"", items), state)
        self._keep(key, base)
        return base

    def _take(self, key: Hashable, entries: tuple[Entry, ...]) -> Settled[S] | None:
        found = self._kept.pop(key, None)
        if found is None:
            return None
        self._size -= len(found.data)
        # Entries are compared by identity first: this costs little where nothing has changed.
        return found if entries[: len(found.entries)] == found.entries else None

    def _keep(self, key: Hashable, settled: Settled[S]) -> None:
        if not settled.entries or len(settled.data) > KEPT_BYTES:
            return
        self._kept[key] = settled
        self._size += len(settled.data)
        while self._size > KEPT_BYTES or len(self._kept) > KEPT:
            _, oldest = self._kept.popitem(last=False)
            self._size -= len(oldest.data)


def joined(data: bytes, items: list[dict[str, Any]]) -> bytes:
    """The JSON of the elements of two lists, without brackets."""
    more = encode(items)[1:-1]
    return b"%b,%b" % (data, more) if data and more else data or more
