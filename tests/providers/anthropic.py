"""A fake provider of Anthropic's Messages API."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from typing import Any

import orjson
from tests.providers.answers import Answer, Call, Output, Refusal, Text, Thought, Usage, pieces
from tests.providers.anthropic_rules import (
    THINKING,
    Minted,
    blocks_of,
    check_request,
    fingerprint,
    shape,
)
from tests.providers.command import run
from tests.providers.server import FakeProvider

Block = dict[str, Any]
Event = dict[str, Any]
ENDS = {"max_output_tokens": "max_tokens", "content_filter": "refusal"}
TYPES = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


class AnthropicProvider(FakeProvider):
    """Serves `POST /v1/messages`; see `FakeProvider`.

    Args:
        bound: thinking is only taken back behind exactly what stood before it, as newer models want it.
    """

    PROTOCOL = "anthropic"
    PATH = "/messages"

    def __init__(self, *args: Any, bound: bool = False, **options: Any) -> None:
        super().__init__(*args, **options)
        self._bound = bound
        self._minted: dict[str, Minted] = {}

    def forget(self) -> None:
        """Know none of the thinking produced so far, as after a change of keys."""
        self._minted.clear()

    def is_authorized(self, headers: Mapping[str, str], key: str) -> bool:
        # Newer SDKs send their key as a bearer; both are taken.
        given = headers.get("x-api-key") == key or headers.get("Authorization") == f"Bearer {key}"
        return given and bool(headers.get("anthropic-version"))

    def error_body(self, refusal: Refusal) -> Any:
        kind = TYPES.get(refusal.status, "api_error" if refusal.status >= 500 else "invalid_request_error")
        where = f"{refusal.param}: " if refusal.param else ""
        error: dict[str, Any] = {"type": refusal.type or kind, "message": f"{where}{refusal.message}"}
        if refusal.code is not None:
            error["details"] = {"error_code": refusal.code}
        return {"type": "error", "error": error, "request_id": f"req_{secrets.token_hex(12)}"}

    def examine(self, body: dict[str, Any]) -> None:
        check_request(body, self._minted, bound=self._bound)

    def last_user_text(self, body: dict[str, Any]) -> str:
        for message in reversed(body["messages"]):
            texts = [block["text"] for block in blocks_of(message) if block["type"] == "text"]
            if message["role"] == "user" and texts:
                return str(texts[-1])
        return ""

    def frames(self, body: dict[str, Any], planned: Answer) -> Iterator[bytes]:
        for event in self._events(body, planned):
            yield b"event: %b\ndata: %b\n\n" % (event["type"].encode(), orjson.dumps(event))

    # ---- the events of an answer ---------------------------------------------------------------

    def _events(self, body: dict[str, Any], planned: Answer) -> Iterator[Event]:
        usage = _usage(planned.usage)
        message = {
            "id": f"msg_{secrets.token_hex(12)}",
            "type": "message",
            "role": "assistant",
            "model": body["model"],
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {**usage, "output_tokens": 1} if usage else {"input_tokens": 0, "output_tokens": 0},
        }
        yield {"type": "message_start", "message": message}
        yield {"type": "ping"}
        blocks = [_block(output, body) for output in planned.outputs]
        self._mint(blocks, body)
        for index, (output, block) in enumerate(zip(planned.outputs, blocks, strict=True)):
            for event in _block_events(output, block):
                yield {**event, "index": index}
        if planned.failure is not None:
            failure = planned.failure
            kind = failure.code or failure.type or "api_error"
            yield {"type": "error", "error": {"type": kind, "message": failure.message}}
            return
        calls = any(isinstance(output, Call) for output in planned.outputs)
        reason = ENDS.get(planned.end) or ("tool_use" if calls else "end_turn")
        delta: Event = {"stop_reason": reason, "stop_sequence": None}
        if reason == "refusal":
            delta["stop_details"] = {"type": "refusal", "category": "bio", "explanation": None}
        yield {"type": "message_delta", "delta": delta, "usage": usage or {"output_tokens": 0}}
        yield {"type": "message_stop"}

    def _mint(self, blocks: list[Block], body: dict[str, Any]) -> None:
        before: list[Any] = [body.get("system"), body.get("tools")]
        for message in body.get("messages", []):
            before += [[message["role"], block] for block in blocks_of(message)]
        # The API refuses empty texts, so none of them counts as following or as standing before.
        said = [block for block in blocks if block.get("text") != ""]
        for index, block in enumerate(said):
            if block["type"] in THINKING:
                follower = said[index + 1] if index + 1 < len(said) else None
                seal = block.get("signature") or block.get("data") or ""
                self._minted[seal] = Minted(block, body["model"], shape(follower), fingerprint(before))
            before.append(["assistant", block])


def _block(output: Output, body: Mapping[str, Any]) -> Block:
    match output:
        case Text():
            return {"type": "text", "text": output.text}
        case Thought():
            text = output.raw or "".join(output.summary)
            if not text:
                return {"type": "redacted_thinking", "data": secrets.token_urlsafe(48)}
            if body.get("thinking", {}).get("display") == "omitted":
                text = ""
            signature = secrets.token_urlsafe(48) if output.encrypted else ""
            return {"type": "thinking", "thinking": text, "signature": signature}
        case Call():
            call_id = f"toolu_{secrets.token_hex(12)}" if output.id is None else output.id
            try:
                value = orjson.loads(output.text or "{}")
            except orjson.JSONDecodeError:
                value = None
            return {"type": "tool_use", "id": call_id, "name": output.name, "input": value}


def _block_events(output: Output, block: Block) -> Iterator[Event]:
    empty = {"text": "", "thinking": "", "signature": "", "input": {}}
    started = {key: empty.get(key, value) for key, value in block.items()}
    yield {"type": "content_block_start", "content_block": started}
    deltas: list[Event] = []
    match output:
        case Text():
            deltas = [{"type": "text_delta", "text": piece} for piece in output.deltas]
        case Thought() if block["type"] == "thinking":
            parts = pieces(block["thinking"], output.chunks)
            deltas = [{"type": "thinking_delta", "thinking": piece} for piece in parts]
            if block["signature"]:
                deltas.append({"type": "signature_delta", "signature": block["signature"]})
        case Call():
            parts = ("", *pieces(output.text, output.chunks))
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in parts]
    for delta in deltas:
        yield {"type": "content_block_delta", "delta": delta}
    yield {"type": "content_block_stop"}


def _usage(usage: Usage | None) -> Event | None:
    if usage is None:
        return None
    return {
        "input_tokens": usage.input - usage.cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.output,
        "output_tokens_details": {"thinking_tokens": usage.reasoning},
    }


if __name__ == "__main__":
    run(AnthropicProvider)
