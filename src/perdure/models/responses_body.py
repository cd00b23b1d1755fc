"""The body of a Responses request."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any, assert_never

from perdure.models.images import ImageLessons, ImageRules, Inline, Linked, Unshown
from perdure.models.jsontext import Encoded
from perdure.models.messages import (
    AssistantMessage,
    Entry,
    FunctionCall,
    FunctionResult,
    FunctionSpec,
    ImagePart,
    ModelRequest,
    Native,
    Part,
    Reasoning,
    ServerNote,
    TextPart,
    UserMessage,
)
from perdure.models.offered import Offered, OfferRules
from perdure.models.outgoing import (
    arguments_text,
    call_id,
    note_content,
    result_content,
    with_schema,
    written,
)
from perdure.models.schema_sent import sendable
from perdure.models.strictness import can_be_asked_for, fits_strict_mode

MAX_CACHE_KEY = 64
OPENAI_IMAGES = ImageRules(("image/png", "image/jpeg", "image/gif", "image/webp"))


def build_body(
    request: ModelRequest,
    provider: str,
    *,
    refused: Container[str] = frozenset(),
    written_input: Encoded | None = None,
    offered: Offered | None = None,
    max_output_tokens: int | None = None,
    enforce_schema: bool = True,
    parallel_calls: bool = True,
) -> dict[str, Any]:
    """Everything one model call needs: nothing is stored at the provider, nothing is referred to.

    Args:
        provider: the configured provider's name; native data of others is left out.
        refused: ids of items that the provider does not take back.
        written_input: the entries, if they are written already.
        offered: the functions as the provider takes them.
        max_output_tokens: limit of the answer, if one is configured.
        enforce_schema: False asks for `output_schema` in words instead.
        parallel_calls: False asks for one call at a time.
    """
    offered = offered or Offered(request.tools, OfferRules())
    instructions = request.instructions
    schema = request.output_schema
    if schema is not None and not (enforce_schema and can_be_asked_for(schema)):
        instructions, schema = with_schema(instructions, schema), None
    body: dict[str, Any] = {
        "model": request.model,
        "input": written_input
        or InputWriter(provider, request.model, refused, offered=offered).write(request.entries),
        "stream": True,
        "store": False,
        "include": ["reasoning.encrypted_content"],
    }
    if instructions:
        body["instructions"] = instructions
    if request.tools:
        body["tools"] = [_tool(spec) for spec in offered.tools]
        if not parallel_calls:
            body["parallel_tool_calls"] = False
    text: dict[str, Any] = {}
    if schema is not None:
        schema = sendable(schema, str)
        text["format"] = {
            "type": "json_schema",
            "name": "output",
            "schema": schema,
            "strict": fits_strict_mode(schema),
        }
    if request.verbosity != "medium":
        text["verbosity"] = request.verbosity
    reasoning = {"effort": request.effort, "summary": request.summary}
    optional = {
        "text": text,
        "reasoning": {key: value for key, value in reasoning.items() if value is not None},
        "service_tier": None if request.service_tier == "auto" else request.service_tier,
        "prompt_cache_key": call_id(request.cache_key, MAX_CACHE_KEY) if request.cache_key else None,
        "prompt_cache_options": {"ttl": request.cache_ttl} if request.cache_ttl else None,
        "max_output_tokens": max_output_tokens,
    }
    body.update((key, value) for key, value in optional.items() if value)
    return body


def _tool(spec: FunctionSpec) -> dict[str, Any]:
    tool = {
        "type": "function",
        "name": spec.name,
        "description": spec.description,
        "parameters": spec.parameters,
        "strict": False,
    }
    if not spec.description:
        del tool["description"]
    return tool


def image_url(images: ImageLessons, url: str) -> str | Unshown:
    """The address or data URL of an image that OpenAI's protocols read, or why there is none."""
    match images.look_at(url, OPENAI_IMAGES):
        case Inline(kind, data):
            return f"data:{kind};base64,{data}"
        case Linked(address):
            return address
        case Unshown() as unshown:
            return unshown


