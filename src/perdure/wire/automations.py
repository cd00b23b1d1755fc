"""Automations: schedules that give input to a session, and their invocations."""

from __future__ import annotations

import re
from typing import Annotated, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, Field, TypeAdapter, model_validator

from perdure.wire.agent_options import (
    Compaction,
    Experimental,
    MultiAgent,
    Reasoning,
    ServiceTier,
    Text,
)
from perdure.wire.agents import SessionAgentParams
from perdure.wire.combinations import combination_fault
from perdure.wire.environment_resources import (
    ContainerSize,
    Desktop,
    Network,
    Packages,
    Plugin,
    TemplateFile,
    TemplateSkill,
)
from perdure.wire.environments import EnvironmentParams, ShortId, VaultIds
from perdure.wire.inputs import UserMessageInput, check_text
from perdure.wire.items import InputContent
from perdure.wire.metadata import Metadata
from perdure.wire.shapes import Omissible, Request, Resource, refusal
from perdure.wire.tool_resources import SessionToolResource

MAX_INSTRUCTIONS = 1 << 20
_CRON_FIELD = re.compile(r"[0-9A-Za-z*,/\-]{1,256}")


def _check_expression(expression: str) -> str:
    fields = expression.split()
    if len(fields) != 5 or not all(_CRON_FIELD.fullmatch(field) for field in fields):
        raise refusal("Invalid '{param}': expected a cron expression of five fields, such as '0 10 * * *'.")
    return expression


def _check_timezone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise refusal("Invalid '{param}': expected an IANA time zone, such as 'Europe/Oslo'.") from None
    return name


Expression = Annotated[str, Field(max_length=256), AfterValidator(_check_expression)]
Timezone = Annotated[str, Field(max_length=64), AfterValidator(_check_timezone)]
AutomationName = Annotated[str, Field(min_length=1, max_length=256)]
RunAt = Annotated[int, Field(ge=0, le=253_402_300_799)]


class NewSessionTargetParams(Request):
    """Creates a session for each invocation."""

    type: Literal["new_session"]
    environment: EnvironmentParams
    input: Annotated[list[UserMessageInput], Field(min_length=1)]
    agent: Omissible[SessionAgentParams] = None
    agent_id: Omissible[ShortId] = None
    metadata: Metadata | None = None
    vault_ids: VaultIds | None = None

    @model_validator(mode="after")
    def _check_agent(self) -> NewSessionTargetParams:
        if self.agent is None and self.agent_id is None:
            raise refusal("Missing required parameter: '{param}'. Give it, or an agent_id.", "agent")
        if self.agent is not None and self.agent_id is not None:
            raise refusal("Invalid '{param}': give either agent or agent_id, not both.", "agent_id")
        if self.agent is not None and self.agent.model is None:
            raise refusal("agent.model is required when agent_id is omitted", "agent", "model")
        if self.agent is not None and self.agent.tools:
            fault = combination_fault(self.agent.tools, self.environment)
            if fault is not None:
                index, member, message = fault
                raise refusal(message, "agent", "tools", index, *member.split("."))
        return self


class ExistingSessionTargetParams(Request):
    """Delivers instructions to a session."""

    type: Literal["existing_session"]
    session_id: Annotated[str, Field(min_length=1, max_length=256)]
    instructions: Annotated[str, Field(min_length=1)]

    @model_validator(mode="after")
    def _check_instructions(self) -> ExistingSessionTargetParams:
        check_text(self.instructions, MAX_INSTRUCTIONS, "instructions")
        return self


TargetParams = Annotated[NewSessionTargetParams | ExistingSessionTargetParams, Field(discriminator="type")]


class PeriodicCreate(Request):
    type: Literal["periodic"]
    name: AutomationName
    target: TargetParams
    expression: Expression
    timezone: Timezone
    metadata: Omissible[Metadata] = None


class OnceCreate(Request):
    """`run_at` in Unix seconds; whether it is in the future is checked when it is stored."""

    type: Literal["once"]
    name: AutomationName
    target: TargetParams
    run_at: RunAt
    metadata: Omissible[Metadata] = None


AutomationCreate = Annotated[PeriodicCreate | OnceCreate, Field(discriminator="type")]
AutomationCreateAdapter: TypeAdapter[AutomationCreate] = TypeAdapter(AutomationCreate)


