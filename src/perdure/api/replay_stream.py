"""Replay of stored events: behind a cursor on the ordinary stream, and as pages of their own.

An extension: without a cursor, the stream is the official one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import Query, Response

from perdure.api.access import Count, UseCaller, UseServices
from perdure.api.keyring import Caller
from perdure.api.routing import router
from perdure.api.services import Services
from perdure.api.streams import EventStream, SnapshotFrames, take_snapshot
from perdure.live.frames import EventFrame, Frame, encode_json
from perdure.live.hub import Subscription
from perdure.store.replay import Replayed, read_events, sequence_of
from perdure.store.snapshots import Snapshot
from perdure.store.speaking import event_id
from perdure.wire.events import ContentPartAdded, Event, ItemAdded, SessionEvent
from perdure.wire.pages import Page

routes = router("/perdure/v1/sessions/{session_id}", "extensions")

# How many stored transactions one read takes.
STRETCH = 200


@routes.get("/events", response_model=Page[SessionEvent])
async def stored_events(
    services: UseServices,
    caller: UseCaller,
    session_id: str,
    limit: Annotated[Count, Query(ge=1, le=1000, description="About how many events a page holds.")] = 100,
    after: Annotated[str | None, Query(description="An event_id; the page starts behind it.")] = None,
) -> Response:
    """Stored events of a session, oldest first; deltas are never stored."""
    seq = 0 if after is None else sequence_of(session_id, after)
    found = await services.store.read(read_events, session_id, caller.project_id, seq, None, limit)
    ids = [stored.event.event_id for stored in found.events]
    head = Page[SessionEvent](
        data=[],
        first_id=ids[0] if ids else None,
        last_id=event_id(session_id, found.reached) if ids else None,
        has_more=found.more,
    ).model_dump_json(exclude={"data"})
    data = b",".join(encode_json(stored.event) for stored in found.events)
    return Response(head[:-1].encode() + b',"data":[' + data + b"]}", media_type="application/json")


async def replay(services: Services, caller: Caller, subscription: Subscription, after: str) -> EventStream:
    """Stored events behind a cursor, then live, without gap or duplicate.

    Raises:
        InvalidRequest: the cursor is none of this session, or too old.
    """
    session_id = subscription.session_id
    seq = sequence_of(session_id, after)
    snapshot = await take_snapshot(services.store, services.hub, subscription, caller.project_id)
    # Read ahead of the response, so that a bad cursor is an error and not a broken stream.
    first = await services.store.read(read_events, session_id, caller.project_id, seq, snapshot.seq, STRETCH)
    return EventStream(
        subscription,
        before=_stretches(services, caller, subscription, snapshot, first),
        keepalive=services.settings.server.keepalive,
    )


async def _stretches(
    services: Services, caller: Caller, subscription: Subscription, snapshot: Snapshot, first: Replayed
) -> AsyncIterator[list[Frame]]:
    session_id = subscription.session_id
    added: set[str | None] = set()
    stretch = first
    while True:
        added.update(_begun(each.event) for each in stretch.events)
        yield [EventFrame(each.seq, each.event) for each in stretch.events]
        if not stretch.more:
            break
        stretch = await services.store.read(
            read_events, session_id, caller.project_id, stretch.reached, snapshot.seq, STRETCH
        )
    # What is still being written: its text so far, behind an `item.added` of its own if it began
    # before the cursor, since some of its deltas may be missing.
    frames = SnapshotFrames(services.hub, session_id, snapshot.seq)
    for item in snapshot.unfinished:
        if item.type not in ("message", "reasoning"):
            continue
        if item.id in added:
            frames.text_so_far(item, subscription)
        else:
            frames.item(item, subscription)
    subscription.forget_beginning()
    yield frames.frames


def _begun(event: Event) -> str | None:
    """The item that an event begins: nothing of its text can have been delivered before."""
    match event:
        case ItemAdded():
            return event.item.id
        case ContentPartAdded():
            return event.item_id
        case _:
            return None
