"""The body of a Chat Completions request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, assert_never

from perdure.models.chat_dialect import Dialect, ReasoningRule
from perdure.models.images import ImageLessons, Unshown
from perdure.models.jsontext import Encoded
from perdure.models.messages import (
    AssistantMessage,
    Entry,
    FunctionCall,
    FunctionResult,
    FunctionSpec,
    ImagePart,
    ModelRequest,
    Part,
    Reasoning,
    ServerNote,
    TextPart,
    UserMessage,
)
from perdure.models.offered import Offered, OfferRules
from perdure.models.outgoing import (
    NOTE_END,
    NOTE_START,
    arguments_text,
    note_content,
    one_call_at_a_time,
    result_content,
    results_next_to_calls,
    with_schema,
    written,
)
from perdure.models.responses_body import image_url
from perdure.models.schema_sent import sendable
from perdure.models.strictness import can_be_asked_for, fits_strict_mode

REASONING_FIELD = "reasoning_content"
TIERS = {"ultrafast": "fast"}


def build_body(
    request: ModelRequest,
    provider: str,
    dialect: Dialect,
    *,
    reasoning: ReasoningRule = "as_received",
    written_messages: Encoded | None = None,
    offered: Offered | None = None,
    max_output_tokens: int | None = None,
    enforce_schema: bool = True,
    parallel_calls: bool = True,
) -> dict[str, Any]:
    """Everything one model call needs.

    Only what the user asked for goes beyond the core of the protocol, because many servers refuse
    fields they do not know.

    Args:
        provider: the configured provider's name; native data of others is left out.
        reasoning: what the model wants to see again of earlier reasoning.
        written_messages: all messages, if they are written already.
        offered: the functions as the provider takes them.
        max_output_tokens: limit of the answer, if one is configured.
        enforce_schema: False asks for `output_schema` in words instead.
        parallel_calls: False asks for one call at a time.
    """
    offered = offered or Offered(request.tools, OfferRules())
    schema = request.output_schema
    if schema is not None and not (enforce_schema and can_be_asked_for(schema)):
        schema = None
    messages: Encoded | list[dict[str, Any]] | None = written_messages
    if messages is None:
        writer = MessageWriter(
            provider, request.model, dialect, reasoning, offered=offered, parallel_calls=parallel_calls
        )
        history = writer.write(request.entries)
        messages = [*system_message(request, enforce_schema=enforce_schema), *history]
    body: dict[str, Any] = {
        "model": request.model,
        "messages": messages,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.tools:
        body["tools"] = [_tool(spec) for spec in offered.tools]
        if not parallel_calls:
            body["parallel_tool_calls"] = False
    if schema is not None:
        schema = sendable(schema, str)
        wanted = {"name": "output", "schema": schema, "strict": fits_strict_mode(schema)}
        body["response_format"] = {"type": "json_schema", "json_schema": wanted}
    if request.effort is not None:
        body["reasoning_effort"] = request.effort
    if request.verbosity != "medium":
        body["verbosity"] = request.verbosity
    if request.service_tier not in ("auto", "default"):
        body["service_tier"] = TIERS.get(request.service_tier, request.service_tier)
    if max_output_tokens is not None:
        body[dialect.limit_field] = max_output_tokens
    return body


def system_message(request: ModelRequest, *, enforce_schema: bool) -> list[dict[str, Any]]:
    """The message that carries the instructions, if there are any."""
    instructions, schema = request.instructions, request.output_schema
    if schema is not None and not (enforce_schema and can_be_asked_for(schema)):
        instructions = with_schema(instructions, schema)
    return [{"role": "system", "content": instructions}] if instructions else []


def _tool(spec: FunctionSpec) -> dict[str, Any]:
    function: dict[str, Any] = {"name": spec.name, "parameters": spec.parameters}
    if spec.description:
        function["description"] = spec.description
    return {"type": "function", "function": function}


class MessageWriter:
    """Writes entries as messages: what the assistant did in one step becomes one message.

    `parallel_calls` False makes it one message for each call, its result behind it: chat templates of
    models without parallel calls fail on two in one message.
    """

    def __init__(
        self,
        provider: str,
        model: str,
        dialect: Dialect,
        rule: ReasoningRule,
        spelling: str | None = None,
        *,
        offered: Offered | None = None,
        images: ImageLessons | None = None,
        parallel_calls: bool = True,
    ) -> None:
        self._provider = provider
        self._model = model
        self._dialect = dialect
        self._messages: list[dict[str, Any]] = []
        self._step: list[AssistantMessage | Reasoning | FunctionCall] = []
        self._images: list[Part] = []
        self._offered = offered or Offered((), OfferRules())
        self._lessons = images or ImageLessons()
        self._parallel_calls = parallel_calls
        self._rule = rule
        self.spelling = REASONING_FIELD if rule == "required" else spelling

    def write(self, entries: Sequence[Entry]) -> list[dict[str, Any]]:
        ordered = results_next_to_calls(entries)
        for entry in ordered if self._parallel_calls else one_call_at_a_time(ordered):
            self._write(entry)
        self._close_step()
        self._show_images()
        if self.spelling is not None:
            self._spell_everywhere(self.spelling)
        return self._messages

    def _write(self, entry: Entry) -> None:
        match entry:
            case AssistantMessage() | Reasoning() | FunctionCall():
                self._show_images()
                self._step.append(entry)
            case FunctionResult():
                self._close_step()
                self._messages.append(self._result(entry))
            case UserMessage() | ServerNote():
                self._close_step()
                self._show_images()
                content = written(entry.content) if isinstance(entry, UserMessage) else note_content(entry)
                if content:
                    self._messages.append(_user_message(self._shown(content)))
            case _:
                assert_never(entry)

    def _close_step(self) -> None:
        step, self._step = self._step, []
        texts = [entry.text for entry in step if isinstance(entry, AssistantMessage) and entry.text]
        calls = [self._call(entry) for entry in step if isinstance(entry, FunctionCall)]
        if not texts and not calls:
            return
        message: dict[str, Any] = {"role": "assistant", "content": "\n\n".join(texts) or None}
        if calls:
            message["tool_calls"] = calls
        message |= self._reasoning([entry for entry in step if isinstance(entry, Reasoning)])
        self._messages.append(message)

    def _call(self, entry: FunctionCall) -> dict[str, Any]:
        arguments = self._offered.arguments(entry.name, arguments_text(entry.arguments))
        function = {"name": self._offered.sent(entry.name), "arguments": arguments}
        return {"id": self._dialect.call_id(entry.call_id), "type": "function", "function": function}

    def _reasoning(self, run: list[Reasoning]) -> dict[str, Any]:
        """The fields that carry a step's own reasoning back, spelt as they came."""
        if self._rule == "forbidden":
            return {}
        own = [
            entry.native.data
            for entry in run
            if entry.native.provider == self._provider and entry.native.model == self._model
        ]
        fields: dict[str, Any] = {}
        if spelt := [data for data in own if data.get("field") and data.get("text")]:
            self.spelling = str(spelt[-1]["field"])
            fields[self.spelling] = "\n".join(data["text"] for data in spelt)
        if details := [detail for data in own for detail in data.get("details") or ()]:
            fields["reasoning_details"] = details
        return fields

    def _spell_everywhere(self, field: str) -> None:
        """Servers that want reasoning back want the field in every message of the assistant."""
        for message in self._messages:
            if message["role"] == "assistant":
                message.setdefault(field, "")

    def _result(self, entry: FunctionResult) -> dict[str, Any]:
        content = result_content(entry)
        if not isinstance(content, str):
            content = "\n".join(self._in_words(part) for part in self._shown(content))
        return {"role": "tool", "tool_call_id": self._dialect.call_id(entry.call_id), "content": content}

    def _shown(self, content: Sequence[Part]) -> tuple[Part, ...]:
        """The parts, with words in place of the images that the provider does not read."""
        return tuple(self._image(part.image_url) if isinstance(part, ImagePart) else part for part in content)

    def _image(self, url: str) -> Part:
        found = image_url(self._lessons, url)
        return TextPart(found.text) if isinstance(found, Unshown) else ImagePart(found)

    def _in_words(self, part: Part) -> str:
        if isinstance(part, TextPart):
            return part.text
        # A tool message holds only text: the image follows in a message of its own.
        number = sum(isinstance(shown, ImagePart) for shown in self._images) + 1
        self._images += [TextPart(f"Image {number} of the results above:"), part]
        return f"[image {number}: shown after the results]"

    def _show_images(self) -> None:
        if self._images:
            shown, self._images = self._images, []
            self._messages.append(_user_message([TextPart(NOTE_START), *shown, TextPart(NOTE_END)]))


def _user_message(content: Sequence[Part]) -> dict[str, Any]:
    texts = [part.text for part in content if isinstance(part, TextPart)]
    if len(texts) == len(content):
        # Servers without images often read a string only.
        return {"role": "user", "content": "\n\n".join(texts)}
    return {"role": "user", "content": [_part(part) for part in content]}


def _part(part: Part) -> dict[str, Any]:
    match part:
        case TextPart():
            return {"type": "text", "text": part.text}
        case ImagePart():
            return {"type": "image_url", "image_url": {"url": part.image_url}}
    assert_never(part)
