"""What protocols have in common."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.models.wires import (
    LOOKUP,
    OPENAI_WIRES,
    WIRES,
    Wire,
    ask,
    calls_of,
    collect,
    fail,
    finish_of,
    reasoning_of,
    text_of,
    thought_of,
)
from tests.providers.answers import Answer, Call, Failure, Refusal, Text, Thought, Usage, answer
from tests.providers.server import FakeProvider

from perdure.models.messages import CallDone, Finished, MessageDone, Model, ReasoningDone, TextDelta
from perdure.wire.usage import TokenUsage


# Gemini gives arguments as objects, and thoughts only on request: see test_gemini_stream.py.
@pytest.fixture(params=[name for name in WIRES if name != "gemini"])
def wire(request: pytest.FixtureRequest) -> Wire:
    return WIRES[request.param]


@pytest.fixture
async def provider(wire: Wire) -> AsyncIterator[FakeProvider]:
    async with wire.provider() as provider:
        yield provider
        assert provider.violations == []
        assert provider.unplayed == 0


@pytest.fixture
async def model(wire: Wire, provider: FakeProvider) -> AsyncIterator[Model]:
    model = wire.model(provider.settings())
    yield model
    await model.close()


async def test_a_text(provider: FakeProvider, model: Model) -> None:
    provider.queue(answer(Text("Hello, world!", chunks=("Hel", "lo, ", "world!"))))
    events = await collect(model)
    assert events[:3] == [TextDelta(0, "Hel"), TextDelta(0, "lo, "), TextDelta(0, "world!")]
    assert isinstance(events[3], MessageDone)
    assert (events[3].output, events[3].text, events[3].refusal) == (0, "Hello, world!", False)
    assert isinstance(events[4], Finished)
    assert events[4].response_id
    assert len(events) == 5


async def test_a_text_in_one_delta(provider: FakeProvider, model: Model) -> None:
    provider.queue(answer(Text("Hello.", chunks=100)))
    assert text_of(await collect(model)) == "Hello."


@pytest.mark.parametrize(
    "text", ["a\0b\x1b[31m", "😀" * 50, "\u2028\n\r\n\t", "data: x\n\ndata: y", "x" * 100_000]
)
async def test_any_text_arrives_unchanged(provider: FakeProvider, model: Model, text: str) -> None:
    provider.queue(answer(Text(text, chunks=7), write_size=1000))
    assert text_of(await collect(model)) == text


async def test_usage_is_read_with_its_details(provider: FakeProvider, model: Model) -> None:
    provider.queue(answer(Text("Hi."), usage=Usage(1200, 340, cached=1000, reasoning=300)))
    usage = finish_of(await collect(model)).usage
    assert usage == TokenUsage.of(1200, 340, cached_tokens=1000, reasoning_tokens=300)


@pytest.mark.parametrize("usage", [None, Usage(0, 0)])
async def test_usage_that_is_not_told_is_unknown(
    provider: FakeProvider, model: Model, usage: Usage | None
) -> None:
    provider.queue(answer(Text("Hi."), usage=usage))
    assert finish_of(await collect(model)).usage is None


@pytest.mark.parametrize("wire", OPENAI_WIRES.values(), ids=OPENAI_WIRES)
async def test_a_refusal_is_a_message_of_its_own_kind(provider: FakeProvider, model: Model) -> None:
    provider.queue(answer(Text("I cannot help with that.", refusal=True)))
    events = await collect(model)
    assert text_of(events) == "I cannot help with that."
    (done,) = [event for event in events if isinstance(event, MessageDone)]
    assert done.refusal


async def test_reasoning_comes_before_the_text(provider: FakeProvider, model: Model) -> None:
    provider.queue(answer(Thought(("First think of this.",)), Text("Done.")))
    events = await collect(model)
    assert thought_of(events) == "First think of this."
    thought = reasoning_of(events)
    assert (thought.output, thought.summary) == (0, ("First think of this.",))
    assert thought.native is not None
    assert (thought.native.provider, thought.native.model) == ("fake", "test-model")
    assert [event.output for event in events if isinstance(event, TextDelta)] == [1]
    assert text_of(events) == "Done."


async def test_calls_keep_their_order_and_their_arguments(provider: FakeProvider, model: Model) -> None:
    provider.queue(
        answer(
            Text("Let me look."),
            Call("lookup_order", {"order_id": "A-1042"}),
            Call("lookup_order", {"order_id": "A-1043"}, chunks=3),
            Call("list_orders", "{}"),
            Call("broken", '{"order_id": "A-10'),
        )
    )
    events = await collect(model, ask(tools=(LOOKUP,)))
    assert calls_of(events) == [
        ("lookup_order", '{"order_id": "A-1042"}'),
        ("lookup_order", '{"order_id": "A-1043"}'),
        ("list_orders", "{}"),
        ("broken", '{"order_id": "A-10'),
    ]
    assert [event.output for event in events if isinstance(event, CallDone)] == [1, 2, 3, 4]
    assert text_of(events) == "Let me look."
    finish_of(events)


@pytest.mark.parametrize(
    "ids", [("", ""), ("same", "same"), ("call_0", "call_0"), ("functions.f:0", "x" * 300)]
)
async def test_hostile_ids_of_a_provider_lose_no_call(
    provider: FakeProvider, model: Model, ids: tuple[str, str]
) -> None:
    orders = [{"order_id": "A-1042"}, {"order_id": "A-1043"}]
    provider.queue(
        answer(*(Call("lookup_order", order, id=id) for order, id in zip(orders, ids, strict=True)))
    )
    events = await collect(model, ask(tools=(LOOKUP,)))
    assert [arguments for _, arguments in calls_of(events)] == [
        '{"order_id": "A-1042"}',
        '{"order_id": "A-1043"}',
    ]


async def test_an_answer_of_nothing(provider: FakeProvider, model: Model) -> None:
    provider.queue(answer())
    events = await collect(model)
    assert events == [finish_of(events)]


async def test_a_truncated_answer_shows_its_text_and_dispatches_no_call(
    provider: FakeProvider, model: Model
) -> None:
    provider.queue(
        answer(
            Text("Let me look."),
            Call("lookup_order", {"order_id": "A-1"}),
            Call("lookup_order", '{"order_id": "A-'),
            end="max_output_tokens",
        )
    )
    seen, error = await fail(model, ask(tools=(LOOKUP,)))
    assert "".join(event.text for event in seen if isinstance(event, TextDelta)) == "Let me look."
    assert not [event for event in seen if isinstance(event, CallDone | Finished)]
    assert (error.code, error.retryable) == ("max_output_tokens", False)


async def test_a_filtered_answer(provider: FakeProvider, model: Model) -> None:
    provider.queue(answer(Text("Well,"), end="content_filter"))
    _, error = await fail(model)
    assert (error.code, error.retryable) == ("invalid_request", False)
    assert "content filter" in error.message


@pytest.mark.parametrize(
    ("code", "expected", "retryable"),
    [
        ("server_error", "server_error", True),
        ("rate_limit_exceeded", "rate_limit_exceeded", True),
        ("insufficient_quota", "usage_limit_exceeded", False),
        ("context_length_exceeded", "context_length_exceeded", False),
        ("cyber_policy", "cyber_policy", False),
        ("misalignment_policy_violation", "misalignment_policy_violation", False),
        ("bio_policy", "invalid_request", False),
        ("server_is_overloaded", "server_overloaded", True),
        ("something_new", "server_error", True),
        (None, "server_error", True),
    ],
)
@pytest.mark.parametrize("form", ["event", "nested", "failed"])
async def test_failures_inside_the_stream(
    provider: FakeProvider, model: Model, code: Any, form: Any, expected: str, retryable: bool
) -> None:
    provider.queue(
        answer(Text("Half"), Call("f"), failure=Failure(code, "It broke: token=abcdefghijk.", form=form))
    )
    seen, error = await fail(model)
    assert "".join(event.text for event in seen if isinstance(event, TextDelta)) == "Half"
    assert not [event for event in seen if isinstance(event, CallDone | Finished)]
    assert (error.code, error.retryable) == (expected, retryable)
    assert "It broke" in error.message
    assert "abcdefghijk" not in error.message


async def test_every_cut_is_noticed(provider: FakeProvider, model: Model) -> None:
    planned = answer(Thought(("Hm.",)), Text("Hello."), Call("f", {"a": 1}))
    body = {"model": "m"}
    total = len(list(provider.frames(body, planned)))
    finishing = 3 if "chat" in provider.PATH else 1
    for frames in range(total - finishing + 1):
        provider.queue(answer(*planned.outputs, cut_after=frames))
        seen, error = await fail(model)
        assert error.code == "connection_failed", frames
        assert not [event for event in seen if isinstance(event, CallDone | Finished)]


async def test_only_one_request_is_made(provider: FakeProvider, model: Model) -> None:
    provider.queue(Refusal(503, "overloaded"))
    await fail(model)
    assert len(provider.requests) == 1


async def test_the_model_settings_name_the_limit_of_output(wire: Wire, provider: FakeProvider) -> None:
    overrides = {"mine": {"upstream": "test-model", "max_output_tokens": 4096}}
    model = wire.model(provider.settings(model=overrides, max_output_tokens=1024))
    await collect(model)
    await collect(model, ask(model="other"))
    sent = [body.get("max_output_tokens", body.get("max_tokens")) for body in map(_body, provider.requests)]
    assert sent == [4096, 1024]
    await model.close()


@pytest.mark.parametrize("wire", OPENAI_WIRES.values(), ids=OPENAI_WIRES)
async def test_a_field_of_ours_that_a_model_refuses_is_not_sent_again(
    provider: FakeProvider, model: Model
) -> None:
    field, words = (
        ("include", "Encrypted content is not supported with this model.")
        if "responses" in provider.PATH
        else ("stream_options", "Unrecognized request argument supplied: stream_options")
    )
    provider.queue(Refusal(400, None, words, param=field))
    _, error = await fail(model)
    assert error.retryable
    await collect(model)
    await collect(model, ask(model="another"))
    assert [field in body for body in map(_body, provider.requests)] == [True, False, True]


async def test_a_field_the_user_wants_is_sent_again(provider: FakeProvider, model: Model) -> None:
    provider.queue(Refusal(400, "unsupported_parameter", "Unsupported parameter: reasoning effort."))
    _, error = await fail(model, ask(effort="high"))
    assert (error.code, error.retryable) == ("invalid_request", False)


def _body(request: Any) -> dict[str, Any]:
    return dict(request.body)


async def test_outputs_are_numbered_by_first_appearance(provider: FakeProvider, model: Model) -> None:
    provider.queue(Answer((Thought(("a",)), Text("b"), Call("c"), Call("d"))))
    events = await collect(model)
    done = [event for event in events if isinstance(event, ReasoningDone | MessageDone | CallDone)]
    assert [event.output for event in done] == [0, 1, 2, 3]
