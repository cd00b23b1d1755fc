"""The file format of the scripted model: ordered rules, each with conditions and an answer.

The format is described for its users in `docs/scripted-model.md`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    model_validator,
)

from perdure.models.messages import Effort, Phase
from perdure.models.script_template import Placeholder, Template, parse_tree, tree_placeholders
from perdure.wire.turns import TurnErrorCode

BUILT_IN_NAMES = frozenset({"user", "result", "model", "turn", "step"})
"""Placeholders that every template may use; the groups of `user_matches` come on top."""


def _to_template(value: Any) -> Any:
    return Template.parse(value) if isinstance(value, str) else value


def _to_pattern(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return re.compile(value)
    except re.error as error:
        raise ValueError(f"no regular expression: {error}") from None


def _to_range(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        return {"min": value, "max": value}
    if not isinstance(value, dict | Range):
        raise ValueError(f"give a whole number or a table with min and max, not {value!r}")
    return value


def _to_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _to_tree(value: Any) -> Any:
    return {key: parse_tree(item) for key, item in value.items()} if isinstance(value, dict) else value


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, arbitrary_types_allowed=True)


class Range(_Part):
    """How many; in the file either a number or `{ min = 1, max = 3 }` with one or both bounds."""

    min: int | None = None
    max: int | None = None

    def holds(self, count: int) -> bool:
        return (self.min is None or count >= self.min) and (self.max is None or count <= self.max)


Text = Annotated[Template, BeforeValidator(_to_template)]
Texts = Annotated[list[Text], BeforeValidator(_to_list), Field(min_length=1)]
Names = Annotated[list[str], BeforeValidator(_to_list), Field(min_length=1)]
Pattern = Annotated[re.Pattern[str], BeforeValidator(_to_pattern)]
Count = Annotated[Range, BeforeValidator(_to_range)]
JsonTable = Annotated[dict[str, Any], BeforeValidator(_to_tree)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[int, Field(ge=1)]


class When(_Part):
    """The conditions of a rule. All that are given must hold; none given holds always."""

    user_contains: str | None = None
    user_matches: Pattern | None = None
    instructions_contains: str | None = None
    context_contains: str | None = None
    note_contains: str | None = None
    reasoning_contains: str | None = None
    has_tool: Names | None = None
    has_output_schema: bool | None = None
    newest: Literal["user", "result", "note", "assistant"] | None = None
    after_result_of: str | None = None
    result_contains: str | None = None
    result_failed: bool | None = None
    turn: Count | None = None
    step: Count | None = None
    call_count: Count | None = None
    model: str | None = None
    effort: Effort | None = None
    agent: str | None = None
    times: Positive | None = None
    times_per_conversation: Positive | None = None


class Pause(_Part):
    pause: Seconds


class WaitForFile(_Part):
    """Hold the answer open until `wait_for_file` exists; `timeout` in seconds ends it as a fault."""

    wait_for_file: Text
    timeout: Seconds = 600.0


_FAULTS = ("cut", *get_args(TurnErrorCode))


def _check_fault(value: Any) -> Any:
    if value not in _FAULTS:
        raise ValueError(f"unknown fault {value!r}; allowed: {', '.join(_FAULTS)}")
    return value


FaultKind = Annotated[Literal["cut"] | TurnErrorCode, BeforeValidator(_check_fault)]


class Fault(_Part):
    """End the model call with an error; "cut" is a connection lost on the way."""

    fault: FaultKind
    message: str | None = None
    retryable: bool | None = None
    retry_after: Seconds | None = None
    status: Annotated[int, Field(ge=100, le=599)] | None = None


class _Streamed(_Part):
    delta_size: Positive | None = None
    pause: Seconds = 0.0


def _chunk_tag(value: Any) -> str | None:
    return "literal" if isinstance(value, str) else _action_tag(value)


Chunk = Annotated[
    Annotated[Text, Tag("literal")]
    | Annotated[Pause, Tag("pause")]
    | Annotated[WaitForFile, Tag("wait_for_file")]
    | Annotated[Fault, Tag("fault")],
    Discriminator(
        _chunk_tag,
        custom_error_type="chunk",
        custom_error_message="a chunk is a text or a table with pause, wait_for_file or fault",
    ),
]


class Say(_Streamed):
    """A message, streamed whole, in pieces of `delta_size` characters, or chunk by chunk."""

    text: Text | None = None
    chunks: list[Chunk] | None = None
    phase: Phase | None = None
    refusal: bool = False

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.text is None) == (self.chunks is None):
            raise ValueError("give either text or chunks")
        if self.chunks is not None and self.delta_size is not None:
            raise ValueError("delta_size splits text; chunks are deltas already")
        return self


class SayJson(_Streamed):
    """A message that satisfies the request's output schema; the values of `json` win where they fit."""

    values: JsonTable = Field(alias="json")
    phase: Phase | None = None


