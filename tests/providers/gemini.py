"""A fake provider of the Gemini protocol."""

from __future__ import annotations

import itertools
import json
import secrets
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any

import orjson
from aiohttp import web
from tests.providers.answers import Answer, Call, Output, Refusal, Text, Thought, Usage, pieces
from tests.providers.command import run
from tests.providers.gemini_rules import ModelRules, Signed, check_request
from tests.providers.server import FakeProvider

Part = dict[str, Any]
Chunk = dict[str, Any]
FINISH = {"completed": "STOP", "max_output_tokens": "MAX_TOKENS", "content_filter": "SAFETY"}
STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


class GeminiProvider(FakeProvider):
    """Serves `POST /v1/models/{model}:streamGenerateContent`; see `FakeProvider`.

    The address says the model and that the answer is streamed; both are added to the recorded bodies.

    Args:
        rules: what its models take.
    """

    PROTOCOL = "gemini"
    PATH = "/models/{model}:streamGenerateContent"

    def __init__(self, *args: Any, rules: ModelRules | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        self.rules = rules or ModelRules()
        self.signed = Signed()

    def forget(self) -> None:
        """Know none of the signatures given out so far, as after a change of keys."""
        self.signed = Signed()

    def is_authorized(self, headers: Mapping[str, str], key: str) -> bool:
        return headers.get("x-goog-api-key") == key

    def addressed(self, request: web.Request, body: dict[str, Any]) -> dict[str, Any]:
        return {"model": request.match_info["model"], "stream": request.query.get("alt") == "sse", **body}

    def examine(self, body: dict[str, Any]) -> None:
        assert body["stream"], "without alt=sse the answer is one list"
        sent = {name: value for name, value in body.items() if name not in ("model", "stream")}
        check_request(sent, body["model"], self.rules, self.signed)

    def error_body(self, refusal: Refusal) -> Any:
        status = STATUSES.get(refusal.status, HTTPStatus(refusal.status).name)
        error: dict[str, Any] = {"code": refusal.status, "message": refusal.message, "status": status}
        if refusal.code is not None:
            info = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "domain": "googleapis.com"}
            error["details"] = [{**info, "reason": refusal.code.upper()}]
        return {"error": error}

    def _refuse(self, refusal: Refusal) -> web.Response:
        match refusal:
            case Refusal(status=401, code="invalid_api_key"):
                message = "API key not valid. Please pass a valid API key."
                refusal = Refusal(400, "API_KEY_INVALID", message)
            case Refusal(status=413, body=None):
                message = f"Request payload size exceeds the limit: {self._max_body} bytes."
                refusal = Refusal(400, None, message)
            case Refusal(code="context_length_exceeded", body=None):
                message = (
                    "The input token count (9999999) exceeds the maximum number of tokens allowed"
                    f" ({self._context_window})."
                )
                refusal = Refusal(400, None, message)
        return super()._refuse(refusal)

    def last_user_text(self, body: dict[str, Any]) -> str:
        for content in reversed(body["contents"]):
            for part in reversed(content["parts"]) if content["role"] == "user" else ():
                if "text" in part:
                    return str(part["text"])
        return ""

    def frames(self, body: dict[str, Any], planned: Answer) -> Iterator[bytes]:
        shared = {"modelVersion": body["model"], "responseId": secrets.token_urlsafe(16)}
        for chunk in self._chunks(body, planned):
            yield b"data: %b\n\n" % orjson.dumps({**chunk, **shared})

    # ---- the chunks of an answer ---------------------------------------------------------------

    def _chunks(self, body: dict[str, Any], planned: Answer) -> Iterator[Chunk]:
        usage = planned.usage
        early = {} if usage is None else {"usageMetadata": {"promptTokenCount": usage.input}}
        reason = FINISH[planned.end]
        for parts in self._parts(body, planned):
            if any("malformed" in part for part in parts):
                reason = "MALFORMED_FUNCTION_CALL"
                break
            content = {"content": {"parts": parts, "role": "model"}, "index": 0}
            yield {"candidates": [content], **early}
        if planned.failure is not None:
            failure = planned.failure
            number = failure.code if isinstance(failure.code, int) else 500
            reason = failure.code if isinstance(failure.code, str) else None
            yield self.error_body(Refusal(number, reason, failure.message, failure.type))
            return
        last: Part = {"text": ""}
        says = bool(planned.outputs) and isinstance(planned.outputs[-1], Text)
        if self.rules.signed_calls and says and "signed_text" not in planned.quirks:
            last["thoughtSignature"] = self._sign(body, last)
        final = {} if usage is None else {"usageMetadata": _usage(usage)}
        candidate = {"content": {"parts": [last], "role": "model"}, "finishReason": reason, "index": 0}
        if "late_usage" in planned.quirks:
            yield {"candidates": [candidate]}
            yield final
        else:
            yield {"candidates": [candidate], **final}

    def _parts(self, body: dict[str, Any], planned: Answer) -> Iterator[list[Part]]:
        """The parts of each chunk: calls of one step come together."""
        shows = body.get("generationConfig", {}).get("thinkingConfig", {}).get("includeThoughts", False)
        for are_calls, outputs in itertools.groupby(planned.outputs, lambda one: isinstance(one, Call)):
            if are_calls:
                calls = self._calls(body, outputs)
                yield from [[call] for call in calls] if "split_calls" in planned.quirks else [calls]
                continue
            for output in outputs:
                yield from ([part] for part in self._said(body, output, planned, shows=shows))

    def _said(self, body: dict[str, Any], output: Output, planned: Answer, *, shows: bool) -> Iterator[Part]:
        match output:
            case Thought():
                for text in (*output.summary, output.raw) if shows else ():
                    yield from ({"text": piece, "thought": True} for piece in pieces(text, output.chunks))
            case Text():
                parts: list[Part] = [{"text": delta} for delta in output.deltas]
                if "signed_text" in planned.quirks and parts:
                    parts[-1]["thoughtSignature"] = self._sign(body, parts[-1])
                yield from parts

    def _calls(self, body: dict[str, Any], outputs: Iterator[Output]) -> list[Part]:
        parts: list[Part] = []
        for output in outputs:
            assert isinstance(output, Call)
            call: dict[str, Any] = {"name": output.name, "args": {}}
            if output.text:
                try:
                    call["args"] = json.loads(output.text)
                except ValueError:
                    call["args"] = None
            if not isinstance(call["args"], dict):
                return [{"malformed": True}]
            if self.rules.call_ids and output.id != "":
                call["id"] = secrets.token_hex(4) if output.id is None else output.id
            parts.append({"functionCall": call})
        if self.rules.signed_calls:
            # Of the calls of a step only the first is signed.
            parts[0]["thoughtSignature"] = self._sign(body, parts[0])
        return parts

    def _sign(self, body: dict[str, Any], part: Part) -> str:
        signature = secrets.token_urlsafe(48)
        self.signed.keep(signature, body["model"], part)
        return signature


def _usage(usage: Usage) -> dict[str, Any]:
    counts = {
        "promptTokenCount": usage.input,
        "candidatesTokenCount": usage.output - usage.reasoning,
        "totalTokenCount": usage.input + usage.output,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": usage.input}],
    }
    if usage.cached:
        counts["cachedContentTokenCount"] = usage.cached
    if usage.reasoning:
        counts["thoughtsTokenCount"] = usage.reasoning
    return counts


if __name__ == "__main__":
    run(GeminiProvider)
