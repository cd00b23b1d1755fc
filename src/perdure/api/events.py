"""`/v1/agents/sessions/{session_id}/events`: submitting input, following what happens."""

from __future__ import annotations

from typing import Annotated

from fastapi import Header, Query, Request, Response

from perdure.api.access import UseCaller, UseKey, UseServices, idempotency_key_of
from perdure.api.errors import STREAM_RESPONSE
from perdure.api.replay_stream import replay
from perdure.api.routing import router
from perdure.api.services import Services
from perdure.api.streams import EventStream, catch_up, take_snapshot
from perdure.store.accept import accept_once
from perdure.wire.inputs import EventBatch
from perdure.wire.validation import validate

routes = router("/v1/agents/sessions/{session_id}/events", "events")


@routes.post("", status_code=202, response_class=Response, responses={202: {"description": "Accepted."}})
async def submit(
    services: UseServices, caller: UseCaller, key: UseKey, session_id: str, body: EventBatch
) -> Response:
    """Accept input events, all or none. 202 means that they are durable."""
    await services.store.write(accept_once, key, session_id, caller.project_id, body.events)
    return Response(status_code=202)


async def _submit(request: Request) -> Response:
    """`submit` with what it needs taken from the request."""
    key = idempotency_key_of(request, request.headers.get("idempotency-key"))
    body = validate(EventBatch, await request.json())
    services: Services = request.app.state.services
    return await submit(services, request.state.caller, key, request.path_params["session_id"], body)


submit.reads_request = _submit  # type: ignore[attr-defined]


@routes.get("", response_class=Response, responses={200: STREAM_RESPONSE})
async def stream(
    services: UseServices,
    caller: UseCaller,
    session_id: str,
    include_obfuscation: Annotated[bool, Query(description="Pad deltas to hide their length.")] = True,
    after: Annotated[
        str | None, Query(description="Extension: replay stored events behind this event_id first.")
    ] = None,
    last_event_id: Annotated[str | None, Header(description="Extension: the same as `after`.")] = None,
    stream: Annotated[str | None, Query(description="Ignored: this route always streams.")] = None,
) -> Response:
    """Follow a session from its present state on, across turns."""
    obfuscate = include_obfuscation and services.settings.server.obfuscation
    subscription = services.hub.subscribe(session_id, obfuscate=obfuscate)
    cursor = after or last_event_id
    try:
        if cursor:
            return await replay(services, caller, subscription, cursor)
        snapshot = await take_snapshot(services.store, services.hub, subscription, caller.project_id)
        first = catch_up(services.hub, subscription, snapshot)
    except BaseException:
        subscription.close()
        raise
    return EventStream(subscription, first=first, keepalive=services.settings.server.keepalive)