class Think(_Streamed):
    """A reasoning output with its summary parts; `native` comes back when it is replayed."""

    reasoning: Texts
    native: dict[str, Any] | None = None


class Call(_Part):
    """A function call; `arguments_text` goes out as it stands, so it may be no JSON at all."""

    call: str
    arguments: JsonTable | None = None
    arguments_text: str | None = None

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.arguments is not None and self.arguments_text is not None:
            raise ValueError("give either arguments or arguments_text")
        return self


# In order: an action is named by the first of these keys that it has; `pause` is also an option of some.
_ACTION_KEYS = {
    "text": "say",
    "chunks": "say",
    "json": "json",
    "reasoning": "reasoning",
    "call": "call",
    "wait_for_file": "wait_for_file",
    "fault": "fault",
    "pause": "pause",
}
_TAGS = frozenset(_ACTION_KEYS.values())


def _action_tag(value: Any) -> str | None:
    if not isinstance(value, dict):
        return None
    return next((tag for key, tag in _ACTION_KEYS.items() if key in value), None)


Action = Annotated[
    Annotated[Say, Tag("say")]
    | Annotated[SayJson, Tag("json")]
    | Annotated[Think, Tag("reasoning")]
    | Annotated[Call, Tag("call")]
    | Annotated[WaitForFile, Tag("wait_for_file")]
    | Annotated[Fault, Tag("fault")]
    | Annotated[Pause, Tag("pause")],
    Discriminator(
        _action_tag,
        custom_error_type="action",
        custom_error_message="an action is a table with one of the keys " + ", ".join(_ACTION_KEYS),
    ),
]


class Usage(_Part):
    """Tokens the answer reports, in place of the estimate."""

    input_tokens: Annotated[int, Field(ge=0)]
    output_tokens: Annotated[int, Field(ge=0)]
    cached_tokens: Annotated[int, Field(ge=0)] = 0
    reasoning_tokens: Annotated[int, Field(ge=0)] = 0


UsageOrUnknown = Annotated[
    Annotated[Usage, Tag("table")] | Annotated[Literal[False], Tag("false")],
    Discriminator(
        lambda value: "false" if value is False else "table" if isinstance(value, dict | Usage) else None,
        custom_error_type="usage",
        custom_error_message="usage is false (the model does not tell) or a table of token counts",
    ),
]


class Reply(_Part):
    """What the model does: the actions of `answer` in order, and the usage it reports."""

    name: str | None = None
    answer: list[Action]
    usage: UsageOrUnknown | None = None

    def captures(self) -> frozenset[str]:
        """Names that the conditions add to the placeholders."""
        return frozenset()

    @model_validator(mode="after")
    def _known_placeholders(self) -> Self:
        captures = self.captures()
        if reserved := sorted(captures & BUILT_IN_NAMES):
            raise ValueError(f"user_matches: the group name {reserved[0]!r} is a built-in placeholder")
        known = captures | BUILT_IN_NAMES
        for placeholder in _placeholders(self.answer):
            if placeholder.name not in known:
                raise ValueError(
                    f"unknown placeholder {{{placeholder.name}}}; known here: {', '.join(sorted(known))}"
                )
            if placeholder.path and placeholder.name != "result":
                raise ValueError(f"placeholder {{{placeholder.name}.…}}: only result has members")
        return self


class Rule(Reply):
    """A reply and the conditions under which it is given."""

    when: When

    def captures(self) -> frozenset[str]:
        return frozenset(self.when.user_matches.groupindex) if self.when.user_matches else frozenset()


class Script(_Part):
    """A whole file. The first rule that holds answers; without `otherwise`, none holding is an error."""

    rule: list[Rule] = []
    otherwise: Reply | None = None


def _placeholders(actions: list[Any]) -> Iterator[Placeholder]:
    for action in actions:
        match action:
            case Template():
                yield from action.placeholders()
            case Say(text=Template() as text):
                yield from text.placeholders()
            case Say(chunks=list() as chunks):
                yield from _placeholders(chunks)
            case Think():
                yield from _placeholders(action.reasoning)
            case WaitForFile():
                yield from action.wait_for_file.placeholders()
            case SayJson(values=dict() as tree) | Call(arguments=dict() as tree):
                yield from tree_placeholders(tree)
            case _:
                continue
