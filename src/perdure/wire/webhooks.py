"""Webhooks: endpoints, and the content-free events delivered to them."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, get_args
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, TypeAdapter

from perdure.wire.actions import ActionKind
from perdure.wire.shapes import Omissible, Request, Resource, absent, refusal

AgentEventType = Literal[
    "agent.session.created",
    "agent.session.action_required",
    "agent.session.in_progress",
    "agent.session.idle",
    "agent.session.failed",
    "agent.environment.ready",
    "agent.environment.failed",
    "agent.environment.suspended",
    "agent.environment.expired",
]
AGENT_EVENT_TYPES: tuple[str, ...] = get_args(AgentEventType)
_OTHER_FAMILIES = ("batch.", "response.", "eval.run.", "fine_tuning.job.", "realtime.", "video.", "safety.")


def _check_event_type(name: str) -> str:
    # Names of other products are accepted and never fire.
    if name in AGENT_EVENT_TYPES or (name.startswith(_OTHER_FAMILIES) and len(name) <= 64):
        return name
    shown = name if len(name) <= 64 else name[:63] + "…"
    supported = ", ".join(f"'{known}'" for known in AGENT_EVENT_TYPES[:-1])
    raise refusal(
        f"Invalid value: '{shown}'. Supported values are: {supported}, and '{AGENT_EVENT_TYPES[-1]}'."
    )


def _check_event_types(names: list[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _check_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        host, user = parts.hostname, parts.username
    except ValueError:
        host, user = None, None
    # Whether plain http to this machine is permitted is the server's configuration to decide.
    permitted = parts.scheme.lower() in ("https", "http") if host else False
    if not permitted or user is not None or re.search(r"[\s\x00-\x1f]", url):
        raise refusal("Invalid '{param}': expected an https URL without credentials.")
    if parts.scheme.lower() == "http" and host not in ("localhost", "127.0.0.1", "::1"):
        raise refusal("Invalid '{param}': expected an https URL.")
    return url


EventType = Annotated[str, AfterValidator(_check_event_type)]
EventTypes = Annotated[list[EventType], Field(min_length=1), AfterValidator(_check_event_types)]
EndpointUrl = Annotated[str, Field(max_length=4096), AfterValidator(_check_url)]
EndpointName = Annotated[str, Field(min_length=1, max_length=256)]


class WebhookEndpointCreate(Request):
    """Body of creating an endpoint. Plain http is accepted for this machine only."""

    name: EndpointName
    url: EndpointUrl
    event_types: EventTypes


class WebhookEndpointUpdate(Request):
    name: Omissible[EndpointName] = None
    url: Omissible[EndpointUrl] = None
    event_types: Omissible[EventTypes] = None


class WebhookSecretRotation(Request):
    keep_old_secret_active_for_24_hours: bool = False


class WebhookTest(Request):
    event_type: EventType


class WebhookEndpoint(Resource):
    """An endpoint. Times in Unix seconds."""

    id: str
    object: Literal["webhook_endpoint"] = "webhook_endpoint"
    name: str
    url: str
    event_types: list[str]
    created_at: int
    updated_at: int | None = None
    signing_secret_hint: str | None = None


class WebhookEndpointWithSecret(WebhookEndpoint):
    """The answer to creating an endpoint and to rotating its secret, and never again."""

    signing_secret: Annotated[str, Field(repr=False)]


class WebhookEndpointDeleted(Resource):
    id: str
    object: Literal["webhook_endpoint.deleted"] = "webhook_endpoint.deleted"
    deleted: Literal[True] = True


class WebhookTestResult(Resource):
    """`success` means that the request completed."""

    object: Literal["webhook_endpoint.test"] = "webhook_endpoint.test"
    webhook_endpoint_id: str
    event_type: str
    status_code: int
    success: Literal[True] = True


class WebhookEventTypes(Resource):
    object: Literal["list"] = "list"
    data: list[str]


class _WebhookEvent(Resource):
    id: str
    object: Literal["event"] = "event"
    created_at: int


class SessionData(Resource):
    id: str
    environment_type: str
    environment_id: str | None = None


class Connect(Resource):
    remote_url: str


class CreatedSessionData(SessionData):
    """`connect` is where the executor of a self-hosted environment connects."""

    connect: Annotated[Connect | None, Field(exclude_if=absent)] = None


class ActionData(Resource):
    type: ActionKind


class ActionRequiredData(Resource):
    id: str
    required_action: ActionData


class EnvironmentData(Resource):
    id: str


class SessionCreatedWebhook(_WebhookEvent):
    type: Literal["agent.session.created"] = "agent.session.created"
    data: CreatedSessionData


class SessionWebhook(_WebhookEvent):
    type: Literal["agent.session.in_progress", "agent.session.idle", "agent.session.failed"]
    data: SessionData


class ActionRequiredWebhook(_WebhookEvent):
    type: Literal["agent.session.action_required"] = "agent.session.action_required"
    data: ActionRequiredData


class EnvironmentWebhook(_WebhookEvent):
    type: Literal[
        "agent.environment.ready",
        "agent.environment.failed",
        "agent.environment.suspended",
        "agent.environment.expired",
    ]
    data: EnvironmentData


WebhookEvent = Annotated[
    SessionCreatedWebhook | SessionWebhook | ActionRequiredWebhook | EnvironmentWebhook,
    Field(discriminator="type"),
]
WebhookEventAdapter: TypeAdapter[Any] = TypeAdapter(WebhookEvent)
