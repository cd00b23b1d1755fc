"""What a process has to tell the others, and the one task that sends it, in order.

Text waits a moment, so that adjacent deltas of a part leave as one; what says that rows are there
leaves at once, behind the session's text. Nothing here blocks the loop and nothing grows while the
bus is slow or gone: hints collapse to the newest, and text is only pointed at, in the items it
belongs to.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from perdure.live.bus import Bus, BusDown
from perdure.live.frames import DeltaKind
from perdure.live.messages import Delta, Gone, Letter, Message, Newest, Want, letters

log = logging.getLogger(__name__)

MERGE_SECONDS = 0.04
SEND_SECONDS = 5.0
AGAIN_SECONDS = 0.25
STOP_SECONDS = 1.0
CONTROL = 256
"""The most messages for every process that wait to be sent."""


class WrittenItem:
    """An item that this process writes; `wrote` is told of each text: its part, its place, the text."""

    def __init__(
        self,
        session_id: str,
        turn_id: str,
        item_id: str,
        output_index: int,
        epoch: int,
        after: int,
        wrote: Callable[[WrittenItem, int, int, str], None],
    ) -> None:
        self.session_id = session_id
        self.item_id = item_id
        # Until its end is committed, or another owner has to find one.
        self.is_live = True
        self._turn_id = turn_id
        self._output_index = output_index
        self._epoch = epoch
        self._after = after
        self._wrote = wrote
        self._kind: DeltaKind = "output_text"
        # Each text with its part and its place among the item's characters.
        self._pieces: list[tuple[int, int, str]] = []
        self._parts = 0
        self._length = 0
        self._sent = 0

    def append_text(self, text: str) -> None:
        self._append(0, text)

    def append_summary(self, part: int, text: str) -> None:
        self._kind = "reasoning_summary_text"
        self._append(part, text)

    def texts(self) -> list[str]:
        found: list[list[str]] = [[] for _ in range(self._parts)]
        for part, _, text in self._pieces:
            found[part].append(text)
        return ["".join(texts) for texts in found]

    def rewind(self, at: int) -> None:
        """Let the text from character `at` on be sent, even if it was."""
        first = bisect_right(self._pieces, at, key=lambda piece: piece[1]) - 1
        self._sent = min(self._sent, max(0, first))

    @property
    def sent(self) -> int:
        """How many of its texts were sent."""
        return self._sent

    def not_sent(self, sent: int) -> None:
        """Only so many texts were sent after all."""
        self._sent = min(self._sent, sent)

    def unsent(self) -> Iterator[Delta]:
        """What was not sent, as one delta for each part; it counts as sent now."""
        first, self._sent = self._sent, len(self._pieces)
        return self._from(first)

    def whole(self) -> Iterator[Delta]:
        """All of the text so far."""
        return self._from(0)

    def delta(self, part: int, at: int, text: str) -> Delta:
        """Text of this item as other processes and readers take it."""
        return Delta(
            session_id=self.session_id,
            epoch=self._epoch,
            turn_id=self._turn_id,
            item_id=self.item_id,
            output_index=self._output_index,
            kind=self._kind,
            part=part,
            at=at,
            text=text,
            after=self._after,
        )

    def _from(self, first: int) -> Iterator[Delta]:
        for part, group in itertools.groupby(self._pieces[first:], key=lambda piece: piece[0]):
            pieces = list(group)
            yield self.delta(part, pieces[0][1], "".join(text for _, _, text in pieces))

    def _append(self, part: int, text: str) -> None:
        at = self._length
        self._pieces.append((part, at, text))
        self._parts = max(self._parts, part + 1)
        self._length += len(text)
        self._wrote(self, part, at, text)


@dataclass(frozen=True, slots=True)
class _Batch:
    """What leaves together, and what it was made of; `written` with what had been sent before."""

    letters: list[Letter]
    control: list[Message]
    newest: dict[str, int]
    gone: tuple[str, ...]
    written: list[tuple[WrittenItem, int]]


class Publisher:
    """See the module's text.

    may_speak: whether this process may still say something about a session, asked at the last moment.
    """

    def __init__(self, bus: Bus, may_speak: Callable[[str], bool]) -> None:
        self._bus = bus
        self._may_speak = may_speak
        self._control: dict[Message, None] = {}
        self._wants: dict[str, bool] = {}
        self._newest: dict[str, int] = {}
        self._gone: dict[str, None] = {}
        self._written: dict[str, dict[str, WrittenItem]] = {}
        self._wake = asyncio.Event()
        self._merged_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._text_due = False
        self._stopping = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._send(), name="fan-out")

    async def stop(self) -> None:
        """Send what is left, if the bus takes it at once."""
        if self._task is None:
            return
        self._stopping = True
        self._let_text_leave()
        await asyncio.wait({self._task}, timeout=STOP_SECONDS)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def tell(self, message: Message) -> None:
        """A message for every process."""
        if isinstance(message, Want):
            for session_id in message.session_ids:
                self._wants[session_id] = message.new or self._wants.get(session_id, False)
        elif len(self._control) < CONTROL:
            self._control[message] = None
        self._wake.set()

    def newest(self, session_id: str, seq: int) -> None:
        """Events of the session are stored up to `seq`."""
        self._newest[session_id] = max(seq, self._newest.get(session_id, 0))
        self._wake.set()

    def gone(self, session_id: str) -> None:
        """The session is deleted."""
        self._gone[session_id] = None
        self._wake.set()

    def text(self, item: WrittenItem, *, at_once: bool = False) -> None:
        """The item has text that the others have not been sent."""
        self._written.setdefault(item.session_id, {})[item.item_id] = item
        if at_once:
            self._let_text_leave()
        elif self._timer is None and not self._text_due:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(self._merged_at + MERGE_SECONDS, self._let_text_leave)

    def drop(self, item: WrittenItem) -> None:
        """Send no more of the item's text."""
        items = self._written.get(item.session_id)
        if items is not None and items.pop(item.item_id, None) is not None and not items:
            del self._written[item.session_id]

    def _let_text_leave(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._text_due = True
        self._wake.set()

    async def _send(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            stopping = self._stopping
            batch = self._collect()
            try:
                if batch.letters:
                    async with asyncio.timeout(SEND_SECONDS):
                        await self._bus.publish(batch.letters)
                if stopping:
                    return
                continue
            except (BusDown, TimeoutError) as error:
                log.debug("messages to the other processes did not leave: %s", error)
            except Exception:
                log.exception("messages to the other processes did not leave")
            if stopping:
                return
            await asyncio.sleep(AGAIN_SECONDS)
            self._take_back(batch)

    def _take_back(self, batch: _Batch) -> None:
        """Tell again what did not leave, as far as it still matters."""
        for message in batch.control:
            self.tell(message)
        for session_id, seq in batch.newest.items():
            self.newest(session_id, seq)
        for session_id in batch.gone:
            self.gone(session_id)
        for item, sent in batch.written:
            if item.is_live:
                item.not_sent(sent)
                self.text(item)

    def _collect(self) -> _Batch:
        """Everything that is due, encoded; a session's text comes before what says that it ended."""
        wants, self._wants = self._wants, {}
        control, self._control = list(self._control), {}
        for new in (True, False):
            if wanted := tuple(session_id for session_id, is_new in wants.items() if is_new == new):
                control.append(Want(wanted, new))
        due: list[Message] = list(control)
        newest, self._newest = self._newest, {}
        gone, self._gone = self._gone, {}
        if self._text_due:
            written, self._written, self._text_due = self._written, {}, False
            self._merged_at = asyncio.get_running_loop().time()
        else:
            ending = newest.keys() & self._written.keys()
            written = {session_id: self._written.pop(session_id) for session_id in ending}
        spoken = [item for each, items in written.items() if self._may_speak(each) for item in items.values()]
        places = [(item, item.sent) for item in spoken]
        due.extend(delta for item in spoken for delta in item.unsent())
        newest = {each: seq for each, seq in newest.items() if self._may_speak(each)}
        due.extend(Newest(each, seq) for each, seq in newest.items())
        due.extend(Gone(session_id) for session_id in gone)
        encoded = [letter for message in due for letter in letters(message)]
        return _Batch(encoded, control, newest, tuple(gone), places)
