"""`/v1/agents/sessions/{session_id}/subagents`: the agents that a session's agents created, and their work.

They are read only: subagents are created, told, interrupted and closed by the agent above them.
"""

from __future__ import annotations

from fastapi import Response

from perdure.api.access import UseCaller, UsePage, UseServices, json_response, page_response
from perdure.api.routing import router
from perdure.store.history import list_items, list_turns, read_turn
from perdure.store.subagents import list_subagents, read_subagent
from perdure.wire.items import Item
from perdure.wire.pages import Page
from perdure.wire.subagents import Subagent
from perdure.wire.turns import Turn

routes = router("/v1/agents/sessions/{session_id}/subagents", "subagents")


@routes.get("", response_model=Page[Subagent])
async def list_(services: UseServices, caller: UseCaller, page: UsePage, session_id: str) -> Response:
    """The subagents of a session, closed and nested ones included."""
    return page_response(await services.store.read(list_subagents, session_id, caller.project_id, page))


@routes.get("/{subagent_id}", response_model=Subagent)
async def retrieve(services: UseServices, caller: UseCaller, session_id: str, subagent_id: str) -> Response:
    """One subagent."""
    return json_response(await services.store.read(read_subagent, session_id, caller.project_id, subagent_id))


@routes.get("/{subagent_id}/items", response_model=Page[Item])
async def items(
    services: UseServices, caller: UseCaller, page: UsePage, session_id: str, subagent_id: str
) -> Response:
    """A subagent's items, its task first."""
    rows = await services.store.read(list_items, session_id, caller.project_id, page, subagent_id=subagent_id)
    return page_response(rows)


@routes.get("/{subagent_id}/turns", response_model=Page[Turn])
async def turns(
    services: UseServices, caller: UseCaller, page: UsePage, session_id: str, subagent_id: str
) -> Response:
    """A subagent's turns."""
    rows = await services.store.read(list_turns, session_id, caller.project_id, page, subagent_id=subagent_id)
    return page_response(rows)


@routes.get("/{subagent_id}/turns/{turn_id}", response_model=Turn)
async def turn(
    services: UseServices, caller: UseCaller, session_id: str, subagent_id: str, turn_id: str
) -> Response:
    """One turn of a subagent."""
    found = await services.store.read(
        read_turn, session_id, caller.project_id, turn_id, subagent_id=subagent_id
    )
    return json_response(found)


@routes.get("/{subagent_id}/turns/{turn_id}/items", response_model=Page[Item])
async def turn_items(
    services: UseServices,
    caller: UseCaller,
    page: UsePage,
    session_id: str,
    subagent_id: str,
    turn_id: str,
) -> Response:
    """The items of one turn of a subagent."""
    rows = await services.store.read(
        list_items, session_id, caller.project_id, page, turn_id=turn_id, subagent_id=subagent_id
    )
    return page_response(rows)
