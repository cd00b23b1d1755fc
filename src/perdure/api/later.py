"""Routes of the protocol that this version does not serve: they say so, instead of a missing resource.

They are not part of the OpenAPI document.
"""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from perdure.wire.errors import NotFound

PATHS = {
    "/v1/agents/automations": "Automations",
    "/v1/agents/environments": "Environments",
    "/v1/agents/sessions/{session_id}/artifacts": "Artifacts",
    "/v1/agents/sessions/{session_id}/traces": "Traces",
    "/v1/vaults": "Vaults",
    "/v1/webhook_endpoints": "Webhook endpoints",
    "/v1/webhook_event_types": "Webhook endpoints",
}

routes = APIRouter(include_in_schema=False)


def _refuse(name: str, path: str) -> None:
    async def refuse(_request: Request) -> Response:
        raise NotFound(f"{name} are not supported by this server yet. See GET /perdure/v1/capabilities.")

    for pattern in (path, path + "/{rest:path}"):
        routes.add_api_route(pattern, refuse, methods=["GET", "POST", "DELETE"])


for _path, _name in PATHS.items():
    _refuse(_name, _path)
