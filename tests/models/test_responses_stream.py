from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.models.wires import ask, calls_of, collect, fail, finish_of, reasoning_of, text_of, thought_of
from tests.providers.answers import Call, Quirk, Raw, Text, Thought, answer
from tests.providers.responses import ResponsesProvider

from perdure.models.messages import MessageDone, ReasoningDelta, TextDelta
from perdure.models.responses import ResponsesModel


@pytest.fixture
async def provider() -> AsyncIterator[ResponsesProvider]:
    async with ResponsesProvider() as provider:
        yield provider
        assert provider.violations == []


@pytest.fixture
async def model(provider: ResponsesProvider) -> AsyncIterator[ResponsesModel]:
    model = ResponsesModel(provider.settings())
    yield model
    await model.close()


COMPLETED = {"type": "response.completed", "response": {"id": "resp_1", "status": "completed", "output": []}}


def message(text: str, **changes: Any) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"id": "msg_1", "type": "message", "role": "assistant", "content": [part], **changes}


@pytest.mark.parametrize("phase", ["commentary", "final_answer", None])
async def test_the_phase_of_a_message(provider: ResponsesProvider, model: ResponsesModel, phase: Any) -> None:
    provider.queue(answer(Text("Working on it.", phase=phase)))
    (done,) = [event for event in await collect(model) if isinstance(event, MessageDone)]
    assert done.phase == phase


async def test_several_messages_of_one_answer(provider: ResponsesProvider, model: ResponsesModel) -> None:
    provider.queue(answer(Text("One.", phase="commentary"), Text("Two.", phase="final_answer")))
    done = [event for event in await collect(model) if isinstance(event, MessageDone)]
    assert [(one.output, one.text, one.phase) for one in done] == [
        (0, "One.", "commentary"),
        (1, "Two.", "final_answer"),
    ]


async def test_a_summary_in_parts(provider: ResponsesProvider, model: ResponsesModel) -> None:
    provider.queue(answer(Thought(("First part.", "Second part."), chunks=4), Text("x")))
    events = await collect(model)
    parts = {0: "", 1: ""}
    for event in events:
        if isinstance(event, ReasoningDelta):
            parts[event.part] += event.text
    assert parts == {0: "First part.", 1: "Second part."}
    assert reasoning_of(events).summary == ("First part.", "Second part.")


async def test_reasoning_without_a_summary_is_kept(
    provider: ResponsesProvider, model: ResponsesModel
) -> None:
    provider.queue(answer(Thought(), Text("x")))
    thought = reasoning_of(await collect(model))
    assert thought.summary == ()
    assert thought.native is not None
    assert thought.native.data["encrypted_content"]


async def test_raw_reasoning_stands_in_for_a_summary(
    provider: ResponsesProvider, model: ResponsesModel
) -> None:
    provider.queue(answer(Thought(raw="All that I think.", encrypted=False), Text("x")))
    events = await collect(model)
    assert thought_of(events) == "All that I think."
    thought = reasoning_of(events)
    assert thought.summary == ("All that I think.",)
    assert thought.native is not None
    assert thought.native.data["content"] == [{"type": "reasoning_text", "text": "All that I think."}]


async def test_reasoning_that_cannot_be_read_back_is_not_native(
    provider: ResponsesProvider, model: ResponsesModel
) -> None:
    provider.queue(answer(Thought(("Hm.",), encrypted=False), Text("x")))
    assert reasoning_of(await collect(model)).native is None


@pytest.mark.parametrize(
    "quirks",
    [
        ("no_done",),
        ("no_done", "no_added"),
        ("empty_final_output",),
        ("no_added",),
        ("no_done", "empty_final_output"),
    ],
)
async def test_events_that_never_come(
    provider: ResponsesProvider, model: ResponsesModel, quirks: tuple[Quirk, ...]
) -> None:
    provider.queue(answer(Thought(("Hm.",)), Text("Hello."), Call("f", {"a": 1}), Call("g"), quirks=quirks))
    events = await collect(model)
    assert text_of(events) == "Hello."
    assert reasoning_of(events).summary == ("Hm.",)
    assert calls_of(events) == [("f", '{"a": 1}'), ("g", "{}")]


async def test_a_text_that_never_streamed_comes_as_one_delta(
    provider: ResponsesProvider, model: ResponsesModel
) -> None:
    done = {"type": "response.output_item.done", "output_index": 0, "item": message("Hello.")}
    provider.queue(Raw((done, COMPLETED)))
    events = await collect(model)
    assert [event for event in events if isinstance(event, TextDelta)] == [TextDelta(0, "Hello.")]
    assert text_of(events) == "Hello."


