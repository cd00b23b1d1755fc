from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from tests.models.wires import (
    calls_of,
    collect,
    fail,
    finish_of,
    reasoning_of,
    text_of,
    thought_of,
)
from tests.providers.answers import Call, Quirk, Raw, Text, Thought, Usage, answer
from tests.providers.chat import ChatProvider

from perdure.models import chat
from perdure.models.chat import ChatModel
from perdure.models.messages import MessageDone
from perdure.wire.usage import TokenUsage

FIRST, SECOND = {"order_id": "A-1042"}, {"order_id": "A-1043"}
CALLS = (Call("lookup_order", FIRST), Call("lookup_order", SECOND), Call("list_orders"))
EXPECTED = [
    ("lookup_order", '{"order_id":"A-1042"}'),
    ("lookup_order", '{"order_id":"A-1043"}'),
    ("list_orders", "{}"),
]


@pytest.fixture
async def provider() -> AsyncIterator[ChatProvider]:
    async with ChatProvider() as provider:
        yield provider
        assert provider.violations == []


@pytest.fixture
async def model(provider: ChatProvider) -> AsyncIterator[ChatModel]:
    model = ChatModel(provider.settings())
    yield model
    await model.close()


def compact(calls: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(name, arguments.replace(": ", ":")) for name, arguments in calls]


def delta(delta: Any, reason: str | None = None, **chunk: Any) -> dict[str, Any]:
    return {"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": reason}], **chunk}


STOP = delta({}, "stop")
DONE = b"data: [DONE]\n\n"


def pieces(*tool_calls: dict[str, Any]) -> list[dict[str, Any]]:
    return [delta({"tool_calls": [piece]}) for piece in tool_calls]


@pytest.mark.parametrize(
    "quirks",
    [
        (),
        ("no_done",),
        ("whole_calls",),
        ("object_arguments",),
        ("no_index",),
        ("no_index", "whole_calls"),
        ("same_index",),
        ("same_index", "whole_calls"),
        ("repeated_names",),
        ("no_index", "repeated_names"),
        ("finish_with_delta",),
        ("usage_with_finish",),
        ("stop_with_calls",),
    ],
)
async def test_calls_of_every_shape(
    provider: ChatProvider, model: ChatModel, quirks: tuple[Quirk, ...]
) -> None:
    provider.queue(answer(Text("Looking."), *CALLS, quirks=quirks))
    events = await collect(model)
    assert text_of(events) == "Looking."
    assert compact(calls_of(events)) == EXPECTED
    assert finish_of(events).usage is not None


