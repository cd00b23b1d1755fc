"""`/v1/agents`: saved agents."""

from __future__ import annotations

from fastapi import Response

from perdure.api.access import UseCaller, UseKey, UsePage, UseServices, json_response, page_response
from perdure.api.limits import configured_limits
from perdure.api.routing import router
from perdure.api.support import check_model, check_names, check_schemas
from perdure.store.agents import (
    create_agent_once,
    delete_agent,
    list_agents,
    read_agent,
    read_settings,
    update_agent_once,
)
from perdure.wire.agents import (
    Agent,
    AgentCreate,
    AgentDeleted,
    AgentUpdate,
    apply_update,
    resolve_create,
)
from perdure.wire.errors import NotFound
from perdure.wire.limits import check_agent_limits
from perdure.wire.pages import Page

routes = router("/v1/agents", "agents")


@routes.post("", status_code=201, response_model=Agent)
async def create(services: UseServices, caller: UseCaller, key: UseKey, body: AgentCreate) -> Response:
    """Save an agent configuration."""
    settings = resolve_create(body)
    check_model(services, settings, "")
    check_names(settings, body.model_fields_set, "")
    check_agent_limits(body.metadata, configured_limits(services))
    await check_schemas(body.tools, body.text, "")
    return json_response(await services.store.write(create_agent_once, key, caller.project_id, body), 201)


@routes.get("", response_model=Page[Agent])
async def list_(services: UseServices, caller: UseCaller, page: UsePage) -> Response:
    """Saved agents of the project."""
    return page_response(await services.store.read(list_agents, caller.project_id, page))


@routes.get("/{agent_id}", response_model=Agent)
async def retrieve(services: UseServices, caller: UseCaller, agent_id: str) -> Response:
    """One saved agent."""
    agent = await services.store.read(read_agent, caller.project_id, agent_id)
    if agent is None:
        raise NotFound()
    return json_response(agent)


@routes.post("/{agent_id}", response_model=Agent)
async def update(
    services: UseServices, caller: UseCaller, key: UseKey, agent_id: str, body: AgentUpdate
) -> Response:
    """Change a saved agent; existing sessions keep their copy."""
    current = await services.store.read(read_settings, caller.project_id, agent_id)
    if current is None:
        raise NotFound()
    check_agent_limits(body.metadata, configured_limits(services))
    # An update that touches neither is not held up by a model that is gone meanwhile.
    if body.model is not None or body.reasoning is not None:
        check_model(services, apply_update(current[1], body), "")
    if body.model_fields_set & {"tools", "multi_agent"}:
        check_names(apply_update(current[1], body), body.model_fields_set, "")
    await check_schemas(body.tools, body.text, "")
    return json_response(
        await services.store.write(update_agent_once, key, caller.project_id, agent_id, body)
    )


@routes.delete("/{agent_id}", response_model=AgentDeleted)
async def delete(services: UseServices, caller: UseCaller, agent_id: str) -> Response:
    """Delete a saved agent; existing sessions keep their copy."""
    if not await services.store.write(delete_agent, caller.project_id, agent_id):
        raise NotFound()
    return json_response(AgentDeleted(id=agent_id))
