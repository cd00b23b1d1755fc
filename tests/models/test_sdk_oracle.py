"""The official SDK agrees: with our requests, and with what we read from a stream."""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator, Iterable
from typing import Any

import openai
import pydantic
import pytest
from openai.types.chat.completion_create_params import CompletionCreateParamsStreaming
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming
from tests.models.wires import (
    LOOKUP,
    ask,
    calls_of,
    collect,
    entries_of,
    finish_of,
    reasoning_of,
    text_of,
    user,
)
from tests.providers.answers import Answer, Call, Output, Text, Thought, Usage, answer
from tests.providers.chat import ChatProvider
from tests.providers.responses import ResponsesProvider
from tests.providers.server import KEY, FakeProvider

from perdure.models.chat import ChatModel
from perdure.models.messages import (
    Entry,
    FunctionCall,
    FunctionResult,
    ImagePart,
    MessageDone,
    ModelRequest,
    ServerNote,
    TextPart,
    UserMessage,
)
from perdure.models.responses import ResponsesModel

PICTURE = ImagePart("https://example.com/picture.png")
USAGE = Usage(1000, 50, cached=900, reasoning=30)
ANSWERS: dict[str, Answer] = {
    "text": answer(Text("Hello, world! 😀", chunks=3), usage=USAGE),
    "refusal": answer(Text("I cannot.", refusal=True), usage=USAGE),
    "calls": answer(
        Text("Looking."),
        Call("lookup_order", {"order_id": "A-1042"}, chunks=4),
        Call("lookup_order", {"order_id": "A-1043"}, chunks=4),
        usage=USAGE,
    ),
    "reasoning": answer(Thought(("One.", "Two.")), Text("Done."), usage=USAGE),
    "no usage": answer(Text("Hi."), usage=None),
}


@pytest.fixture
async def responses() -> AsyncIterator[ResponsesProvider]:
    async with ResponsesProvider() as provider:
        yield provider
        assert provider.violations == []


@pytest.fixture
async def chat() -> AsyncIterator[ChatProvider]:
    async with ChatProvider() as provider:
        yield provider
        assert provider.violations == []


def sdk(provider: FakeProvider) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=provider.base_url, api_key=KEY, max_retries=0)


def rich_request(answered: list[Entry]) -> ModelRequest:
    """A request with every kind of entry and option."""
    owed = [entry for entry in answered if isinstance(entry, FunctionCall)]
    return ask(
        UserMessage((TextPart("See"), PICTURE)),
        *answered,
        *(FunctionResult(entry.call_id, (TextPart("shipped"), PICTURE)) for entry in owed),
        FunctionCall("call_x", "f", "{}"),
        FunctionResult("call_x", "no such order", failed=True),
        ServerNote((TextPart("Late."),)),
        user("Go on."),
        tools=(LOOKUP,),
        output_schema={
            "type": "object",
            "properties": {"a": {"type": "string"}},
            "required": ["a"],
            "additionalProperties": False,
        },
        effort="high",
        summary="auto",
        verbosity="low",
        service_tier="priority",
        cache_ttl="12h",
        cache_key="sess_1",
    )


@pytest.mark.parametrize("name", ANSWERS)
async def test_responses_are_read_as_the_sdk_reads_them(responses: ResponsesProvider, name: str) -> None:
    responses.queue(ANSWERS[name], ANSWERS[name])
    model = ResponsesModel(responses.settings())
    ours = await collect(model, ask(tools=(LOOKUP,)))
    async with sdk(responses) as client:
        # What we sent is what the SDK can send.
        stream = await client.responses.create(**responses.requests[0].body)
        deltas = ""
        async for event in stream:
            if event.type in ("response.output_text.delta", "response.refusal.delta"):
                deltas += event.delta
            if event.type == "response.completed":
                response = event.response
    assert responses.requests[1].body == responses.requests[0].body
    assert text_of(ours) == deltas
    items = [item for item in response.output if item.type == "function_call"]
    assert calls_of(ours) == [(item.name, item.arguments) for item in items]
    summaries = [part.text for item in response.output if item.type == "reasoning" for part in item.summary]
    if summaries:
        assert list(reasoning_of(ours).summary) == summaries
    usage = finish_of(ours).usage
    assert (usage is None) == (response.usage is None)
    if usage is not None and response.usage is not None:
        theirs = response.usage.model_dump(exclude={"input_tokens_details": {"cache_write_tokens"}})
        theirs["input_tokens_details"].pop("cache_write_tokens_details", None)
        assert usage.model_dump() == theirs
    await model.close()


