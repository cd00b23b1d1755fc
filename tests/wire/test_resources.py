from __future__ import annotations

from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from openai.types import beta, webhooks
from openai.types.beta.agent_output_item import AgentOutputItem
from openai.types.beta.agent_session import RequiredAction as SdkRequiredAction
from openai.types.beta.agents import Automation as SdkAutomation
from openai.types.beta.agents.sessions import Turn as SdkTurn
from openai.types.beta.agents.vaults import CredentialAuth as SdkCredentialAuth
from openai.types.beta.session_turn_error import SessionTurnError
from openai.types.webhooks import webhook_create_params
from pydantic import BaseModel, TypeAdapter, ValidationError

from perdure.wire import (
    actions,
    agents,
    automations,
    environment_resources,
    events,
    items,
    sessions,
    shapes,
    tool_resources,
    turns,
    vaults,
)
from perdure.wire import webhooks as our_webhooks

from .samples import SAMPLES

OMITTED_WHEN_NONE = {"obfuscation", "prompt_cache_options", "review", "connect"}
CASES = [
    pytest.param(ours, theirs, value, id=f"{value.get('object', value.get('type', 'value'))}-{index}")
    for index, (ours, theirs, value) in enumerate(SAMPLES)
]


@pytest.mark.parametrize(("ours", "theirs", "value"), CASES)
def test_every_sample_is_ours_and_comes_back_unchanged(ours: Any, theirs: Any, value: Any) -> None:
    adapter = TypeAdapter(ours)
    parsed = adapter.validate_python(value)
    assert adapter.dump_python(parsed, mode="json") == value
    assert adapter.validate_json(adapter.dump_json(parsed)) == parsed
    assert parsed.model_dump(mode="json") == value


@pytest.mark.parametrize(("ours", "theirs", "value"), CASES)
def test_every_sample_is_what_the_official_client_expects(ours: Any, theirs: Any, value: Any) -> None:
    if theirs is None:
        return
    parsed = TypeAdapter(theirs).validate_python(value, strict=True)
    assert_complete(parsed, value)


def assert_complete(parsed: Any, value: Any) -> None:
    """The client knows every member we send, and we send every member the client knows."""
    if isinstance(parsed, BaseModel):
        assert not parsed.model_extra, (type(parsed), parsed.model_extra)
        for name, field in type(parsed).model_fields.items():
            alias = field.alias or name
            if alias in value:
                assert_complete(getattr(parsed, name), value[alias])
            else:
                assert alias in OMITTED_WHEN_NONE, (type(parsed), alias)
    elif isinstance(parsed, list):
        for member, raw in zip(parsed, value, strict=True):
            assert_complete(member, raw)


def kinds(union: Any, name: str = "type") -> set[str]:
    """Every literal that the member `name` can have in the models of a union."""
    if get_origin(union) is Annotated:
        return kinds(get_args(union)[0], name)
    if get_origin(union) in (Union, UnionType):
        return {kind for member in get_args(union) for kind in kinds(member, name)}
    return set(get_args(union.model_fields[name].annotation))


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (events.SessionEvent, beta.AgentSessionEvent),
        (items.Item, beta.AgentSessionItem),
        (items.OutputItem, AgentOutputItem),
        (items.InputContent, beta.InputContent),
        (items.AgentContent, beta.AgentContent),
        (items.WebSearchAction, beta.WebSearchAction),
        (tool_resources.SessionToolResource, beta.AgentTool),
        (tool_resources.SavedToolResource, beta.PersistedAgentTool),
        (environment_resources.Environment, beta.Environment),
        (actions.RequiredAction, SdkRequiredAction),
        (vaults.CredentialAuth, SdkCredentialAuth),
        (automations.Automation, SdkAutomation),
    ],
    ids=[
        "events",
        "items",
        "output items",
        "input content",
        "agent content",
        "search actions",
        "session tools",
        "saved tools",
        "environments",
        "required actions",
        "credentials",
        "automations",
    ],
)
def test_every_kind_of_the_official_client_has_a_model(ours: Any, theirs: Any) -> None:
    assert kinds(ours) == kinds(theirs)


