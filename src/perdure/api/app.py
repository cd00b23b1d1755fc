"""The HTTP application: routes, the gate in front of them, errors, and the OpenAPI document."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from perdure import __version__
from perdure.api import (
    activity,
    agents,
    context,
    errors,
    events,
    history,
    later,
    metrics,
    replay_stream,
    sessions,
    status,
    subagents,
    usage,
)
from perdure.api.gate import Gate
from perdure.api.services import Services


def create_app(services: Services | None = None) -> FastAPI:
    """The application over open services; without them it only describes itself."""
    app = FastAPI(
        title="perdure",
        version=__version__,
        summary="A self-hosted server for the OpenAI Agents API.",
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
    )
    app.state.services = services
    errors.install(app)
    # Literal segments win over `/v1/agents/{agent_id}`. The routes are the application's own: an
    # included router would match each request a second time.
    for module in (
        status,
        metrics,
        later,
        activity,
        context,
        replay_stream,
        usage,
        events,
        history,
        subagents,
        sessions,
        agents,
    ):
        app.router.routes.extend(module.routes.routes)
    app.add_middleware(Gate)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    return app


def _openapi(app: FastAPI) -> dict[str, Any]:
    """FastAPI's document, less its own validation error: faults of a request are 400 here."""
    if app.openapi_schema is None:
        document = FastAPI.openapi(app)
        for path in document["paths"].values():
            for operation in path.values():
                operation["responses"].pop("422", None)
        schemas = document.get("components", {}).get("schemas", {})
        schemas.pop("HTTPValidationError", None)
        schemas.pop("ValidationError", None)
        document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"key": []}]
        app.openapi_schema = document
    return app.openapi_schema