@pytest.mark.parametrize("quirks", [("whole_calls",), ("object_arguments",), ("no_index", "whole_calls")])
@pytest.mark.parametrize("same", [FIRST, SECOND])
async def test_calls_of_every_shape_with_empty_ids(
    provider: ChatProvider, model: ChatModel, quirks: tuple[Quirk, ...], same: Any
) -> None:
    provider.queue(
        answer(Call("lookup_order", FIRST, id=""), Call("lookup_order", same, id=""), quirks=quirks)
    )
    events = await collect(model)
    assert len(calls_of(events)) == 2


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        # No index, no id: a name starts a call, what has none goes on with it.
        (
            pieces(
                {"function": {"name": "f", "arguments": '{"a":'}},
                {"function": {"arguments": "1}"}},
                {"function": {"name": "f", "arguments": '{"a":'}},
                {"function": {"arguments": "2}"}},
            ),
            [("f", '{"a":1}'), ("f", '{"a":2}')],
        ),
        # Two calls in one chunk, with nothing to tell them apart.
        (
            [delta({"tool_calls": [{"function": {"name": "f"}}, {"function": {"name": "f"}}]})],
            [("f", ""), ("f", "")],
        ),
        # The same index and id for two calls that are both whole.
        (
            pieces(
                {"index": 0, "id": "x", "function": {"name": "f", "arguments": '{"a":1}'}},
                {"index": 0, "id": "x", "function": {"name": "f", "arguments": '{"a":2}'}},
            ),
            [("f", '{"a":1}'), ("f", '{"a":2}')],
        ),
        # The last piece repeats the whole call.
        (
            pieces(
                {"index": 0, "id": "x", "function": {"name": "f", "arguments": '{"a":'}},
                {"index": 0, "function": {"arguments": "1}"}},
                {"index": 0, "id": "x", "function": {"name": "f", "arguments": '{"a":1}'}},
            ),
            [("f", '{"a":1}')],
        ),
        # The id changes from piece to piece of one call.
        (
            pieces(
                {"index": 0, "id": "x", "function": {"name": "f", "arguments": '{"a":'}},
                {"index": 0, "id": "y", "function": {"arguments": "1}"}},
            ),
            [("f", '{"a":1}')],
        ),
        # Interleaved calls.
        (
            pieces(
                {"index": 0, "id": "x", "function": {"name": "f", "arguments": '{"a":'}},
                {"index": 1, "id": "y", "function": {"name": "g", "arguments": '{"b":'}},
                {"index": 0, "function": {"arguments": "1}"}},
                {"index": 1, "function": {"arguments": "2}"}},
            ),
            [("f", '{"a":1}'), ("g", '{"b":2}')],
        ),
        # Null and missing members.
        (
            pieces(
                {"index": 0, "id": None, "type": "function", "function": {"name": "f", "arguments": None}},
                {"index": 0, "function": None},
                {"index": 0},
            ),
            [("f", "")],
        ),
        # A name in two pieces.
        (
            pieces(
                {"index": 0, "id": "x", "function": {"name": "look"}},
                {"index": 0, "function": {"name": "up", "arguments": "{}"}},
            ),
            [("lookup", "{}")],
        ),
        # The form before tool calls.
        (
            [
                delta({"function_call": {"name": "f", "arguments": '{"a"'}}),
                delta({"function_call": {"arguments": ":1}"}}),
            ],
            [("f", '{"a":1}')],
        ),
    ],
)
async def test_pieces_of_calls(
    provider: ChatProvider, model: ChatModel, chunks: list[Any], expected: list[tuple[str, str]]
) -> None:
    provider.queue(Raw((*chunks, delta({}, "tool_calls"), DONE)))
    assert calls_of(await collect(model)) == expected


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_reasoning_under_both_of_its_names(field: str) -> None:
    async with ChatProvider(
        answer(Thought(raw="Think hard."), Text("Done.")), reasoning_field=field
    ) as provider:
        model = ChatModel(provider.settings())
        events = await collect(model)
        await model.close()
    assert thought_of(events) == "Think hard."
    thought = reasoning_of(events)
    assert thought.summary == ("Think hard.",)
    assert thought.native is not None
    assert thought.native.data == {"field": field, "text": "Think hard."}


async def test_reasoning_under_both_names_at_once_is_read_once(
    provider: ChatProvider, model: ChatModel
) -> None:
    provider.queue(answer(Thought(raw="Think hard."), Text("Done."), quirks=("both_spellings",)))
    assert thought_of(await collect(model)) == "Think hard."


async def test_details_of_reasoning_are_kept_and_joined() -> None:
    planned = answer(Thought(raw="Think hard.", chunks=3), Text("Done."))
    async with ChatProvider(planned, reasoning_field="reasoning", reasoning_details=True) as provider:
        model = ChatModel(provider.settings())
        events = await collect(model)
        await model.close()
    assert thought_of(events) == "Think hard."
    native = reasoning_of(events).native
    assert native is not None
    first, second = native.data["details"]
    assert first == {"type": "reasoning.text", "index": 0, "text": "Think hard."}
    assert second["type"] == "reasoning.encrypted"


async def test_content_in_parts(provider: ChatProvider, model: ChatModel) -> None:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}
    chunks = (delta({"content": [thinking]}), delta({"content": [{"type": "text", "text": "Done."}]}))
    provider.queue(Raw((*chunks, STOP, DONE)))
    events = await collect(model)
    assert (thought_of(events), text_of(events)) == ("Hm.", "Done.")


@pytest.mark.parametrize(
    ("chunks", "usage"),
    [
        # Running totals in every chunk: the last one counts.
        (
            (
                delta({"content": "a"}, usage={"prompt_tokens": 5, "completion_tokens": 1}),
                delta({}, "stop", usage={"prompt_tokens": 5, "completion_tokens": 9}),
            ),
            TokenUsage.of(5, 9),
        ),
        # Inside the choice.
        (
            ({"choices": [{"delta": {}, "finish_reason": "stop", "usage": {"prompt_tokens": 7}}]},),
            TokenUsage.of(7, 0),
        ),
        # Inside a wrapper of one provider.
        (
            (STOP, {"choices": [], "x_groq": {"usage": {"prompt_tokens": 3, "completion_tokens": 4}}}),
            TokenUsage.of(3, 4),
        ),
        # Cached tokens under the names of other providers.
        (
            (STOP, {"choices": [], "usage": {"prompt_tokens": 9, "cached_tokens": 8}}),
            TokenUsage.of(9, 0, cached_tokens=8),
        ),
        (
            (STOP, {"choices": [], "usage": {"prompt_tokens": 9, "prompt_cache_hit_tokens": 6}}),
            TokenUsage.of(9, 0, cached_tokens=6),
        ),
        ((STOP, {"choices": None, "usage": None}), None),
        ((STOP, {"choices": [], "usage": {"prompt_tokens": "many"}}), None),
    ],
)
async def test_usage_of_every_shape(
    provider: ChatProvider, model: ChatModel, chunks: tuple[Any, ...], usage: TokenUsage | None
) -> None:
    provider.queue(Raw((*chunks, DONE)))
    assert finish_of(await collect(model)).usage == usage


