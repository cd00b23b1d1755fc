"""Sessions: creating, updating, and how they are shown."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from perdure.wire.actions import RequiredAction
from perdure.wire.agents import SessionAgent, SessionAgentParams, SessionAgentUpdate
from perdure.wire.combinations import combination_fault
from perdure.wire.environment_resources import Environment
from perdure.wire.environments import (
    EnvironmentParams,
    HostedEnvironmentParams,
    ShortId,
    VaultIds,
)
from perdure.wire.inputs import MAX_MESSAGE_TEXT, InputTextPart, UserMessageInput, check_text
from perdure.wire.metadata import Metadata
from perdure.wire.shapes import Omissible, Request, Resource, absent, refusal
from perdure.wire.turns import CacheLifetime, PromptCacheOptions
from perdure.wire.usage import TokenUsage

SessionStatus = Literal["idle", "in_progress", "requires_action", "failed"]
Review = Literal["none", "auto_review"]


class PromptCacheParams(Request):
    ttl: CacheLifetime = "30m"


class StreamOptions(Request):
    include_obfuscation: bool = True


def _input_kind(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else None


_Messages = Annotated[list[UserMessageInput], Field(fail_fast=True), Tag("array")]
InitialInput = Annotated[
    Annotated[str | None, Tag("string")] | _Messages,
    Discriminator(
        _input_kind,
        custom_error_type="refused",
        custom_error_message="{text}",
        custom_error_context={
            "text": "Invalid type for '{param}': expected a string or an array of user messages, but got "
            "{got} instead.",
            "code": "invalid_request_error",
        },
    ),
]


class SessionCreate(Request):
    """Body of creating a session."""

    agent_id: Omissible[ShortId] = None
    agent: Omissible[SessionAgentParams] = None
    environment: EnvironmentParams
    input: InitialInput = None
    metadata: Metadata | None = None
    vault_ids: VaultIds | None = None
    review: Review = "none"
    prompt_cache_options: PromptCacheParams | None = None
    stream: bool = False
    stream_options: Omissible[StreamOptions] = None

    @property
    def messages(self) -> list[UserMessageInput]:
        """The initial input as user messages; empty without input."""
        if isinstance(self.input, str):
            part = InputTextPart(type="input_text", text=self.input)
            return [UserMessageInput(role="user", content=[part])]
        return self.input or []

    @model_validator(mode="after")
    def _check(self) -> SessionCreate:
        if self.agent_id is None and (self.agent is None or self.agent.model is None):
            raise refusal("agent.model is required when agent_id is omitted", "agent", "model")
        if self.stream_options is not None and not self.stream:
            raise refusal(
                "Invalid '{param}': stream options are only permitted with 'stream' set to true.",
                "stream_options",
            )
        self._check_input()
        self._check_environment()
        return self

    def _check_input(self) -> None:
        if self.input == "":
            raise refusal("Invalid '{param}': empty string. Give a text, or leave the input out.", "input")
        if isinstance(self.input, str):
            check_text(self.input, MAX_MESSAGE_TEXT, "input")
        if self.input:
            return
        if self.environment.type == "none":
            raise refusal("conversation-only sessions currently require initial input", "input")
        if self.stream and self.environment.type == "openai_hosted":
            raise refusal("streaming session creation requires initial input", "input")

    def _check_environment(self) -> None:
        environment = self.environment
        existing = isinstance(environment, HostedEnvironmentParams) and environment.environment_id
        if existing and self.review == "auto_review":
            raise refusal(
                "Invalid '{param}': auto_review cannot be used with an existing environment_id.", "review"
            )
        if self.agent is not None and self.agent.tools:
            fault = combination_fault(self.agent.tools, environment)
            if fault is not None:
                index, member, message = fault
                raise refusal(message, "agent", "tools", index, *member.split("."))


class SessionUpdate(Request):
    """Body of updating a session: what is not in `model_fields_set` stays."""

    agent: Omissible[SessionAgentUpdate] = None
    metadata: Metadata | None = None
    prompt_cache_options: PromptCacheParams | None = None
    review: Omissible[Review] = None


class Session(Resource):
    """A session. Times in Unix seconds; `review` and `prompt_cache_options` are left out when None."""

    id: str
    object: Literal["agent.session"] = "agent.session"
    created_at: int
    last_active_at: int
    status: SessionStatus
    error: str | None = None
    metadata: dict[str, str]
    vault_ids: list[str]
    agent: SessionAgent
    environment: Environment
    required_actions: list[RequiredAction]
    usage: TokenUsage | None = None
    prompt_cache_options: Annotated[PromptCacheOptions | None, Field(exclude_if=absent)] = None
    review: Annotated[Review | None, Field(exclude_if=absent)] = None


class SessionDeleted(Resource):
    id: str
    object: Literal["agent.session.deleted"] = "agent.session.deleted"
    deleted: Literal[True] = True
