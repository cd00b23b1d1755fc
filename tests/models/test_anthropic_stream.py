"""Reading the streams of Anthropic's Messages API."""

from __future__ import annotations

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
from tests.providers.answers import Call, Raw, Refusal, Text, Thought, answer
from tests.providers.anthropic import AnthropicProvider

from perdure.models.anthropic import AnthropicModel
from perdure.models.jsontext import encode
from perdure.models.messages import CallDone, MessageDone, ModelEvent, ReasoningDone, TextDelta
from perdure.wire.usage import TokenUsage


@pytest.fixture
async def provider() -> AsyncIterator[AnthropicProvider]:
    async with AnthropicProvider() as provider:
        yield provider
        assert provider.violations == []
        assert provider.unplayed == 0


@pytest.fixture
async def model(provider: AnthropicProvider) -> AsyncIterator[AnthropicModel]:
    model = AnthropicModel(provider.settings())
    yield model
    await model.close()


def start(**usage: Any) -> dict[str, Any]:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "content": [], "usage": usage}
    return {"type": "message_start", "message": message}


def block(index: int, kind: str, *deltas: dict[str, Any], **fields: Any) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": {"type": kind, **fields}},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def text(index: int, said: str) -> list[dict[str, Any]]:
    return block(index, "text", {"type": "text_delta", "text": said}, text="")


def end(reason: str | None = "end_turn", details: Any = None, **usage: Any) -> list[dict[str, Any]]:
    delta = {"stop_reason": reason, "stop_sequence": None, "stop_details": details}
    return [{"type": "message_delta", "delta": delta, "usage": usage}, {"type": "message_stop"}]


def outputs(events: list[ModelEvent]) -> list[ModelEvent]:
    return [event for event in events if isinstance(event, MessageDone | ReasoningDone | CallDone)]


async def test_thoughts_between_texts_and_calls_keep_their_places(
    provider: AnthropicProvider, model: AnthropicModel
) -> None:
    provider.queue(
        answer(
            Thought(("One.",)),
            Thought(()),
            Text("I look."),
            Call("f", {"a": 1}),
            Thought(("Two.",)),
            Call("g"),
            Text("Wait."),
        )
    )
    events = await collect(model, ask(tools=(LOOKUP,)))
    done = sorted(outputs(events), key=lambda event: event.output)  # type: ignore[union-attr]
    kinds = [ReasoningDone, ReasoningDone, MessageDone, CallDone, ReasoningDone, CallDone, MessageDone]
    assert [type(event) for event in done] == kinds
    one, redacted, said, first, two, second, last = (event.native for event in done)  # type: ignore[union-attr]
    assert one is not None
    assert one.data["type"] == "thinking"
    assert one.data["thinking"] == "One."
    assert redacted is not None
    assert redacted.data.keys() == {"type", "data"}
    assert said is not None
    assert len(said.data["thinking"]) == 2
    assert first is not None
    assert first.data.keys() == {"id"}
    assert two is not None
    assert second is not None
    assert len(second.data["thinking"]) == 1
    assert last is None


async def test_thinking_whose_text_is_left_out_is_kept_for_its_model(
    provider: AnthropicProvider, model: AnthropicModel
) -> None:
    pieces = [{"type": "signature_delta", "signature": "ab"}, {"type": "signature_delta", "signature": "cd"}]
    frames = [start(), *block(0, "thinking", *pieces, thinking="", signature=""), *text(1, "Hi."), *end()]
    provider.queue(Raw(tuple(frames)))
    thought = reasoning_of(await collect(model))
    assert thought.summary == ()
    assert thought.native is not None
    assert thought.native.data == {"type": "thinking", "thinking": "", "signature": "abcd"}


async def test_thinking_without_a_signature_is_shown_and_never_sent_back(
    provider: AnthropicProvider, model: AnthropicModel
) -> None:
    provider.queue(answer(Thought(("Hm.",), encrypted=False), Text("Hi.")))
    events = await collect(model)
    assert thought_of(events) == "Hm."
    assert reasoning_of(events).native is None
    (done,) = [event for event in events if isinstance(event, MessageDone)]
    assert done.native is None


