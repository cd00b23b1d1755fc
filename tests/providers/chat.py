"""A fake provider of the OpenAI Chat Completions protocol."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

import orjson
from tests.providers.answers import Answer, Call, Text, Thought, Usage, pieces
from tests.providers.chat_rules import Reasoned, ReasoningRule, check_request
from tests.providers.command import run
from tests.providers.server import FakeProvider

Delta = dict[str, Any]
CREATED_AT = 1_760_000_000
FINISH = {"max_output_tokens": "length", "content_filter": "content_filter"}


class ChatProvider(FakeProvider):
    """Serves `POST /v1/chat/completions`; see `FakeProvider`.

    Args:
        reasoning_field: how it spells reasoning.
        reasoning_rule: what it wants to see again of it; see `Reasoned`.
        reasoning_details: whether it adds opaque details to reasoning.
        single_calls: whether it refuses messages with more than one call.
    """

    PROTOCOL = "chat"
    PATH = "/chat/completions"

    def __init__(
        self,
        *args: Any,
        reasoning_field: str = "reasoning_content",
        reasoning_rule: ReasoningRule = "optional",
        reasoning_details: bool = False,
        single_calls: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(*args, **options)
        self._reasoned = Reasoned(reasoning_rule, reasoning_field, single_calls)
        self._with_details = reasoning_details

    def examine(self, body: dict[str, Any]) -> None:
        check_request(body, self._reasoned)

    def last_user_text(self, body: dict[str, Any]) -> str:
        for message in reversed(body["messages"]):
            if message["role"] == "user":
                content = message["content"]
                return (
                    content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
                )
        return ""

    def frames(self, body: dict[str, Any], planned: Answer) -> Iterator[bytes]:
        shared = {
            "id": f"chatcmpl-{secrets.token_hex(12)}",
            "object": "chat.completion.chunk",
            "created": CREATED_AT,
            "model": body["model"],
        }
        for chunk in self._chunks(body, planned):
            yield b"data: %b\n\n" % orjson.dumps({**shared, **chunk})
        if "no_done" not in planned.quirks:
            yield b"data: [DONE]\n\n"

    # ---- the chunks of an answer ---------------------------------------------------------------

    def _chunks(self, body: dict[str, Any], planned: Answer) -> Iterator[Delta]:
        deltas = list(self._deltas(planned))
        calls = any(isinstance(output, Call) for output in planned.outputs)
        reason = FINISH.get(planned.end) or ("tool_calls" if calls else "stop")
        if "stop_with_calls" in planned.quirks:
            reason = "stop"
        yield _chunk({"role": "assistant", "content": ""})
        last = deltas.pop() if deltas and "finish_with_delta" in planned.quirks else {}
        for delta in deltas:
            yield _chunk(delta)
        if planned.failure is not None:
            failure = planned.failure
            yield {"error": {"message": failure.message, "type": failure.type, "code": failure.code}}
            return
        usage = _usage(planned.usage) if body.get("stream_options", {}).get("include_usage") else None
        with_finish = {"usage": usage} if usage and "usage_with_finish" in planned.quirks else {}
        yield _chunk(last, reason) | with_finish
        if usage and not with_finish:
            yield {"choices": [], "usage": usage}

    def _deltas(self, planned: Answer) -> Iterator[Delta]:
        index = 0
        # The protocol has one reasoning per message, so several thoughts come back as one text.
        thoughts = [output for output in planned.outputs if isinstance(output, Thought)]
        self._reasoned.texts.add("".join(map(_thought_text, thoughts)))
        for output in planned.outputs:
            match output:
                case Text():
                    field = "refusal" if output.refusal else "content"
                    yield from ({field: delta} for delta in output.deltas)
                case Thought():
                    yield from self._thought(output, planned)
                case Call():
                    for piece in _call_pieces(output, index, planned):
                        yield {"tool_calls": [piece]}
                    index += 1

    def _thought(self, output: Thought, planned: Answer) -> Iterator[Delta]:
        text = _thought_text(output)
        names = [self._reasoned.spelling]
        if "both_spellings" in planned.quirks:
            names = ["reasoning_content", "reasoning"]
        for piece in pieces(text, output.chunks):
            delta: Delta = dict.fromkeys(names, piece)
            if self._with_details:
                delta["reasoning_details"] = [{"type": "reasoning.text", "index": 0, "text": piece}]
            yield delta
        if self._with_details:
            self._reasoned.details.append({"type": "reasoning.text", "index": 0, "text": text})
            seal = {"type": "reasoning.encrypted", "index": 1, "data": secrets.token_urlsafe(24)}
            self._reasoned.details.append(seal)
            yield {"reasoning_details": [seal]}


def _thought_text(thought: Thought) -> str:
    return thought.raw or "".join(thought.summary)


def _call_pieces(call: Call, index: int, planned: Answer) -> Iterator[Delta]:
    quirks = planned.quirks
    place: Delta = {"index": 0 if "same_index" in quirks else index}
    if "no_index" in quirks:
        place = {}
    call_id = f"call_{secrets.token_hex(12)}" if call.id is None else call.id
    head: Delta = {**place, "id": call_id, "type": "function"}
    if "object_arguments" in quirks:
        yield {**head, "function": {"name": call.name, "arguments": orjson.loads(call.text)}}
        return
    if "whole_calls" in quirks:
        yield {**head, "function": {"name": call.name, "arguments": call.text}}
        return
    yield {**head, "function": {"name": call.name, "arguments": ""}}
    for piece in pieces(call.text, call.chunks):
        if "repeated_names" in quirks:
            yield {**head, "function": {"name": call.name, "arguments": piece}}
        else:
            yield {**place, "function": {"arguments": piece}}


def _chunk(delta: Delta, reason: str | None = None) -> Delta:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}


def _usage(usage: Usage | None) -> Delta | None:
    if usage is None:
        return None
    return {
        "prompt_tokens": usage.input,
        "completion_tokens": usage.output,
        "total_tokens": usage.input + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning},
    }


if __name__ == "__main__":
    run(ChatProvider)