@pytest.mark.parametrize("name", ANSWERS)
async def test_chunks_are_read_as_the_sdk_reads_them(chat: ChatProvider, name: str) -> None:
    chat.queue(ANSWERS[name], ANSWERS[name])
    model = ChatModel(chat.settings())
    ours = await collect(model, ask(tools=(LOOKUP,)))
    body = dict(chat.requests[0].body)
    async with sdk(chat) as client:
        del body["stream"]
        async with client.chat.completions.stream(**body) as stream:
            completion = await stream.get_final_completion()
    assert chat.requests[1].body == chat.requests[0].body
    message = completion.choices[0].message
    assert text_of(ours) == (message.content or message.refusal)
    functions = [call.function for call in message.tool_calls or [] if call.type == "function"]
    assert calls_of(ours) == [(function.name, function.arguments) for function in functions]
    (done,) = [event for event in ours if isinstance(event, MessageDone)]
    assert done.refusal == bool(message.refusal)
    usage = finish_of(ours).usage
    assert (usage is None) == (completion.usage is None)
    if usage is not None and completion.usage is not None:
        assert usage.input_tokens == completion.usage.prompt_tokens
        assert usage.output_tokens == completion.usage.completion_tokens
        assert usage.total_tokens == completion.usage.total_tokens
    await model.close()


def validate(kind: Any, body: dict[str, Any]) -> None:
    """The body is of the SDK's type, down to its lazily checked lists."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # The lazy lists of the result need the adapter alive.
        adapter = pydantic.TypeAdapter(kind)
        _exhaust(adapter.validate_python(body))


def _exhaust(value: Any) -> None:
    if isinstance(value, dict):
        for part in value.values():
            _exhaust(part)
    elif isinstance(value, Iterable) and not isinstance(value, str | bytes):
        for part in value:
            _exhaust(part)


OUTPUTS: tuple[Output, ...] = (
    Thought(("Hm.",)),
    Text("Look.", phase="commentary"),
    Call("lookup_order", {"order_id": "A-1"}),
    Call("lookup_order", {"order_id": "A-2"}),
)


async def test_a_responses_request_is_of_the_sdks_type(responses: ResponsesProvider) -> None:
    responses.queue(answer(*OUTPUTS))
    model = ResponsesModel(responses.settings(max_output_tokens=5000))
    await collect(model, rich_request(entries_of(await collect(model))))
    for request in responses.requests:
        validate(ResponseCreateParamsStreaming, request.body)
    await model.close()


async def test_a_chat_request_is_of_the_sdks_type(chat: ChatProvider) -> None:
    chat.queue(answer(*OUTPUTS))
    model = ChatModel(chat.settings(max_output_tokens=5000))
    await collect(model, rich_request(entries_of(await collect(model))))
    for request in chat.requests:
        validate(CompletionCreateParamsStreaming, request.body)
    await model.close()


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (ResponseCreateParamsStreaming, {"input": [{"type": "message"}]}),
        (CompletionCreateParamsStreaming, {"messages": [{"role": "critic", "content": "x"}]}),
    ],
)
def test_the_oracle_notices_a_wrong_request(kind: Any, wrong: dict[str, Any]) -> None:
    with pytest.raises(pydantic.ValidationError):
        validate(kind, {"model": "m", "stream": True, **wrong})