async def test_what_nobody_knows_is_passed_over(provider: AnthropicProvider, model: AnthropicModel) -> None:
    query = {"type": "input_json_delta", "partial_json": '{"query": "x"}'}
    frames = [
        start(input_tokens=1, output_tokens=1),
        {"type": "ping"},
        {"type": "something_new", "index": 0},
        *block(0, "server_tool_use", query, id="srvtoolu_1", name="web_search", input={}),
        *block(1, "web_search_tool_result", tool_use_id="srvtoolu_1", content=[{"type": "x", "text": "no"}]),
        *block(
            2, "text", {"type": "citations_delta", "citation": {}}, {"type": "text_delta", "text": "Yes."}
        ),
        *block(3, "text", text=""),
        {"type": "content_block_delta", "index": 9, "delta": {"type": "newest_delta"}},
        "no object",
        *end(output_tokens=5),
    ]
    provider.queue(Raw(tuple(frames)))
    events = await collect(model)
    assert text_of(events) == "Yes."
    assert [type(event) for event in events[:2]] == [TextDelta, MessageDone]
    assert len(events) == 3


async def test_a_block_that_cannot_be_replayed_parts_thinking_from_what_follows(
    provider: AnthropicProvider, model: AnthropicModel
) -> None:
    signed = {"type": "signature_delta", "signature": "s"}
    frames = [
        start(),
        *block(0, "thinking", signed, thinking="", signature=""),
        *block(1, "server_tool_use", id="srvtoolu_1", name="web_search", input={}),
        *text(2, "Hi."),
        *end(),
    ]
    provider.queue(Raw(tuple(frames)))
    (done,) = [event for event in await collect(model) if isinstance(event, MessageDone)]
    assert done.native is None


@pytest.mark.parametrize(
    ("given", "deltas", "expected"),
    [
        ({}, (), "{}"),
        ({}, ("",), "{}"),
        ({}, ("", '{"a', '": 1}'), '{"a": 1}'),
        ({"a": 1}, (), '{"a":1}'),
        ({}, ('{"a": ',), '{"a": '),
    ],
)
async def test_the_input_of_a_call(
    provider: AnthropicProvider, model: AnthropicModel, given: Any, deltas: tuple[str, ...], expected: str
) -> None:
    pieces = [{"type": "input_json_delta", "partial_json": piece} for piece in deltas]
    frames = [start(), *block(0, "tool_use", *pieces, id="toolu_1", name="f", input=given), *end("tool_use")]
    provider.queue(Raw(tuple(frames)))
    assert calls_of(await collect(model)) == [("f", expected)]


@pytest.mark.parametrize(
    ("reason", "details", "code", "retryable", "words"),
    [
        ("max_tokens", None, "max_output_tokens", False, "limit of output"),
        ("model_context_window_exceeded", None, "context_length_exceeded", False, "broke off"),
        ("refusal", None, "invalid_request", False, "content filter"),
        (
            "refusal",
            {"type": "refusal", "category": "bio", "explanation": "Dangerous methods."},
            "invalid_request",
            False,
            "bio: Dangerous methods.",
        ),
        (
            "refusal",
            {"type": "refusal", "category": "cyber", "explanation": "An exploit."},
            "cyber_policy",
            False,
            "An exploit.",
        ),
        ("pause_turn", None, "server_error", True, "paused"),
        ("something_new", None, "server_error", True, "something_new"),
        (None, None, "connection_failed", True, "closed the connection"),
    ],
)
async def test_an_answer_that_is_no_answer(
    provider: AnthropicProvider,
    model: AnthropicModel,
    reason: str | None,
    details: Any,
    code: str,
    retryable: bool,
    words: str,
) -> None:
    call = block(1, "tool_use", id="toolu_1", name="f", input={})
    provider.queue(Raw((start(), *text(0, "Half"), *call, *end(reason, details))))
    seen, error = await fail(model)
    assert not [event for event in seen if isinstance(event, CallDone)]
    assert (error.code, error.retryable) == (code, retryable)
    assert words in error.message


@pytest.mark.parametrize("reason", ["end_turn", "stop_sequence", "tool_use"])
async def test_every_proper_end_gives_the_calls(
    provider: AnthropicProvider, model: AnthropicModel, reason: str
) -> None:
    call = block(0, "tool_use", id="toolu_1", name="f", input={})
    provider.queue(Raw((start(), *call, *end(reason))))
    assert calls_of(await collect(model)) == [("f", "{}")]