async def test_unknown_events_and_outputs_are_passed_over(
    provider: ResponsesProvider, model: ResponsesModel
) -> None:
    search = {"id": "ws_1", "type": "web_search_call", "status": "completed"}
    provider.queue(
        Raw(
            (
                b": keep-alive\n\n",
                {"type": "response.output_item.added", "output_index": 0, "item": search},
                {"type": "response.web_search_call.searching", "output_index": 0, "item_id": "ws_1"},
                {"type": "response.output_item.done", "output_index": 0, "item": search},
                {"type": "codex.rate_limits", "limits": {}},
                {"type": "keepalive"},
                {},
                [],
                7,
                {"type": "response.output_item.added", "output_index": 1, "item": message("", content=[])},
                {"type": "response.output_text.delta", "output_index": 1, "delta": "Hi"},
                {"type": "response.output_text.delta", "output_index": 1, "delta": None},
                {"type": "response.output_text.annotation.added", "output_index": 1},
                {"type": "response.output_item.done", "output_index": 1, "item": message("Hi")},
                {**COMPLETED, "response": {**COMPLETED["response"], "output": [search, message("Hi")]}},  # type: ignore[dict-item]
            )
        )
    )
    events = await collect(model)
    assert text_of(events) == "Hi"
    assert finish_of(events).response_id == "resp_1"


async def test_outputs_without_an_index_are_told_apart_by_their_id(
    provider: ResponsesProvider, model: ResponsesModel
) -> None:
    first, second = message("One", id="msg_1"), message("Two", id="msg_2")
    provider.queue(
        Raw(
            (
                {"type": "response.output_text.delta", "item_id": "msg_1", "delta": "One"},
                {"type": "response.output_item.done", "item": first},
                {"type": "response.output_text.delta", "item_id": "msg_2", "delta": "Two"},
                {"type": "response.output_item.done", "item": second},
                {**COMPLETED, "response": {"status": "completed", "output": [first, second]}},
            )
        )
    )
    events = await collect(model)
    assert [(e.output, e.text) for e in events if isinstance(e, MessageDone)] == [(0, "One"), (1, "Two")]


async def test_the_closing_text_is_authoritative(provider: ResponsesProvider, model: ResponsesModel) -> None:
    provider.queue(
        Raw(
            (
                {"type": "response.output_text.delta", "output_index": 0, "delta": "Helo"},
                {"type": "response.output_item.done", "output_index": 0, "item": message("Hello")},
                COMPLETED,
            )
        )
    )
    (done,) = [event for event in await collect(model) if isinstance(event, MessageDone)]
    assert done.text == "Hello"


async def test_a_call_that_never_ended_is_not_dropped_in_silence(
    provider: ResponsesProvider, model: ResponsesModel
) -> None:
    call = {"id": "fc_1", "type": "function_call", "call_id": "call_1", "name": "f", "arguments": ""}
    provider.queue(Raw(({"type": "response.output_item.added", "output_index": 0, "item": call}, COMPLETED)))
    _, error = await fail(model)
    assert (error.code, error.retryable) == ("server_error", True)


async def test_a_response_that_was_not_streamed(provider: ResponsesProvider, model: ResponsesModel) -> None:
    whole = b'{"object":"response","id":"r","status":"completed","output":[{"type":"message","id":"m",'
    whole += b'"content":[{"type":"output_text","text":"Hi"}]}]}'
    provider.queue(Raw((whole,), content_type="application/json"))
    assert text_of(await collect(model)) == "Hi"


@pytest.mark.parametrize(
    ("response", "code", "retryable"),
    [
        (
            {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}},
            "max_output_tokens",
            False,
        ),
        ({"status": "incomplete", "incomplete_details": None}, "server_error", True),
        ({"status": "failed", "error": None}, "server_error", True),
        ({"status": "cancelled"}, "server_error", True),
        (
            {"status": "failed", "error": {"code": "invalid_prompt"}},
            "invalid_request",
            False,
        ),
    ],
)
async def test_endings_that_are_no_success(
    provider: ResponsesProvider, model: ResponsesModel, response: Any, code: str, retryable: bool
) -> None:
    provider.queue(Raw(({"type": "response.completed", "response": response},)))
    _, error = await fail(model)
    assert (error.code, error.retryable) == (code, retryable)


async def test_lone_surrogates_become_replacement_characters(
    provider: ResponsesProvider, model: ResponsesModel
) -> None:
    delta = b'data: {"type":"response.output_text.delta","output_index":0,"delta":"a\\ud800b"}\n\n'
    provider.queue(Raw((delta, COMPLETED)))
    assert text_of(await collect(model, ask())) == "a\ufffdb"