class AutomationUpdate(Request):
    """What is not in `model_fields_set` stays; the target is replaced whole and keeps its type."""

    name: Omissible[AutomationName] = None
    target: Omissible[TargetParams] = None
    expression: Omissible[Expression] = None
    timezone: Omissible[Timezone] = None
    run_at: Omissible[RunAt] = None
    metadata: Omissible[Metadata] = None


class NoEnvironmentTarget(Resource):
    type: Literal["none"] = "none"


class HostedEnvironmentTarget(Resource):
    """Overrides without secrets; null inherits from the template or the default."""

    type: Literal["openai_hosted"] = "openai_hosted"
    environment_id: str | None = None
    environment_template_id: str | None = None
    container_size: ContainerSize | None = None
    files: list[TemplateFile] | None = None
    network: Network | None = None
    packages: Packages | None = None
    skills: list[TemplateSkill] | None = None
    plugins: list[Plugin] | None = None
    capability_directories: list[str] | None = None
    desktop: Desktop | None = None


class SelfHostedEnvironmentTarget(Resource):
    type: Literal["self_hosted"] = "self_hosted"
    environment_id: str | None = None
    workspace_directory: str
    capability_directories: list[str]


class AutomationAgent(Resource):
    """An inline agent without secrets."""

    model: str
    instructions: str | None = None
    multi_agent: MultiAgent
    reasoning: Reasoning
    service_tier: ServiceTier
    text: Text
    tools: list[SessionToolResource]
    compaction: Compaction
    experimental: Experimental


class AutomationMessage(Resource):
    type: Literal["message"] = "message"
    role: Literal["user"] = "user"
    content: list[InputContent]


class NewSessionTarget(Resource):
    type: Literal["new_session"] = "new_session"
    agent: AutomationAgent | None = None
    agent_id: str | None = None
    environment: Annotated[
        NoEnvironmentTarget | HostedEnvironmentTarget | SelfHostedEnvironmentTarget,
        Field(discriminator="type"),
    ]
    input: list[AutomationMessage]
    metadata: dict[str, str]
    vault_ids: list[str]


class ExistingSessionTarget(Resource):
    type: Literal["existing_session"] = "existing_session"
    session_id: str
    instructions: str


class CreatedByDeveloper(Resource):
    type: Literal["developer"] = "developer"


class CreatedByAgent(Resource):
    type: Literal["agent"] = "agent"
    session_id: str
    tool_call_id: str


class _Automation(Resource):
    id: str
    object: Literal["agent.automation"] = "agent.automation"
    name: str
    pause_reason: Literal["target_session_failed"] | None = None
    metadata: dict[str, str]
    created_at: int
    created_by: Annotated[CreatedByDeveloper | CreatedByAgent, Field(discriminator="type")]
    target: Annotated[NewSessionTarget | ExistingSessionTarget, Field(discriminator="type")]


class PeriodicAutomation(_Automation):
    type: Literal["periodic"] = "periodic"
    status: Literal["active", "paused"]
    expression: str
    timezone: str


class OneTimeAutomation(_Automation):
    type: Literal["once"] = "once"
    status: Literal["active", "paused", "completed"]
    run_at: int


Automation = Annotated[PeriodicAutomation | OneTimeAutomation, Field(discriminator="type")]
AutomationAdapter: TypeAdapter[Automation] = TypeAdapter(Automation)


class AutomationDeleted(Resource):
    id: str
    object: Literal["agent.automation.deleted"] = "agent.automation.deleted"
    deleted: Literal[True] = True


class InvocationError(Resource):
    code: str
    message: str


class ManualSource(Resource):
    type: Literal["manual"] = "manual"


class ScheduledSource(Resource):
    """The automation as it was at the occurrence."""

    type: Literal["automation"] = "automation"
    automation: Automation


class Invocation(Resource):
    """One delivery; `completed` means delivered, not that the work is done."""

    id: str
    object: Literal["agent.automation.invocation"] = "agent.automation.invocation"
    automation_id: str
    created_at: int
    scheduled_at: int | None = None
    session_id: str | None = None
    status: Literal["queued", "completed", "failed", "skipped"]
    error: InvocationError | None = None
    skip_reason: Literal["pending_delivery"] | None = None
    source: Annotated[ManualSource | ScheduledSource, Field(discriminator="type")]
