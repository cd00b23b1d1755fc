"""Health, readiness and what this server can do."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Response
from pydantic import BaseModel
from sqlalchemy import text

from perdure import __version__
from perdure.api.access import UseServices, json_response
from perdure.api.errors import ERROR_RESPONSES
from perdure.api.support import ENVIRONMENTS, TOOLS
from perdure.store.tx import Tx
from perdure.wire.errors import ServiceUnavailable

READY_SECONDS = 2.0

routes = APIRouter(tags=["status"], responses=ERROR_RESPONSES)


class Health(BaseModel):
    """The process answers."""

    status: str = "ok"


class Feature(BaseModel):
    """Whether something the protocol names is active here; `note` says what happens otherwise."""

    active: bool
    note: str | None = None


class Capabilities(BaseModel):
    """What this server does beyond, and short of, the official API."""

    version: str
    protocol: str
    environments: list[str]
    tools: list[str]
    features: dict[str, Feature]


FEATURES = {
    "multi_agent": Feature(
        active=True,
        note="Subagents share the model of the session's agent and have none of its functions. What each has "
        "used: GET /perdure/v1/sessions/{session_id}/usage; what its model sees: /context?agent_id=.",
    ),
    "compaction": Feature(
        active=True,
        note="What the model sees, and what each compaction dropped: "
        "GET /perdure/v1/sessions/{session_id}/context.",
    ),
    "pinned_facts": Feature(
        active=True,
        note="Session metadata perdure.pin.<name> and perdure.pin_path.<name>; facts found by rule.",
    ),
    "vaults": Feature(active=False, note="The routes are not served."),
    "automations": Feature(active=False, note="The routes are not served."),
    "artifacts": Feature(active=False, note="The routes are not served."),
    "webhooks": Feature(active=False, note="The routes are not served."),
    "auto_review": Feature(active=False, note="Requests that ask for it are refused."),
    "limits": Feature(
        active=True,
        note="Ceilings from the configuration, per agent and session by metadata keys perdure.limit.<name>.",
    ),
    "usage": Feature(
        active=True,
        note="GET /perdure/v1/sessions/{session_id}/usage, and /usage/calls for each model call.",
    ),
    "argument_validation": Feature(
        active=True, note="Calls whose arguments break the function's schema are answered to the model."
    ),
    "event_replay": Feature(
        active=True,
        note="Stored events behind a cursor: GET /perdure/v1/sessions/{session_id}/events?after=, and "
        "after= or Last-Event-ID on the event stream.",
    ),
    "idempotency": Feature(
        active=True, note="On every POST of the official API, with the Idempotency-Key header."
    ),
}


@routes.get("/healthz", response_model=Health)
async def health() -> Response:
    """Whether the process answers."""
    return json_response(Health())


@routes.get("/readyz", response_model=Health)
async def ready(services: UseServices) -> Response:
    """Whether the storage takes writes."""
    try:
        async with asyncio.timeout(READY_SECONDS):
            await services.store.write(_probe)
    except Exception as error:
        raise ServiceUnavailable("The storage cannot be written now.") from error
    return json_response(Health(status="ready"))


@routes.get("/perdure/v1/capabilities", response_model=Capabilities)
async def capabilities() -> Response:
    """What this server can do."""
    return json_response(
        Capabilities(
            version=__version__,
            protocol="agents=v1",
            environments=list(ENVIRONMENTS),
            tools=list(TOOLS),
            features=FEATURES,
        )
    )


def _probe(tx: Tx) -> None:
    """A transaction that takes the writer's way and changes nothing."""
    tx.conn.execute(text("SELECT 1")).one()
