"""What a session waits for, as typed objects, and what may be answered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, assert_never

if TYPE_CHECKING:
    from openai.types.beta.agent_session import RequiredAction


@dataclass(frozen=True)
class FunctionCall:
    """A call of a function. `arguments` are JSON as the model gave them, unchecked."""

    turn_id: str
    call_id: str
    name: str
    arguments: Any

    @property
    def summary(self) -> str:
        """What is waited for, in words for people; without arguments."""
        return f"a result of {self.name} ({self.call_id})"


@dataclass(frozen=True)
class McpApproval:
    """A call of an MCP tool that wants an approval: answer with `Approve`, `Deny` or `Dismiss`."""

    turn_id: str
    request_id: str
    server_label: str
    name: str | None
    arguments: Any
    message: str

    @property
    def summary(self) -> str:
        """What is waited for, in words for people; without arguments."""
        return f"an approval of {self.server_label}.{self.name or 'a tool'} ({self.request_id})"


@dataclass(frozen=True)
class SignInField:
    """A control of a sign-in form. `type` is a hint, such as `password`."""

    id: str
    label: str
    required: bool
    type: str


@dataclass(frozen=True)
class SignInOption:
    """A way to sign in, and the fields it needs."""

    id: str
    label: str
    field_ids: tuple[str, ...]


@dataclass(frozen=True)
class BrowserSignIn:
    """A browser wants to sign in: answer with `SignIn` or `Dismiss`. The service lets it expire soon."""

    turn_id: str
    request_id: str
    fields: tuple[SignInField, ...]
    options: tuple[SignInOption, ...]
    origin: str | None
    reason: str | None

    @property
    def summary(self) -> str:
        """What is waited for, in words for people; without arguments."""
        return f"a sign-in ({self.request_id})"


@dataclass(frozen=True)
class BrowserOrigin:
    """A browser wants to go to an origin: answer with `Approve`, `Deny` or `Dismiss`."""

    turn_id: str
    request_id: str
    origin: str
    reason: str | None

    @property
    def summary(self) -> str:
        """What is waited for, in words for people; without arguments."""
        return f"access to {self.origin} ({self.request_id})"


@dataclass(frozen=True)
class EnvironmentConnection:
    """An environment has to connect. Nothing is to be submitted: an executor answers this by connecting."""

    environment_id: str

    @property
    def summary(self) -> str:
        """What is waited for, in words for people; without arguments."""
        return f"the environment {self.environment_id} to connect"


@dataclass(frozen=True)
class OtherAction:
    """An action of a kind that this version does not know; `data` is all of it."""

    type: str
    data: Mapping[str, Any] = field(default_factory=dict)

    @property
    def summary(self) -> str:
        """What is waited for, in words for people; without arguments."""
        return f"an action of kind {self.type}"


Action: TypeAlias = (
    FunctionCall | McpApproval | BrowserSignIn | BrowserOrigin | EnvironmentConnection | OtherAction
)
"""What a session can wait for. `summary` says it in words; the ids are those of the protocol."""


@dataclass(frozen=True)
class Approve:
    """Yes, to this one request."""


@dataclass(frozen=True)
class Deny:
    """No; the agent is told."""


@dataclass(frozen=True)
class Dismiss:
    """Close the request without an answer; the turn goes on."""


@dataclass(frozen=True)
class SignIn:
    """The values of a sign-in form by field id, and the option when the form has options."""

    fields: Mapping[str, str] = field(repr=False)
    option: str | None = None


Decision: TypeAlias = Approve | Deny | Dismiss | SignIn


_KINDS = {
    "function_call",
    "mcp_approval_request",
    "computer_use_approval_request",
    "environment_connection",
}


def typed_action(required: RequiredAction) -> Action:
    """A required action of the protocol as one of ours."""
    # A newer server may have kinds that the client's types do not know.
    return _known(required) or OtherAction(str(required.type), required.to_dict())


def _known(action: RequiredAction) -> Action | None:
    kind: str = action.type
    if kind not in _KINDS:
        return None
    match action.type:
        case "function_call":
            return FunctionCall(action.turn_id, action.call_id, action.name, action.arguments)
        case "mcp_approval_request":
            asked = action.request
            return McpApproval(
                action.turn_id,
                action.request_id,
                asked.server_label,
                asked.name,
                asked.arguments,
                asked.message,
            )
        case "computer_use_approval_request":
            request = action.request
            if request.type == "browser_origin_access":
                return BrowserOrigin(action.turn_id, action.request_id, request.origin, request.reason)
            return BrowserSignIn(
                action.turn_id,
                action.request_id,
                tuple(SignInField(each.id, each.label, each.required, each.type) for each in request.fields),
                tuple(SignInOption(each.id, each.label, tuple(each.field_ids)) for each in request.options),
                request.credential_origin,
                request.reason,
            )
        case "environment_connection":
            return EnvironmentConnection(action.environment_id)


def answer_event(action: Action, decision: Decision) -> dict[str, Any]:
    """The input event that answers an action. Raises TypeError for a decision the action does not take."""
    match action, decision:
        case McpApproval(), Approve() | Deny() | Dismiss():
            return {
                "type": "agent.session.input.mcp_approval_request_result",
                "request_id": action.request_id,
                "response": {"type": "mcp_tool_call", "decision": _word(decision)},
            }
        case BrowserOrigin(), Approve() | Deny() | Dismiss():
            response: dict[str, Any] = {"type": "browser_origin_access", "decision": _word(decision)}
        case BrowserSignIn(), Dismiss():
            response = {"type": "browser_authentication", "action": "cancel"}
        case BrowserSignIn(), SignIn(fields=fields, option=option):
            response = {
                "type": "browser_authentication",
                "action": "submit",
                "fields": [{"field_id": name, "value": value} for name, value in fields.items()],
            }
            if option is not None:
                response["selected_option"] = option
        case _:
            raise TypeError(f"{type(decision).__name__} does not answer {action.summary}.")
    return {
        "type": "agent.session.input.computer_use_approval_request_result",
        "request_id": action.request_id,
        "response": response,
    }


def _word(decision: Approve | Deny | Dismiss) -> Literal["approve", "deny", "cancel"]:
    match decision:
        case Approve():
            return "approve"
        case Deny():
            return "deny"
        case Dismiss():
            return "cancel"
        case _:
            assert_never(decision)
