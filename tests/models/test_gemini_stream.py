"""Reading Gemini's streams."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.models.wires import (
    LOOKUP,
    ask,
    calls_of,
    collect,
    fail,
    finish_of,
    reasoning_of,
    text_of,
    thought_of,
)
from tests.providers.answers import Call, Failure, Raw, Text, Thought, Usage, answer
from tests.providers.gemini import GeminiProvider

from perdure.models.gemini import GeminiModel
from perdure.models.messages import CallDone, Finished, MessageDone, ReasoningDelta, TextDelta
from perdure.wire.usage import TokenUsage

THINKING = ask(tools=(LOOKUP,), summary="auto")


@pytest.fixture
async def provider() -> AsyncIterator[GeminiProvider]:
    async with GeminiProvider() as provider:
        yield provider
        assert provider.violations == []
        assert provider.unplayed == 0


@pytest.fixture
async def model(provider: GeminiProvider) -> AsyncIterator[GeminiModel]:
    model = GeminiModel(provider.settings())
    yield model
    await model.close()


def chunk(*parts: dict[str, Any], reason: str | None = None, **fields: Any) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"parts": list(parts), "role": "model"}, "index": 0}
    return {"candidates": [candidate | ({"finishReason": reason} if reason else {})], **fields}


def call(name: str, args: Any = None, **fields: Any) -> dict[str, Any]:
    return {"functionCall": {"name": name, **({} if args is None else {"args": args})}, **fields}


async def test_a_text(provider: GeminiProvider, model: GeminiModel) -> None:
    provider.queue(answer(Text("Hello, world!", chunks=("Hel", "lo, ", "world!"))))
    events = await collect(model)
    assert events[:3] == [TextDelta(0, "Hel"), TextDelta(0, "lo, "), TextDelta(0, "world!")]
    assert isinstance(events[3], MessageDone)
    assert (events[3].text, events[3].phase) == ("Hello, world!", None)
    assert finish_of(events).response_id
    assert len(events) == 5


async def test_thoughts_then_text_then_calls(provider: GeminiProvider, model: GeminiModel) -> None:
    orders = [{"order_id": "A-1042"}, {"order_id": "A-1043"}]
    provider.queue(
        answer(Thought(("Look.",)), Text("I look."), *(Call("lookup_order", order) for order in orders))
    )
    events = await collect(model, THINKING)
    assert (thought_of(events), reasoning_of(events).summary) == ("Look.", ("Look.",))
    assert text_of(events) == "I look."
    assert [(name, json.loads(arguments)) for name, arguments in calls_of(events)] == [
        ("lookup_order", order) for order in orders
    ]
    assert [event.output for event in events if isinstance(event, CallDone)] == [2, 3]


@pytest.mark.parametrize("ids", [("", ""), ("call_0", "call_0"), (None, None)])
@pytest.mark.parametrize("quirks", [(), ("split_calls",)])
async def test_no_call_is_lost_by_its_id_or_its_chunk(
    provider: GeminiProvider, model: GeminiModel, ids: tuple[str | None, ...], quirks: Any
) -> None:
    provider.queue(answer(*(Call("f", {"n": n}, id=id) for n, id in enumerate(ids)), quirks=quirks))
    events = await collect(model)
    assert [json.loads(arguments)["n"] for _, arguments in calls_of(events)] == [0, 1]


async def test_a_call_without_arguments_has_none(provider: GeminiProvider, model: GeminiModel) -> None:
    provider.queue(Raw((chunk(call("f"), call("g", {})), chunk(reason="STOP"))))
    assert calls_of(await collect(model)) == [("f", "{}"), ("g", "{}")]


async def test_runs_of_thoughts_are_parts_of_one_summary(
    provider: GeminiProvider, model: GeminiModel
) -> None:
    thoughts = [{"text": text, "thought": True} for text in ("On", "e.", "Two.")]
    provider.queue(
        Raw(
            (
                chunk(thoughts[0], thoughts[1]),
                chunk({"text": "Hel"}),
                chunk(thoughts[2], {"text": "lo."}),
                chunk(reason="STOP"),
            )
        )
    )
    events = await collect(model)
    assert reasoning_of(events).summary == ("One.", "Two.")
    deltas = [(event.part, event.text) for event in events if isinstance(event, ReasoningDelta)]
    assert deltas == [(0, "On"), (0, "e."), (1, "Two.")]
    assert text_of(events) == "Hello."


async def test_text_after_a_call_is_a_message_of_its_own(
    provider: GeminiProvider, model: GeminiModel
) -> None:
    provider.queue(answer(Text("Before."), Call("f"), Text("After.")))
    events = await collect(model)
    done = [(event.output, event.text) for event in events if isinstance(event, MessageDone)]
    assert done == [(0, "Before."), (2, "After.")]


async def test_the_last_counts_are_the_usage(provider: GeminiProvider, model: GeminiModel) -> None:
    counts = [
        {"promptTokenCount": 100, "totalTokenCount": 100},
        {"promptTokenCount": 120, "candidatesTokenCount": 3, "thoughtsTokenCount": 7},
        {"candidatesTokenCount": 5, "cachedContentTokenCount": 64, "toolUsePromptTokenCount": 10},
    ]
    chunks = (chunk({"text": "Hi"}), chunk({"text": "."}), chunk({"text": ""}, reason="STOP"))
    provider.queue(Raw(tuple({**one, "usageMetadata": c} for one, c in zip(chunks, counts, strict=True))))
    usage = finish_of(await collect(model)).usage
    assert usage == TokenUsage.of(130, 12, cached_tokens=64, reasoning_tokens=7)


@pytest.mark.parametrize("quirks", [(), ("late_usage",)])
async def test_usage_of_a_whole_answer(provider: GeminiProvider, model: GeminiModel, quirks: Any) -> None:
    provider.queue(answer(Text("Hi."), usage=Usage(1200, 340, cached=1000, reasoning=300), quirks=quirks))
    usage = finish_of(await collect(model)).usage
    assert usage == TokenUsage.of(1200, 340, cached_tokens=1000, reasoning_tokens=300)


@pytest.mark.parametrize("usage", [None, Usage(0, 0)])
async def test_usage_that_is_not_told_is_unknown(
    provider: GeminiProvider, model: GeminiModel, usage: Usage | None
) -> None:
    provider.queue(answer(Text("Hi."), usage=usage))
    assert finish_of(await collect(model)).usage is None


async def test_all_chunks_as_one_list_are_read(provider: GeminiProvider, model: GeminiModel) -> None:
    chunks = [chunk({"text": "Hel"}), chunk({"text": "lo."}, reason="STOP")]
    provider.queue(Raw((json.dumps(chunks).encode(),), content_type="application/json"))
    assert text_of(await collect(model)) == "Hello."


@pytest.mark.parametrize(
    ("reason", "code", "retryable"),
    [
        ("MAX_TOKENS", "max_output_tokens", False),
        ("SAFETY", "invalid_request", False),
        ("RECITATION", "invalid_request", False),
        ("PROHIBITED_CONTENT", "invalid_request", False),
        ("MALFORMED_FUNCTION_CALL", "server_error", True),
        ("UNEXPECTED_TOOL_CALL", "server_error", True),
        ("OTHER", "server_error", True),
        ("SOMETHING_NEW", "server_error", True),
    ],
)
async def test_an_answer_that_does_not_just_stop_fails_and_dispatches_no_call(
    provider: GeminiProvider, model: GeminiModel, reason: str, code: str, retryable: bool
) -> None:
    provider.queue(Raw((chunk({"text": "Well,"}, call("f")), chunk(reason=reason))))
    seen, error = await fail(model)
    assert seen == [TextDelta(0, "Well,")]
    assert (error.code, error.retryable) == (code, retryable)
    assert reason in error.message or code == "max_output_tokens"


async def test_a_prompt_that_is_blocked(provider: GeminiProvider, model: GeminiModel) -> None:
    provider.queue(Raw(({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}},)))
    _, error = await fail(model)
    assert (error.code, error.retryable) == ("invalid_request", False)
    assert "PROHIBITED_CONTENT" in error.message


@pytest.mark.parametrize(
    "chunks",
    [
        (chunk(reason="STOP"),),
        (chunk({"text": ""}, reason="STOP"),),
        (chunk({"text": "Hm.", "thought": True}), chunk(reason="STOP")),
        (chunk({"thoughtSignature": "c2ln"}), chunk(reason="STOP")),
        ({"candidates": [{"finishReason": "STOP"}]},),
    ],
)
async def test_an_answer_of_nothing_is_asked_for_again(
    provider: GeminiProvider, model: GeminiModel, chunks: Any
) -> None:
    provider.queue(Raw(chunks))
    seen, error = await fail(model)
    assert not [event for event in seen if isinstance(event, Finished)]
    assert (error.code, error.retryable) == ("server_error", True)


async def test_every_cut_is_noticed(provider: GeminiProvider, model: GeminiModel) -> None:
    planned = answer(Thought(("Hm.",)), Text("Hello."), Call("f", {"a": 1}))
    asked = {"model": "m", "generationConfig": {"thinkingConfig": {"includeThoughts": True}}}
    total = len(list(provider.frames(asked, planned)))
    assert total == 4
    for frames in range(total):
        for reset in (False, True):
            provider.queue(answer(*planned.outputs, cut_after=frames, reset=reset))
            seen, error = await fail(model, THINKING)
            assert (error.code, error.retryable) == ("connection_failed", True), frames
            assert not [event for event in seen if isinstance(event, CallDone | Finished)]


@pytest.mark.parametrize(
    ("failure", "code", "retryable"),
    [
        (Failure(503, "The model is overloaded. Please try again later."), "server_overloaded", True),
        (Failure(500, "An internal error has occurred."), "server_error", True),
        (Failure(504, "Deadline expired before operation could complete."), "request_timeout", True),
        (Failure(429, "Resource has been exhausted (e.g. check quota)."), "rate_limit_exceeded", True),
        (Failure(400, "Request contains an invalid argument."), "invalid_request", False),
    ],
)
async def test_an_error_in_mid_stream(
    provider: GeminiProvider, model: GeminiModel, failure: Failure, code: str, retryable: bool
) -> None:
    provider.queue(answer(Text("Half"), failure=failure))
    seen, error = await fail(model)
    assert seen == [TextDelta(0, "Half")]
    assert (error.code, error.retryable) == (code, retryable)


async def test_parts_of_other_kinds_are_passed_over(provider: GeminiProvider, model: GeminiModel) -> None:
    odd = ({"executableCode": {"code": "1"}}, {"inlineData": {"mimeType": "image/png", "data": "AA=="}}, 7)
    provider.queue(Raw(({"candidates": None}, "x", chunk(*odd, {"text": "Hi."}, reason="STOP"))))
    assert text_of(await collect(model)) == "Hi."


async def test_an_answer_without_its_last_bytes_is_complete(
    provider: GeminiProvider, model: GeminiModel
) -> None:
    provider.queue(answer(Text("Hi."), write_size=5, newline=b"\r\n"))
    assert text_of(await collect(model)) == "Hi."
