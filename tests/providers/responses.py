"""A fake provider of the OpenAI Responses protocol, with its compactions."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections import deque
from collections.abc import Iterator
from typing import Any

import orjson
from aiohttp import web
from tests.providers.answers import Answer, Call, Failure, Output, Refusal, Text, Thought, Usage, pieces
from tests.providers.command import run
from tests.providers.responses_rules import Minted, check_compact_request, check_request
from tests.providers.server import FakeProvider, Recorded

Item = dict[str, Any]
Event = dict[str, Any]
CREATED_AT = 1_760_000_000


class ResponsesProvider(FakeProvider):
    """Serves `POST /v1/responses` and `POST /v1/responses/compact`; see `FakeProvider`.

    `compactions` are the requests of the second kind. They are answered with `refusals` first, then with
    the messages of the user and a compaction of `compacted_bytes`, once `held` is set if there is one.
    """

    PROTOCOL = "responses"
    PATH = "/responses"

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._minted: dict[str, Minted] = {}
        self.compactions: list[Recorded] = []
        self.compacted_bytes = 400
        self.refusals: deque[Refusal] = deque()
        self.held: asyncio.Event | None = None

    def forget(self) -> None:
        """Know none of the items produced so far, as after a change of keys."""
        self._minted.clear()

    def route(self, app: web.Application) -> None:
        app.router.add_post(f"/v1{self.PATH}/compact", self._compact)

    async def _compact(self, request: web.Request) -> web.Response:
        recorded = await self.receive(
            request, self.compactions, lambda body: check_compact_request(body, self._minted)
        )
        if isinstance(recorded, web.Response):
            return recorded
        if self.held is not None:
            await self.held.wait()
        if self.refusals:
            return self._refuse(self.refusals.popleft())
        compacted, minted = _compacted(recorded.body, self.compacted_bytes)
        self._minted[minted.id] = minted
        recorded.served.set()
        return web.json_response(compacted)

    def examine(self, body: dict[str, Any]) -> None:
        check_request(body, self._minted)

    def frames(self, body: dict[str, Any], planned: Answer) -> Iterator[bytes]:
        numbers = itertools.count()
        for event in self._events(body, planned):
            event["sequence_number"] = next(numbers)
            yield b"event: %b\ndata: %b\n\n" % (event["type"].encode(), orjson.dumps(event))

    def last_user_text(self, body: dict[str, Any]) -> str:
        for item in reversed(body["input"]):
            if item.get("role") == "user":
                content = item["content"]
                return (
                    content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
                )
        return ""

    # ---- the events of an answer ---------------------------------------------------------------

    def _events(self, body: dict[str, Any], planned: Answer) -> Iterator[Event]:
        response = _response(body)
        yield {"type": "response.created", "response": response}
        yield {"type": "response.in_progress", "response": response}
        encrypts = "reasoning.encrypted_content" in body.get("include", [])
        items = [_item(output, encrypts) for output in planned.outputs]
        self._mint(items, body["model"])
        for index, (output, item) in enumerate(zip(planned.outputs, items, strict=True)):
            cut = planned.end != "completed" and index == len(items) - 1
            if cut:
                item["status"] = "incomplete"
            for event in _output_events(output, item):
                if not _is_left_out(event, planned, cut):
                    yield {**event, "output_index": index}
        if planned.failure is not None:
            yield _failure_event(response, planned.failure)
            return
        final = {**response, "usage": _usage(planned.usage)}
        if "empty_final_output" not in planned.quirks:
            final["output"] = items
        if planned.end == "completed":
            yield {"type": "response.completed", "response": {**final, "status": "completed"}}
        else:
            details = {"incomplete_details": {"reason": planned.end}, "status": "incomplete"}
            yield {"type": "response.incomplete", "response": final | details}

    def _mint(self, items: list[Item], model: str) -> None:
        needs: str | None = None
        for item, following in itertools.zip_longest(items, items[1:]):
            minted = Minted(
                id=item["id"],
                kind=item["type"],
                model=model,
                encrypted=item.get("encrypted_content"),
                needs=needs,
                follower=following["id"] if following else None,
            )
            self._minted[minted.id] = minted
            if item["type"] == "reasoning":
                needs = minted.id


def _compacted(body: dict[str, Any], size: int) -> tuple[Item, Minted]:
    said = [item for item in body["input"] if item["type"] == "message" and item["role"] == "user"]
    window = tuple({"type": "message", "role": "user", "content": item["content"]} for item in said)
    item = {
        "id": _mint_id("cmp"),
        "type": "compaction",
        "encrypted_content": f"gAAAA{secrets.token_urlsafe(size)[: size - 5]}",
        "created_by": None,
    }
    minted = Minted(item["id"], "compaction", body["model"], item["encrypted_content"], window=window)
    messages = [{**kept, "id": _mint_id("msg"), "status": "completed", "phase": None} for kept in window]
    usage = Usage(input=max(1, len(orjson.dumps(body)) // 4), output=size)
    answer = {"id": _mint_id("resp"), "object": "response.compaction", "created_at": CREATED_AT}
    return {**answer, "output": [*messages, item], "usage": _usage(usage)}, minted


def _response(body: dict[str, Any]) -> Item:
    return {
        "id": _mint_id("resp"),
        "object": "response",
        "created_at": CREATED_AT,
        "status": "in_progress",
        "model": body["model"],
        "output": [],
        "error": None,
        "incomplete_details": None,
        "instructions": body.get("instructions"),
        "metadata": {},
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": body.get("tools", []),
        "temperature": 1.0,
        "top_p": 1.0,
        "usage": None,
    }


def _item(output: Output, encrypts: bool) -> Item:
    """The output in its final form."""
    match output:
        case Text():
            part = (
                {"type": "refusal", "refusal": output.text}
                if output.refusal
                else {"type": "output_text", "text": output.text, "annotations": [], "logprobs": []}
            )
            item = {"id": _mint_id("msg"), "type": "message", "role": "assistant", "content": [part]}
            if output.phase is not None:
                item["phase"] = output.phase
            return {**item, "status": "completed"}
        case Thought():
            item = {
                "id": _mint_id("rs"),
                "type": "reasoning",
                "summary": [{"type": "summary_text", "text": text} for text in output.summary],
            }
            if output.raw:
                item["content"] = [{"type": "reasoning_text", "text": output.raw}]
            if output.encrypted and encrypts:
                item["encrypted_content"] = secrets.token_urlsafe(48)
            return item
        case Call():
            call_id = _mint_id("call") if output.id is None else output.id
            item = {"id": _mint_id("fc"), "type": "function_call", "call_id": call_id, "name": output.name}
            return {**item, "arguments": output.text, "status": "completed"}


def _output_events(output: Output, item: Item) -> Iterator[Event]:
    started = {**item, "status": "in_progress"} if "status" in item else dict(item)
    of_item = {"item_id": item["id"]}
    match output:
        case Text():
            yield {"type": "response.output_item.added", "item": {**started, "content": []}}
            kind, key = ("refusal", "refusal") if output.refusal else ("output_text", "text")
            of_part = {**of_item, "content_index": 0}
            empty = {**item["content"][0], key: ""}
            yield {"type": "response.content_part.added", **of_part, "part": empty}
            for delta in output.deltas:
                yield {"type": f"response.{kind}.delta", **of_part, "delta": delta, "logprobs": []}
            yield {"type": f"response.{kind}.done", **of_part, key: output.text, "logprobs": []}
            yield {"type": "response.content_part.done", **of_part, "part": item["content"][0]}
        case Thought():
            started.pop("encrypted_content", None)
            yield {"type": "response.output_item.added", "item": {**started, "summary": []}}
            for index, text in enumerate(output.summary):
                yield from _summary_events(of_item | {"summary_index": index}, text, output.chunks)
            for delta in pieces(output.raw, output.chunks):
                yield {"type": "response.reasoning_text.delta", **of_item, "content_index": 0, "delta": delta}
        case Call():
            yield {"type": "response.output_item.added", "item": {**started, "arguments": ""}}
            for delta in pieces(output.text, output.chunks):
                yield {"type": "response.function_call_arguments.delta", **of_item, "delta": delta}
            done = {"arguments": output.text, "name": output.name}
            yield {"type": "response.function_call_arguments.done", **of_item, **done}
    yield {"type": "response.output_item.done", "item": item}


def _summary_events(place: Event, text: str, chunks: int) -> Iterator[Event]:
    part = {"type": "summary_text", "text": text}
    yield {"type": "response.reasoning_summary_part.added", **place, "part": {**part, "text": ""}}
    for delta in pieces(text, chunks):
        yield {"type": "response.reasoning_summary_text.delta", **place, "delta": delta}
    yield {"type": "response.reasoning_summary_text.done", **place, "text": text}
    yield {"type": "response.reasoning_summary_part.done", **place, "part": part}


def _is_left_out(event: Event, planned: Answer, cut: bool) -> bool:
    match event["type"]:
        case "response.output_item.added":
            return "no_added" in planned.quirks
        case "response.output_item.done":
            return "no_done" in planned.quirks
        case "response.function_call_arguments.done":
            return cut
    return False


def _failure_event(response: Item, failure: Failure) -> Event:
    match failure.form:
        case "event":
            return {"type": "error", "code": failure.code, "message": failure.message, "param": None}
        case "nested":
            error = {"type": failure.type, "code": failure.code, "message": failure.message, "param": None}
            return {"type": "error", "error": error}
        case "failed":
            error = {"code": failure.code, "message": failure.message}
            return {"type": "response.failed", "response": {**response, "status": "failed", "error": error}}


def _usage(usage: Usage | None) -> Item | None:
    if usage is None:
        return None
    return {
        "input_tokens": usage.input,
        "input_tokens_details": {"cached_tokens": usage.cached, "cache_write_tokens": 0},
        "output_tokens": usage.output,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.input + usage.output,
    }


def _mint_id(prefix: str) -> str:
    return f"{prefix}_{secrets.token_hex(24)}"


if __name__ == "__main__":
    run(ResponsesProvider)
