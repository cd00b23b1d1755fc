"""The HTTP application: routes, the gate in front of them, errors, and the OpenAPI document."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI

from perdure import __version__
from perdure.api import activity, agents, errors, events, history, later, replay_stream, sessions, status
from perdure.api.gate import Gate
from perdure.api.services import open_services
from perdure.config.settings import Settings


def create_app(settings: Settings, *, bootstrap_key: str | None = None) -> FastAPI:
    """The application for one set of settings; its services live as long as its lifespan."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with open_services(settings, bootstrap_key=bootstrap_key) as services:
            app.state.services = services
            yield

    app = FastAPI(
        title="perdure",
        version=__version__,
        summary="A self-hosted server for the OpenAI Agents API.",
        lifespan=lifespan,
        redirect_slashes=False,
        docs_url=None,
        redoc_url=None,
    )
    errors.install(app)
    # Literal segments win over `/v1/agents/{agent_id}`. The routes are the application's own: an
    # included router would match each request a second time.
    for module in (status, later, activity, replay_stream, events, history, sessions, agents):
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
