"""The creation stream of a session that its `Idempotency-Key` already created.

While the first turn runs, the stream joins it; afterwards it tells what happened and ends.
"""

from __future__ import annotations

from fastapi import Response

from perdure.api.keyring import Caller
from perdure.api.services import Services
from perdure.api.streams import EventStream, FirstTurnEnd, catch_up, take_snapshot
from perdure.live.frames import EventFrame, Frame
from perdure.store.history import list_turns, load_turn_items
from perdure.store.pages import PageRequest
from perdure.wire import events as wire
from perdure.wire.turns import Turn

ENDED: dict[str, type[wire.TurnStateEvent]] = {
    "completed": wire.TurnCompleted,
    "failed": wire.TurnFailed,
    "cancelled": wire.TurnCancelled,
}


async def replay_creation(
    services: Services, caller: Caller, session_id: str, *, obfuscate: bool
) -> Response:
    """Answer a repeated streaming creation with the stream of the session it created."""
    subscription = services.hub.subscribe(session_id, obfuscate=obfuscate)
    try:
        snapshot = await take_snapshot(services.store, services.hub, subscription, caller.project_id)
        first_turn = await services.store.read(
            list_turns, session_id, caller.project_id, PageRequest(1, "asc")
        )
        frames: list[Frame] = [_frame(services, session_id, wire.SessionCreated, session=snapshot.session)]
        live = catch_up(services.hub, subscription, snapshot)
        if not first_turn.rows:
            return _respond(services, subscription, frames + live)
        turn = first_turn.rows[0]
        frames.append(_turn_frame(services, turn, wire.TurnCreated))
        if turn.status not in ENDED:
            return _respond(services, subscription, frames + live)
        for row in await services.store.read(load_turn_items, turn.id):
            kind = wire.ItemAdded if row.output_index is None else wire.ItemDone
            frames.append(
                _frame(
                    services,
                    session_id,
                    kind,
                    session_id=session_id,
                    turn_id=turn.id,
                    item=row.resource,
                    output_index=row.output_index,
                )
            )
        frames.append(_turn_frame(services, turn, ENDED[turn.status]))
        idle = snapshot.session
        if idle.status != "idle":
            # A later turn is none of this stream's business, nor what it waits for.
            idle = idle.model_copy(update={"status": "idle", "required_actions": []})
        frames.append(_frame(services, session_id, wire.SessionIdle, session=idle))
        subscription.end()
        return _respond(services, subscription, frames)
    except BaseException:
        subscription.close()
        raise


def _respond(services: Services, subscription: object, frames: list[Frame]) -> Response:
    return EventStream(
        subscription,  # type: ignore[arg-type]
        first=frames,
        keepalive=services.settings.server.keepalive,
        status_code=201,
        until=FirstTurnEnd(),
    )


def _turn_frame(services: Services, turn: Turn, kind: type[wire.TurnStateEvent]) -> Frame:
    fields = {"session_id": turn.session_id, "turn_id": turn.id, "turn": turn}
    if kind is not wire.TurnCreated:
        fields["usage"] = turn.usage
    return _frame(services, turn.session_id, kind, **fields)


def _frame(services: Services, topic: str, kind: type[wire.Event], **fields: object) -> Frame:
    return EventFrame(0, kind(event_id=services.hub.live_id(topic), **fields))
