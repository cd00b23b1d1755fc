"""`/perdure/v1/sessions`: what runs now, and ending it. An extension for operators."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Response

from perdure.api.access import UseCaller, UsePage, UseServices, page_response
from perdure.api.routing import router
from perdure.store.accept import accept_once
from perdure.store.pages import Rows
from perdure.store.running import SessionActivity, list_activity
from perdure.wire.inputs import CancelInput
from perdure.wire.pages import Page
from perdure.wire.sessions import SessionStatus

routes = router("/perdure/v1/sessions", "extensions")


@routes.get("", response_model=Page[SessionActivity])
async def activity(
    services: UseServices,
    caller: UseCaller,
    page: UsePage,
    status: Annotated[
        list[SessionStatus] | None,
        Query(description="Repeat for several; default: those of which any agent has work to do."),
    ] = None,
) -> Response:
    """Sessions that run or wait, with their turn, its age and what it has used, and running subagents."""
    rows = await services.store.read(list_activity, caller.project_id, status or None, page)
    shown = [row.model_copy(update={"owned": services.work.owns(row.id)}) for row in rows.rows]
    return page_response(Rows(shown, rows.has_more))


activity.repeatable = ("status",)  # type: ignore[attr-defined]


@routes.post(
    "/{session_id}/stop",
    status_code=202,
    response_class=Response,
    responses={202: {"description": "Accepted."}},
)
async def stop(services: UseServices, caller: UseCaller, session_id: str) -> Response:
    """Cancel what a session does and drop what it still holds; the session itself stays."""
    event = CancelInput(type="agent.session.input.cancel")
    await services.store.write(accept_once, None, session_id, caller.project_id, [event])
    return Response(status_code=202)
