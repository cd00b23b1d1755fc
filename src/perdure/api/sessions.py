"""`/v1/agents/sessions`: sessions, with or without a creation stream."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated

from fastapi import Query, Request, Response

from perdure.api.access import UseCaller, UseKey, UsePage, UseServices, json_response, page_response
from perdure.api.creation_replay import replay_creation
from perdure.api.errors import STREAM_RESPONSE
from perdure.api.keyring import Caller
from perdure.api.limits import check_priced, limit_rules
from perdure.api.routing import router
from perdure.api.services import Services
from perdure.api.streams import EventStream, FirstTurnEnd, attach_to_new
from perdure.api.support import (
    check_model,
    check_names,
    check_review,
    check_schemas,
    check_session,
    check_tools,
)
from perdure.store.idempotency import Outcome, find_outcome
from perdure.store.sessions import (
    create_session_once,
    delete_session,
    find_session,
    list_sessions,
    read_session,
    read_settings_of,
    resolve_settings,
    update_session_once,
)
from perdure.wire.agents import apply_session_update
from perdure.wire.errors import Conflict
from perdure.wire.ids import new_id
from perdure.wire.metadata import metadata_filter
from perdure.wire.pages import Page
from perdure.wire.sessions import Session, SessionCreate, SessionDeleted, SessionUpdate

routes = router("/v1/agents/sessions", "sessions")

# How long a deletion waits for a cancelled turn to wind down.
WIND_DOWN_SECONDS = 5.0


@routes.post("", status_code=201, response_model=Session, responses={201: STREAM_RESPONSE})
async def create(services: UseServices, caller: UseCaller, key: UseKey, body: SessionCreate) -> Response:
    """Create a session; with `stream`, follow its first turn as server-sent events."""
    options = body.stream_options
    obfuscate = services.settings.server.obfuscation and (options is None or options.include_obfuscation)
    before = None if key is None else await services.store.read(find_outcome, key)
    if before is not None:
        return await _repeat(services, caller, body, before, obfuscate=obfuscate)
    name, settings = await services.store.read(resolve_settings, caller.project_id, body)
    await check_session(services, body, settings)
    check_priced(services, settings.model, body.metadata, None, "agent.model" if body.agent else "agent_id")
    session_id = new_id("sess")
    # Subscribed before the commit, so that the stream begins with the session's first event.
    subscription = services.hub.subscribe(session_id, obfuscate=obfuscate) if body.stream else None
    try:
        if subscription is not None:
            await services.hub.ready(session_id)
            attach_to_new(services.hub, subscription)
        outcome, created = await services.store.write(
            create_session_once,
            key,
            session_id,
            caller.project_id,
            body,
            name,
            settings,
            limit_rules(services, caller),
        )
    except BaseException:
        if subscription is not None:
            subscription.close()
        raise
    if created is None:
        if subscription is not None:
            subscription.close()
        return await _repeat(services, caller, body, outcome, obfuscate=obfuscate)
    if subscription is None:
        return json_response(created, 201)
    return EventStream(
        subscription,
        keepalive=services.settings.server.keepalive,
        status_code=201,
        until=FirstTurnEnd(),
    )


async def _repeat(
    services: Services, caller: Caller, body: SessionCreate, outcome: Outcome, *, obfuscate: bool
) -> Response:
    """Answer a creation whose key already created a session."""
    if body.stream:
        return await replay_creation(services, caller, outcome.value, obfuscate=obfuscate)
    return json_response(await services.store.read(read_session, outcome.value, caller.project_id), 201)


@routes.get("", response_model=Page[Session])
async def list_(
    request: Request,
    services: UseServices,
    caller: UseCaller,
    page: UsePage,
    agent_id: Annotated[str | None, Query(description="Sessions whose root agent this is.")] = None,
) -> Response:
    """Sessions of the project; `metadata[key]=value` filters, all pairs must match."""
    metadata = metadata_filter(request.query_params.multi_items())
    rows = await services.store.read(
        list_sessions, caller.project_id, page, agent_id=agent_id, metadata=metadata
    )
    return page_response(rows)


list_.filters_metadata = True  # type: ignore[attr-defined]


@routes.get("/{session_id}", response_model=Session)
async def retrieve(services: UseServices, caller: UseCaller, session_id: str) -> Response:
    """One session with what it waits for."""
    return json_response(await services.store.read(read_session, session_id, caller.project_id))


@routes.post("/{session_id}", response_model=Session)
async def update(
    services: UseServices, caller: UseCaller, key: UseKey, session_id: str, body: SessionUpdate
) -> Response:
    """Change model, effort, tier, tools, metadata, caching or review of a session."""
    if body.agent is not None:
        check_tools(body.agent.tools or (), "agent.tools")
        await check_schemas(body.agent.tools, None, "agent.")
        current = await services.store.read(read_settings_of, session_id, caller.project_id)
        given = body.agent.model_fields_set
        changed_to = apply_session_update(current, body.agent)
        if given & {"model", "reasoning", "service_tier"}:
            check_model(services, changed_to, "agent.")
        if "tools" in given:
            check_names(changed_to, given, "agent.")
    if body.metadata is not None or (body.agent is not None and body.agent.model is not None):
        found = await services.store.read(find_session, session_id, caller.project_id)
        settings = await services.store.read(read_settings_of, session_id, caller.project_id)
        changed = body.agent is not None and body.agent.model is not None
        check_priced(
            services,
            (body.agent.model if body.agent is not None else None) or settings.model,
            found.metadata if body.metadata is None else body.metadata,
            found.limits,
            "agent.model" if changed else "metadata",
        )
    check_review(body.review)
    return json_response(
        await services.store.write(
            update_session_once,
            key,
            session_id,
            caller.project_id,
            body,
            limit_rules(services, caller),
        )
    )


@routes.delete("/{session_id}", response_model=SessionDeleted)
async def delete(services: UseServices, caller: UseCaller, session_id: str) -> Response:
    """Delete a session that is idle or failed and owes nothing."""
    deadline = time.monotonic() + WIND_DOWN_SECONDS
    while not await services.store.write(delete_session, session_id, caller.project_id):
        if time.monotonic() > deadline:
            raise Conflict("The session is still cancelling its turn. Try again shortly.")
        services.work.wake(session_id)
        await asyncio.sleep(0.02)
    return json_response(SessionDeleted(id=session_id))
