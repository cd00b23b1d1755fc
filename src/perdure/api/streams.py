"""Event streams over HTTP: byte-level server-sent events, and the snapshot a new reader starts from."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from perdure.live.frames import KEEPALIVE, EventFrame, Frame
from perdure.live.hub import Hub, Subscription, Unfinished
from perdure.store.engine import Store
from perdure.store.rows import ItemRow
from perdure.store.snapshots import Snapshot, read_snapshot
from perdure.store.speaking import event_id
from perdure.wire import events as wire
from perdure.wire.items import OutputText, SummaryText
from perdure.wire.sessions import Session

HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache, no-transform",
    "x-accel-buffering": "no",
}

Until = Callable[[wire.Event], bool]

PIECE = 256 << 10
"""Bytes of a frame that are sent at once."""


class EventStream(Response):
    """Sends a subscription's frames until it ends, the client goes away, or `until` an event.

    `before` yields what comes ahead of the `first` frames. Headers leave at once; a silent stream
    carries a comment every `keepalive` seconds.
    """

    def __init__(
        self,
        subscription: Subscription,
        *,
        first: Iterable[Frame] = (),
        before: AsyncIterator[list[Frame]] | None = None,
        keepalive: float,
        status_code: int = 200,
        until: Until | None = None,
    ) -> None:
        super().__init__(status_code=status_code, headers=HEADERS)
        del self.headers["content-length"]
        self._subscription = subscription
        self._first = list(first)
        self._before = before
        self._keepalive = keepalive
        self._until = until

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        try:
            await send(start)
            await self._send_until_gone(receive, send)
        finally:
            self._subscription.close()
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_until_gone(self, receive: Receive, send: Send) -> None:
        sending = asyncio.create_task(self._send_frames(send))
        leaving = asyncio.create_task(_disconnected(receive))
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        finally:
            for task in (sending, leaving):
                task.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)

    async def _send_frames(self, send: Send) -> None:
        if self._before is not None:
            async for earlier in self._before:
                await _send_bodies(send, self._encode(earlier)[0])
            self._before = None
        # An idle stream lives long: it keeps nothing of what it began with.
        batch, self._first = self._first, []
        bodies, ended = self._encode(batch)
        while True:
            await _send_bodies(send, bodies)
            if ended:
                return
            del batch, bodies
            following = await self._subscription.next_batch(self._keepalive)
            if following is None:
                return
            batch = following
            del following
            bodies, ended = self._encode(batch) if batch else ([KEEPALIVE], False)

    def _encode(self, batch: Sequence[Frame]) -> tuple[list[bytes], bool]:
        """The frames as bytes, up to the one the stream ends with, and whether it does."""
        chunks: list[bytes] = []
        for frame in batch:
            chunks.append(frame.encoded(self._subscription.obfuscate))
            if self._until is not None and isinstance(frame, EventFrame) and self._until(frame.event):
                return _joined(chunks), True
        return _joined(chunks), False


def _joined(chunks: list[bytes]) -> list[bytes]:
    """Frames as one body; together with a large one they stay apart, which saves a copy of it."""
    return chunks if any(len(chunk) > PIECE for chunk in chunks) else [b"".join(chunks)]


async def _send_bodies(send: Send, bodies: list[bytes]) -> None:
    # In pieces: what stands below copies what it is given, and waits for the reader behind each.
    for body in bodies:
        for start in range(0, len(body), PIECE):
            piece = body if len(body) <= PIECE else body[start : start + PIECE]
            await send({"type": "http.response.body", "body": piece, "more_body": True})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


@dataclass(slots=True)
class FirstTurnEnd:
    """Where a creation stream ends: at the first idle behind its turn's end, or when the session fails."""

    turn_ended: bool = False

    def __call__(self, event: wire.Event) -> bool:
        match event:
            case wire.TurnCompleted() | wire.TurnFailed() | wire.TurnCancelled():
                self.turn_ended = True
            case wire.SessionFailed():
                return True
            case wire.SessionIdle():
                return self.turn_ended
            case _:
                pass
        return False


def catch_up(hub: Hub, subscription: Subscription, snapshot: Snapshot) -> list[Frame]:
    """The frames that a subscription continued from this snapshot starts with.

    Idle: the session. Waiting: the calls without a result, then the session. Running: the session,
    the turn's user messages and its unfinished items, with the text so far as one delta.
    """
    session_id = subscription.session_id
    say = SnapshotFrames(hub, session_id, snapshot.seq)
    session = snapshot.session
    match session.status:
        case "failed":
            say.session(wire.SessionFailed, session)
        case "idle":
            say.session(wire.SessionIdle, session)
        case "requires_action":
            say.items(snapshot, subscription)
            say.session(wire.SessionRequiresAction, session)
        case "in_progress":
            say.session(wire.SessionInProgress, session)
            say.items(snapshot, subscription)
    subscription.forget_beginning()
    return say.frames


