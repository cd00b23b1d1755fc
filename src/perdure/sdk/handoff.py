"""`handoff`: a call with which an agent gives the conversation to another one, and the record of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, TypedDict, TypeVar, overload

from typing_extensions import Unpack

from perdure.schema import Schema, StandardSchema, schema_of
from perdure.schema.forms import Loading
from perdure.sdk.calls import ToolResult
from perdure.sdk.context import ToolContext
from perdure.sdk.errors import DefinitionRefused
from perdure.sdk.outputs import json_text, succeeded
from perdure.sdk.threads import call
from perdure.sdk.tool import TIMEOUT, Failing, check_name, definition

if TYPE_CHECKING:
    from perdure.sdk.agent import Agent
    from perdure.sdk.run_once import OnUnknown

OutputT_co = TypeVar("OutputT_co", covariant=True)
T = TypeVar("T")
U = TypeVar("U")

_NOTHING = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}


@dataclass(frozen=True)
class HandoffNote:
    """What an application adds to the record: return it from `on_handoff`.

    Attributes:
        intent: what the next agent is to achieve.
        evidence: what the handoff rests on, such as findings or ids of documents; JSON.
        ids: the business's ids and amounts that must not get lost, such as `{"order_id": "A-1042"}`; JSON.
    """

    intent: str | None = None
    evidence: Sequence[Any] = ()
    ids: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Party:
    """One end of a handoff. `turn_id` and `call_id` are those of the call, and None at the other end."""

    agent: str
    session_id: str
    turn_id: str | None = None
    call_id: str | None = None


@dataclass(frozen=True)
class HandoffRecord:
    """Who handed what to whom, and why: an object of the application, and the result of the call.

    `details` is the validated input of the handoff as JSON, defaults applied.
    """

    source: Party
    target: Party
    intent: str
    evidence: Sequence[Any]
    ids: Mapping[str, Any]
    details: Any

    def as_json(self) -> dict[str, Any]:
        """The record as JSON, with `from` and `to` for its ends."""
        return {
            "type": "handoff_record",
            "from": asdict(self.source),
            "to": {"agent": self.target.agent, "session_id": self.target.session_id},
            "intent": self.intent,
            "evidence": list(self.evidence),
            "ids": dict(self.ids),
            "details": self.details,
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> HandoffRecord:
        """A record read back from a result. Raises KeyError or TypeError for anything else."""
        return cls(
            Party(**record["from"]),
            Party(**record["to"]),
            record["intent"],
            record["evidence"],
            record["ids"],
            record["details"],
        )


class HandoffOptions(TypedDict, total=False):
    """The options of `handoff`, all of them optional; `handoff` describes them."""

    name: str
    description: str
    opening: Callable[[Mapping[str, Any]], str]
    timeout: float | None
    idempotent: bool
    on_unknown: OnUnknown
    on_failure: Failing
    environment: Literal["none"] | Mapping[str, Any]


class Handoff(Generic[OutputT_co]):
    """A way to another agent. Made by `handoff`, for the `handoffs` of an agent.

    Attributes:
        agent: whom the conversation goes to.
        name: what the model calls.
        schema: of what the model hands over.
        timeout: seconds that a call may take; None for no limit.
    """

    background = False
    defer_loading = False

    def __init__(
        self,
        agent: Agent[OutputT_co],
        input_type: Any,
        on_handoff: Callable[..., Any] | None,
        options: HandoffOptions,
    ) -> None:
        self.agent = agent
        self.name = options.get("name") or f"transfer_to_{agent.slug()}"
        check_name(self.name, "handoff")
        self.description = options.get("description") or f"Hands the conversation over to {agent.name}."
        self.timeout = options.get("timeout", TIMEOUT)
        # Without a callback there is only the session, and that is found again by its call.
        self.idempotent = options.get("idempotent", on_handoff is None)
        self.on_unknown: OnUnknown = options.get("on_unknown", "fail" if on_handoff else "retry")
        self.on_failure: Failing = options.get("on_failure", "report")
        if self.on_unknown == "retry" and on_handoff is not None and not self.idempotent:
            raise DefinitionRefused(
                f'The handoff {self.name}: on_unknown="retry" may run on_handoff twice, so it needs '
                "idempotent=True."
            )
        self.environment = options.get("environment", "none")
        self._has_input = input_type is not None
        self._on_handoff = on_handoff
        self._opening = options.get("opening")
        self.schema: Schema[Any] = (
            schema_of(_NOTHING, validate=True) if input_type is None else schema_of(input_type)
        )

    def __repr__(self) -> str:
        return f"<Handoff {self.name}>"

    @property
    def definition(self) -> dict[str, Any]:
        """The handoff as a function of an agent's configuration."""
        return definition(self)

    async def invoke(self, value: Any, context: ToolContext[Any]) -> HandoffRecord:
        """Tell the application, write the record, and begin the target's session with it."""
        noted: Any = None
        if (callback := self._on_handoff) is not None:
            given = (context, value) if self._has_input else (context,)
            noted = await call(lambda: callback(*given), callback)
        note = noted if isinstance(noted, HandoffNote) else HandoffNote()
        details = self.schema.dump(value) if self._has_input else None
        return await context._session.hand_over(self, context, details, note)

    def opening(self, record: Mapping[str, Any]) -> str:
        """The first input of the target's session."""
        if self._opening is not None:
            return self._opening(record)
        return (
            f"{record['from']['agent']} hands this conversation over to you. Go on from this record:\n"
            f"{json_text(record)}"
        )

    def result(self, value: HandoffRecord) -> ToolResult:
        """The record, as the result of the call."""
        return succeeded(self.name, value.as_json())