class InputWriter:
    """Writes entries as input items.

    An output is sent under the provider's id only together with the reasoning before it, and reasoning
    only together with the output after it: the provider refuses either without the other.
    """

    def __init__(
        self,
        provider: str,
        model: str,
        refused: Container[str] = frozenset(),
        sent: Iterable[str] = (),
        *,
        offered: Offered | None = None,
        images: ImageLessons | None = None,
    ) -> None:
        self._provider = provider
        self._model = model
        self._refused = refused
        self._offered = offered or Offered((), OfferRules())
        self._images = images or ImageLessons()
        self.sent = set(sent)

    def write(self, entries: Sequence[Entry]) -> list[dict[str, Any]]:
        said = [entry for entry in entries if not _is_empty(entry)]
        items: list[dict[str, Any]] = []
        run: list[Reasoning] = []
        for entry in said:
            if isinstance(entry, Reasoning):
                run.append(entry)
                continue
            if run:
                items.extend(self._reasoning(run, entry))
                run = []
            items.extend(self._items(entry))
        return items

    def _items(self, entry: Entry) -> Iterable[dict[str, Any]]:
        compacted = entry.compacted if isinstance(entry, ServerNote) else None
        if compacted is not None and self._is_own(compacted.native):
            self.sent.add(compacted.native.data["id"])
            return list(compacted.native.data["items"])
        return (self._item(entry),)

    def _reasoning(self, run: list[Reasoning], follower: Entry) -> Iterator[dict[str, Any]]:
        own = [entry for entry in run if self._is_own(entry.native)]
        ids = [entry.native.data["id"] for entry in own]
        native = follower.native if isinstance(follower, AssistantMessage | FunctionCall) else None
        if native is None or not self._is_own(native) or not native.data.get("first"):
            return
        if native.data.get("reasoning") != ids:
            return
        self.sent.update(ids)
        for entry in own:
            data = entry.native.data
            # A provider that shows its raw reasoning gave no summary: what we keep as one is that text.
            summary = () if data.get("content") else entry.summary
            yield {
                "type": "reasoning",
                **{key: data[key] for key in ("id", "encrypted_content", "content") if data.get(key)},
                "summary": [{"type": "summary_text", "text": text} for text in summary],
            }

    def _item(self, entry: Entry) -> dict[str, Any]:
        match entry:
            case UserMessage():
                return self._message(written(entry.content))
            case ServerNote():
                return self._message(note_content(entry))
            case AssistantMessage():
                return self._assistant_message(entry)
            case FunctionCall():
                return {
                    "type": "function_call",
                    **self._own_id(entry.native),
                    "call_id": call_id(entry.call_id),
                    "name": self._offered.sent(entry.name),
                    "arguments": self._offered.arguments(entry.name, arguments_text(entry.arguments)),
                }
            case FunctionResult():
                content = result_content(entry)
                output = content if isinstance(content, str) else self._parts(content)
                return {
                    "type": "function_call_output",
                    "call_id": call_id(entry.call_id),
                    "output": output,
                }
            case Reasoning():
                raise AssertionError("reasoning is written with its follower")
        assert_never(entry)

    def _assistant_message(self, entry: AssistantMessage) -> dict[str, Any]:
        item: dict[str, Any] = {"type": "message", "role": "assistant"}
        if own_id := self._own_id(entry.native):
            part = {"type": "output_text", "text": entry.text, "annotations": []}
            item |= {**own_id, "status": "completed", "content": [part]}
        else:
            # Without an id only the short form is documented, whose text is one string.
            item["content"] = entry.text
        native = entry.native
        if entry.phase and native and native.provider == self._provider and native.data.get("phase"):
            item["phase"] = entry.phase
        return item

    def _message(self, content: Sequence[Part]) -> dict[str, Any]:
        return {"type": "message", "role": "user", "content": self._parts(content)}

    def _parts(self, content: Sequence[Part]) -> list[dict[str, Any]]:
        return [self._part(part) for part in content]

    def _part(self, part: Part) -> dict[str, Any]:
        match part:
            case TextPart():
                return {"type": "input_text", "text": part.text}
            case ImagePart():
                url = image_url(self._images, part.image_url)
                if isinstance(url, Unshown):
                    return {"type": "input_text", "text": url.text}
                return {"type": "input_image", "image_url": url, "detail": "auto"}
        assert_never(part)

    def _own_id(self, native: Native | None) -> dict[str, Any]:
        if native is None or not self._is_own(native):
            return {}
        item_id = native.data["id"]
        if item_id in self.sent or not self.sent.issuperset(native.data.get("reasoning", ())):
            return {}
        self.sent.add(item_id)
        return {"id": item_id}

    def _is_own(self, native: Native) -> bool:
        item_id = native.data.get("id")
        same = native.provider == self._provider and native.model == self._model
        return same and bool(item_id) and item_id not in self._refused


def _is_empty(entry: Entry) -> bool:
    match entry:
        case UserMessage() | ServerNote():
            return not written(entry.content)
        case AssistantMessage():
            return not entry.text
    return False