async def take_snapshot(store: Store, hub: Hub, subscription: Subscription, project_id: str) -> Snapshot:
    """Read what a stream starts from, and continue the subscription from exactly there.

    Raises:
        SessionGone: missing, deleted, or of another project.
    """
    session_id = subscription.session_id
    await hub.ready(session_id)
    while True:
        snapshot = await store.read(read_snapshot, session_id, project_id)
        unfinished = [_unfinished(row) for row in snapshot.unfinished]
        if hub.attach(subscription, snapshot.seq, event_id(session_id, snapshot.seq), unfinished):
            return snapshot


def attach_to_new(hub: Hub, subscription: Subscription) -> None:
    """Begin the subscription with the first event of a session that is about to be created."""
    hub.attach(subscription, 0, event_id(subscription.session_id, 0), [])


def _unfinished(row: ItemRow) -> Unfinished:
    texts = _saved_texts(row.data) if row.type in ("message", "reasoning") else []
    return Unfinished(
        item_id=row.id,
        turn_id=row.turn_id,
        output_index=row.output_index or 0,
        kind="reasoning_summary_text" if row.type == "reasoning" else "output_text",
        texts=tuple(texts),
    )


class SnapshotFrames:
    """Collects frames that are made for one reader; their ids follow that of the stored event at `seq`."""

    def __init__(self, hub: Hub, session_id: str, seq: int) -> None:
        self.frames: list[Frame] = []
        self._hub = hub
        self._session_id = session_id
        self._seq = seq

    def session(self, kind: type[wire.SessionStateEvent], session: Session) -> None:
        self._say(kind, session=session)

    def items(self, snapshot: Snapshot, subscription: Subscription) -> None:
        """Items as they were added; those being written with their text so far."""
        for row in (*snapshot.messages, *snapshot.unfinished):
            self.item(row, subscription)

    def item(self, row: ItemRow, subscription: Subscription) -> None:
        writing = row.type in ("message", "reasoning") and row.status == "in_progress"
        shown = row.emptied() if writing else row
        self._say(
            wire.ItemAdded,
            session_id=self._session_id,
            turn_id=row.turn_id,
            item=shown.resource,
            output_index=row.output_index,
        )
        if writing:
            if row.type == "message":
                self._part(wire.ContentPartAdded, row, content_index=0, part=OutputText(text=""))
            self.text_so_far(row, subscription)

    def text_so_far(self, row: ItemRow, subscription: Subscription) -> None:
        """The text of an item in progress up to where the subscription's deltas go on, as one delta."""
        if row.id in subscription.added:
            return  # all of it is still in the subscription
        parts = subscription.written.get(row.id)
        if parts is not None:
            texts = [text for _, text in parts]
        else:
            texts = [] if self._hub.tells_saved_text else _saved_texts(row.data)
        for index, text in enumerate(texts):
            if row.type == "message":
                if text:
                    self._part(wire.OutputTextDelta, row, content_index=index, delta=text)
                continue
            empty = SummaryText(text="")
            self._part(wire.ReasoningSummaryPartAdded, row, summary_index=index, part=empty)
            if text:
                self._part(wire.ReasoningSummaryTextDelta, row, summary_index=index, delta=text)
            if index < len(texts) - 1:
                self._part(wire.ReasoningSummaryTextDone, row, summary_index=index, text=text)
                whole = SummaryText(text=text)
                self._part(wire.ReasoningSummaryPartDone, row, summary_index=index, part=whole)

    def _part(self, kind: Callable[..., wire.Event], row: ItemRow, **fields: object) -> None:
        where = {
            "session_id": self._session_id,
            "turn_id": row.turn_id,
            "item_id": row.id,
            "output_index": row.output_index,
        }
        self._say(kind, **where, **fields)

    def _say(self, kind: Callable[..., wire.Event], **fields: object) -> None:
        event = kind(event_id=self._hub.live_id(self._session_id, self._seq), **fields)
        self.frames.append(EventFrame(0, event))


def _saved_texts(data: Mapping[str, Any]) -> list[str]:
    parts = data.get("content") or data.get("summary") or []
    return [part["text"] for part in parts]
