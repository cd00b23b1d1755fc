"""Items and turns of a session: what was saved, in order."""

from __future__ import annotations

from fastapi import Response

from perdure.api.access import UseCaller, UsePage, UseServices, json_response, page_response
from perdure.api.routing import router
from perdure.store.history import list_items, list_turns, read_turn
from perdure.wire.items import Item
from perdure.wire.pages import Page
from perdure.wire.turns import Turn

routes = router("/v1/agents/sessions/{session_id}", "history")


@routes.get("/items", response_model=Page[Item])
async def items(services: UseServices, caller: UseCaller, page: UsePage, session_id: str) -> Response:
    """The root agent's items."""
    return page_response(await services.store.read(list_items, session_id, caller.project_id, page))


@routes.get("/turns", response_model=Page[Turn])
async def turns(services: UseServices, caller: UseCaller, page: UsePage, session_id: str) -> Response:
    """The root agent's turns."""
    return page_response(await services.store.read(list_turns, session_id, caller.project_id, page))


@routes.get("/turns/{turn_id}", response_model=Turn)
async def turn(services: UseServices, caller: UseCaller, session_id: str, turn_id: str) -> Response:
    """One turn, of the root agent or of a subagent."""
    return json_response(await services.store.read(read_turn, session_id, caller.project_id, turn_id))


@routes.get("/turns/{turn_id}/items", response_model=Page[Item])
async def turn_items(
    services: UseServices, caller: UseCaller, page: UsePage, session_id: str, turn_id: str
) -> Response:
    """The items of one of the root agent's turns."""
    rows = await services.store.read(list_items, session_id, caller.project_id, page, turn_id=turn_id)
    return page_response(rows)