@pytest.mark.parametrize(
    ("choice", "code", "retryable"),
    [
        ({"finish_reason": "length"}, "max_output_tokens", False),
        ({"finish_reason": "content_filter"}, "invalid_request", False),
        ({"finish_reason": "error"}, "server_error", True),
        ({"finish_reason": "error", "error": {"code": 429, "message": "x"}}, "rate_limit_exceeded", True),
        ({"finish_reason": "insufficient_system_resource"}, "server_overloaded", True),
        ({"finish_reason": "network_error"}, "connection_failed", True),
        ({"finish_reason": "model_context_window_exceeded"}, "context_length_exceeded", False),
        ({"finish_reason": "tool_calls"}, "server_error", True),
    ],
)
async def test_endings_that_are_no_success(
    provider: ChatProvider, model: ChatModel, choice: dict[str, Any], code: str, retryable: bool
) -> None:
    provider.queue(Raw((delta({"content": "a"}), {"choices": [{"delta": {"content": "b"}, **choice}]}, DONE)))
    seen, error = await fail(model)
    assert (error.code, error.retryable) == (code, retryable)
    assert len(seen) == 2


@pytest.mark.parametrize("reason", ["stop", "eos", "end_turn", "something_new"])
async def test_other_reasons_end_an_answer(provider: ChatProvider, model: ChatModel, reason: str) -> None:
    provider.queue(Raw((delta({"content": "a"}), delta({}, reason), DONE)))
    assert text_of(await collect(model)) == "a"


async def test_an_answer_that_was_not_streamed(provider: ChatProvider, model: ChatModel) -> None:
    body = b'{"choices":[{"message":{"content":"Hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":2}}'
    provider.queue(Raw((body,), content_type="application/json"))
    events = await collect(model)
    assert text_of(events) == "Hi"
    assert finish_of(events).usage == TokenUsage.of(2, 0)


async def test_a_connection_left_open_after_the_end_is_not_waited_for(
    provider: ChatProvider, model: ChatModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat, "USAGE_PATIENCE", 0.05)
    provider.queue(answer(Text("Hi.", chunks=10), usage=Usage(1, 1), hang_after=3))
    events = await collect(model)
    assert text_of(events) == "Hi."
    assert finish_of(events).usage is None


async def test_a_connection_reset_after_the_end_loses_nothing(
    provider: ChatProvider, model: ChatModel
) -> None:
    provider.queue(answer(Text("Hi.", chunks=10), cut_after=3, reset=True))
    assert text_of(await collect(model)) == "Hi."


async def test_chunks_of_nothing_are_passed_over(provider: ChatProvider, model: ChatModel) -> None:
    odd: tuple[Any, ...] = (
        {},
        [],
        None,
        {"choices": [None]},
        {"choices": {}},
        delta(None),
        delta({"content": ""}),
        delta({"x": 1}),
    )
    provider.queue(Raw((b": OPENROUTER PROCESSING\n\n", *odd, delta({"content": "a"}), STOP, DONE)))
    assert text_of(await collect(model)) == "a"


async def test_only_the_first_choice_counts_and_has_no_phase(
    provider: ChatProvider, model: ChatModel
) -> None:
    provider.queue(Raw((delta({"role": "assistant", "content": "a"}), STOP, DONE)))
    (done,) = [event for event in await collect(model) if isinstance(event, MessageDone)]
    assert (done.text, done.phase, done.native) == ("a", None, None)


async def test_lone_surrogates_become_replacement_characters(
    provider: ChatProvider, model: ChatModel
) -> None:
    provider.queue(Raw((b'data: {"choices":[{"delta":{"content":"a\\ud83d"}}]}\n\n', STOP, DONE)))
    assert text_of(await collect(model)) == "a\ufffd"