def intent_of(details: Any, note: HandoffNote, handed_to: Handoff[Any]) -> str:
    """The intent of a record: as noted, else as the model gave it, else what the handoff is for."""
    if note.intent is not None:
        return note.intent
    if isinstance(details, Mapping):
        for member in ("intent", "reason"):
            if isinstance(details.get(member), str) and details[member]:
                return str(details[member])
    return handed_to.description


def evidence_of(details: Any, note: HandoffNote) -> Sequence[Any]:
    """The evidence of a record: as noted, else as the model gave it."""
    if note.evidence:
        return list(note.evidence)
    given = details.get("evidence") if isinstance(details, Mapping) else None
    return list(given) if isinstance(given, list) else []


@overload
def handoff(
    agent: Agent[U],
    *,
    on_handoff: Callable[[ToolContext[Any]], object] | None = None,
    **options: Unpack[HandoffOptions],
) -> Handoff[U]: ...
@overload
def handoff(
    agent: Agent[U],
    *,
    input_type: Schema[T] | StandardSchema[Any, T],
    on_handoff: Callable[[ToolContext[Any], T], object] | None = None,
    **options: Unpack[HandoffOptions],
) -> Handoff[U]: ...
@overload
def handoff(
    agent: Agent[U],
    *,
    input_type: type[Loading] | Loading | Mapping[str, Any],
    on_handoff: Callable[[ToolContext[Any], Any], object] | None = None,
    **options: Unpack[HandoffOptions],
) -> Handoff[U]: ...
@overload
def handoff(
    agent: Agent[U],
    *,
    input_type: type[T],
    on_handoff: Callable[[ToolContext[Any], T], object] | None = None,
    **options: Unpack[HandoffOptions],
) -> Handoff[U]: ...
def handoff(
    agent: Agent[Any],
    *,
    input_type: Any = None,
    on_handoff: Callable[..., object] | None = None,
    **options: Unpack[HandoffOptions],
) -> Handoff[Any]:
    """A way to hand the conversation over to another agent, which goes on in a session of its own.

    The model sees a function `transfer_to_<name>`. Its arguments are validated, `on_handoff` is told, and
    the call is answered with the record. The target's session begins with the record, knows no more of the
    conversation, and the run goes on with it when the present turn has ended.

    Args:
        agent: who takes over.
        input_type: the schema of what the model hands over, of any form.
        on_handoff: called with the context and the validated value, defaults applied; with the context
            alone when there is no `input_type`. A `HandoffNote` that it returns goes into the record.
        name: what the model calls.
        description: what the model chooses by.
        opening: makes the first input of the target's session from the record as JSON.
        timeout, idempotent, on_unknown, on_failure: as for `tool`.
        environment: of the target's session; "none" by default.
    """
    return Handoff(agent, input_type, on_handoff, options)