async def test_a_call_that_was_announced_and_never_came(
    provider: AnthropicProvider, model: AnthropicModel
) -> None:
    provider.queue(Raw((start(), *text(0, "I look."), *end("tool_use"))))
    _, error = await fail(model)
    assert (error.code, error.retryable) == ("server_error", True)


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        (
            {"input_tokens": 10, "cache_creation_input_tokens": 200, "cache_read_input_tokens": 3000},
            {"output_tokens": 7},
            TokenUsage.of(3210, 7, cached_tokens=3000),
        ),
        (
            {"input_tokens": 0, "output_tokens": 0},
            {"input_tokens": 12, "output_tokens": 7, "output_tokens_details": {"thinking_tokens": 4}},
            TokenUsage.of(12, 7, reasoning_tokens=4),
        ),
        (
            {"input_tokens": 12, "cache_read_input_tokens": None, "output_tokens": 1},
            {"input_tokens": None, "output_tokens": 9},
            TokenUsage.of(12, 9),
        ),
        ({"input_tokens": 12, "output_tokens": 1}, {}, None),
        ({}, {}, None),
    ],
)
async def test_usage(
    provider: AnthropicProvider,
    model: AnthropicModel,
    first: dict[str, Any],
    last: dict[str, Any],
    expected: TokenUsage | None,
) -> None:
    provider.queue(Raw((start(**first), *text(0, "Hi."), *end(**last))))
    finished = finish_of(await collect(model))
    assert finished.usage == expected
    assert finished.response_id == "msg_1"


async def test_an_answer_that_was_not_streamed(provider: AnthropicProvider, model: AnthropicModel) -> None:
    content = [
        {"type": "thinking", "thinking": "Hm.", "signature": "s"},
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": 1}},
    ]
    usage = {"input_tokens": 10, "output_tokens": 5}
    message = {
        "type": "message",
        "id": "msg_2",
        "content": content,
        "stop_reason": "tool_use",
        "usage": usage,
    }
    provider.queue(Raw((encode(message),), content_type="application/json"))
    events = await collect(model)
    assert reasoning_of(events).summary == ("Hm.",)
    assert text_of(events) == "I look."
    assert calls_of(events) == [("f", '{"a":1}')]
    assert finish_of(events).usage == TokenUsage.of(10, 5)


@pytest.mark.parametrize(
    ("kind", "code", "retryable"),
    [
        ("overloaded_error", "server_overloaded", True),
        ("rate_limit_error", "rate_limit_exceeded", True),
        ("api_error", "server_error", True),
        ("timeout_error", "request_timeout", True),
        ("authentication_error", "authentication_error", False),
        ("invalid_request_error", "invalid_request", False),
    ],
)
async def test_an_error_in_mid_stream(
    provider: AnthropicProvider, model: AnthropicModel, kind: str, code: str, retryable: bool
) -> None:
    error = {"type": "error", "error": {"type": kind, "message": "No."}, "request_id": "req_1"}
    provider.queue(Raw((start(), *text(0, "Half"), error)))
    _, failure = await fail(model)
    assert (failure.code, failure.retryable) == (code, retryable)


@pytest.mark.parametrize(
    ("refusal", "code", "retryable"),
    [
        (Refusal(529, message="Overloaded"), "server_overloaded", True),
        (Refusal(429, message="Too fast.", headers={"retry-after": "7"}), "rate_limit_exceeded", True),
        (Refusal(429, "enforced_spend_limit_reached"), "organization_spend_limit_exceeded", False),
        (Refusal(429, "ramp_limit_exceeded", headers={"retry-after": "7"}), "rate_limit_exceeded", True),
        (Refusal(402), "billing_not_active", False),
        (Refusal(401), "authentication_error", False),
        (Refusal(403), "authentication_error", False),
        (Refusal(400, "organization_on_hold"), "authentication_error", False),
        (Refusal(404, message="model: claude-9"), "resource_not_found", False),
        (Refusal(413, message="Request exceeds the maximum size"), "invalid_request", False),
        (
            Refusal(400, message="prompt is too long: 208310 tokens > 200000 maximum"),
            "context_length_exceeded",
            False,
        ),
        (
            Refusal(
                400, message="input length and `max_tokens` exceed context limit: 190000 + 32000 > 200000"
            ),
            "context_length_exceeded",
            False,
        ),
        (
            Refusal(400, message="image exceeds 10 MB maximum: 12582912 bytes > 10485760 bytes"),
            "invalid_request",
            False,
        ),
        (
            Refusal(400, message="Your credit balance is too low to access the Anthropic API."),
            "credit_balance_exhausted",
            False,
        ),
        (
            Refusal(400, message="You have reached your specified API usage limits."),
            "organization_spend_limit_exceeded",
            False,
        ),
        (Refusal(504), "request_timeout", True),
        (Refusal(500), "server_error", True),
    ],
)
async def test_refusals(
    provider: AnthropicProvider, model: AnthropicModel, refusal: Refusal, code: str, retryable: bool
) -> None:
    provider.queue(refusal)
    _, error = await fail(model)
    assert (error.code, error.retryable, error.status) == (code, retryable, refusal.status)
    assert error.retry_after == (7 if refusal.headers else None)