def test_the_types_of_output_items_are_those_of_the_union() -> None:
    assert kinds(items.OutputItem) == items.OUTPUT_ITEM_TYPES


def literals(annotation: Any) -> set[str]:
    """The strings of a Literal, also below Optional and List."""
    if get_origin(annotation) is Literal:
        return set(get_args(annotation))
    return {value for member in get_args(annotation) for value in literals(member)}


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (turns.TurnErrorCode, SessionTurnError.model_fields["code"].annotation),
        (turns.TurnStatus, SdkTurn.model_fields["status"].annotation),
        (sessions.SessionStatus, beta.AgentSession.model_fields["status"].annotation),
        (sessions.Review, beta.AgentSession.model_fields["review"].annotation),
        (
            agents.SessionAgent.model_fields["service_tier"].annotation,
            beta.Agent.model_fields["service_tier"].annotation,
        ),
        (
            agents.Reasoning.model_fields["effort"].annotation,
            beta.AgentReasoning.model_fields["effort"].annotation,
        ),
        (
            agents.Reasoning.model_fields["summary"].annotation,
            beta.AgentReasoning.model_fields["summary"].annotation,
        ),
        (
            environment_resources.EnvironmentStatus,
            beta.AgentSessionEnvironmentState.model_fields["status"].annotation,
        ),
    ],
)
def test_every_enumeration_has_the_official_values(ours: Any, theirs: Any) -> None:
    assert literals(ours) == literals(theirs)


def test_every_webhook_name_of_the_official_client_is_accepted() -> None:
    names = literals(get_type_hints(webhook_create_params.WebhookCreateParams)["event_types"])
    assert set(our_webhooks.AGENT_EVENT_TYPES) <= names
    body = {"name": "a", "url": "https://a.example.org", "event_types": sorted(names)}
    assert set(our_webhooks.WebhookEndpointCreate.model_validate(body).event_types) == names
    assert webhooks.WebhookEndpoint.model_fields.keys() == our_webhooks.WebhookEndpoint.model_fields.keys()


def test_resources_are_frozen_and_know_no_other_members() -> None:
    text = items.OutputText(text="a")
    with pytest.raises(ValidationError):
        text.text = "b"  # type: ignore[misc]
    with pytest.raises(ValidationError):
        items.OutputText(text="a", annotations=[])  # type: ignore[call-arg]


def test_optional_members_of_a_session_and_of_events_are_left_out_without_a_value() -> None:
    (session,) = [value for _, _, value in SAMPLES if value.get("object") == "agent.session"][:1]
    bare = {key: value for key, value in session.items() if key not in ("review", "prompt_cache_options")}
    assert sessions.Session.model_validate(bare).model_dump(mode="json") == bare
    event = events.SessionIdle(event_id="evt_a", session=sessions.Session.model_validate(bare))
    assert event.model_dump(mode="json") == {
        "type": "agent.session.idle",
        "event_id": "evt_a",
        "session": bare,
    }


def models(of: type[BaseModel]) -> list[type[BaseModel]]:
    found = of.__subclasses__()
    return [*found, *(deeper for model in found for deeper in models(model))]


@pytest.mark.parametrize("mode", ["validation", "serialization"])
def test_every_model_can_be_described_as_json_schema(mode: Any) -> None:
    for model in [*models(shapes.Request), *models(shapes.Resource)]:
        if not model.__pydantic_generic_metadata__["parameters"]:
            assert model.model_json_schema(mode=mode)["type"] == "object"


def test_a_member_that_must_not_be_null_says_so_in_the_json_schema() -> None:
    described = sessions.SessionCreate.model_json_schema()["properties"]
    assert described["agent_id"]["type"] == "string"
    assert described["agent"] == {"$ref": "#/$defs/SessionAgentParams"}
    assert {"type": "null"} in described["metadata"]["anyOf"]
