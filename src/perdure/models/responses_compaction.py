"""A provider's own compaction on the Responses wire: `POST {base_url}/responses/compact`.

The answer is the window that takes the place of the input: the messages of the user as they were, and
behind them one item whose content only the provider can read. All of it is sent back, in order, to the
model that it was made for.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from perdure.config.settings import ProviderSettings
from perdure.models import faults
from perdure.models.jsontext import Encoded, encode
from perdure.models.messages import CompactedHistory, Finished, ModelRequest, Native
from perdure.models.outgoing import call_id
from perdure.models.responses_reader import usage_of
from perdure.wire.usage import TokenUsage

BELOW = "/compact"
MAX_CACHE_KEY = 64
BYTES_PER_TOKEN = 4
IMAGE_TOKENS = 1600


def compact_body(request: ModelRequest, written_input: Encoded | Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The body of a compact request. It takes no functions, formats or limits, and no longer cache."""
    body: dict[str, Any] = {"model": request.model, "input": written_input}
    optional = {
        "instructions": request.instructions,
        "service_tier": None if request.service_tier == "auto" else request.service_tier,
        "prompt_cache_key": call_id(request.cache_key, MAX_CACHE_KEY) if request.cache_key else None,
    }
    body.update((key, value) for key, value in optional.items() if value)
    return body


def read_compaction(provider: ProviderSettings, model: str, answer: Any) -> tuple[CompactedHistory, Finished]:
    """What the answer to a compact request says.

    Raises:
        ModelError: it is an error, or no compaction.
    """
    if not isinstance(answer, dict):
        raise faults.garbled(provider, "sent a compaction that is no object", retryable=False)
    if answer.get("error"):
        raise faults.reported(provider, answer["error"])
    output = answer.get("output")
    items = [_replayed(item) for item in output or () if isinstance(item, dict)]
    made = [item for item in items if item.get("type") == "compaction"]
    if not made or not all(_is_text(item["encrypted_content"]) for item in made):
        raise faults.garbled(provider, "answered without a compaction", retryable=False)
    usage = usage_of(answer.get("usage"))
    response_id = answer.get("id")
    native = Native(provider.name, model, {"id": _id_of(made[-1]), "items": items})
    size = sum(_tokens(item, usage) for item in items)
    compacted = CompactedHistory(native, size, kept=size - sum(_tokens(item, usage) for item in made))
    return compacted, Finished(usage, response_id if isinstance(response_id, str) else None)


def _replayed(item: dict[str, Any]) -> dict[str, Any]:
    """An item of the answer as an item of later requests, without what only answers have."""
    match item:
        case {"type": "compaction"}:
            kept = {"type": "compaction", "encrypted_content": item.get("encrypted_content")}
            return kept | ({"id": item["id"]} if item.get("id") else {})
        case {"type": "message", "role": "user" | "developer" | "system", "content": content}:
            return {"type": "message", "role": item["role"], "content": _without_null(content)}
    return {key: _without_null(value) for key, value in item.items() if value is not None}


def _without_null(value: Any) -> Any:
    match value:
        case dict():
            return {key: _without_null(inner) for key, inner in value.items() if inner is not None}
        case list():
            return [_without_null(inner) for inner in value]
    return value


def _id_of(item: dict[str, Any]) -> str:
    """The id by which a compaction is known as refused; the provider may give none."""
    given = item.get("id")
    if _is_text(given):
        return str(given)
    return f"cmp_{hashlib.sha256(item['encrypted_content'].encode('utf-8', 'replace')).hexdigest()[:32]}"


def _tokens(item: dict[str, Any], usage: TokenUsage | None) -> int:
    content = item.get("content")
    images = [part for part in content if _is_image(part)] if isinstance(content, list) else []
    size = (len(encode(item)) - sum(len(encode(image)) for image in images)) // BYTES_PER_TOKEN + 1
    if item.get("type") == "compaction" and usage is not None and usage.output_tokens:
        # Encrypted text is longer than what it stands for; that has no more tokens than were written.
        size = min(size, usage.output_tokens)
    return size + IMAGE_TOKENS * len(images)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _is_image(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "input_image"
