"""Anthropic's SDK agrees: with our requests, and with what we read from a stream."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pydantic
import pytest
from tests.models.test_sdk_oracle import validate
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
from tests.providers.answers import Answer, Call, Text, Thought, Usage, answer
from tests.providers.anthropic import AnthropicProvider
from tests.providers.server import KEY

from perdure.config.providers import ANTHROPIC_VERSION
from perdure.models.anthropic import AnthropicModel
from perdure.models.messages import (
    FunctionCall,
    FunctionResult,
    ImagePart,
    ServerNote,
    TextPart,
    UserMessage,
)

anthropic = pytest.importorskip("anthropic", reason="the package `anthropic` is needed to check against")

USAGE = Usage(1000, 50, cached=900, reasoning=30)
ANSWERS: dict[str, Answer] = {
    "text": answer(Text("Hello, world! 😀", chunks=3), usage=USAGE),
    "calls": answer(
        Text("Looking."),
        Call("lookup_order", {"order_id": "A-1042"}, chunks=4),
        Call("lookup_order", {"order_id": "A-1043"}, chunks=4),
        usage=USAGE,
    ),
    "empty call": answer(Call("now", ""), usage=USAGE),
    "thinking": answer(Thought(("One. Two.",)), Text("Done."), usage=USAGE),
    "redacted": answer(Thought(), Text("Done."), usage=USAGE),
}
CLOSED = {
    "type": "object",
    "properties": {"a": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}


@pytest.fixture
async def provider() -> AsyncIterator[AnthropicProvider]:
    async with AnthropicProvider() as provider:
        yield provider
        assert provider.violations == []


@pytest.mark.parametrize("name", ANSWERS)
async def test_answers_are_read_as_the_sdk_reads_them(provider: AnthropicProvider, name: str) -> None:
    provider.queue(ANSWERS[name], ANSWERS[name])
    model = AnthropicModel(provider.settings())
    ours = await collect(model, ask(tools=(LOOKUP,)))
    body: dict[str, Any] = dict(provider.requests[0].body)
    del body["stream"]
    address = provider.base_url.removesuffix("/v1")
    # What we sent is what the SDK can send.
    async with (
        anthropic.AsyncAnthropic(base_url=address, api_key=KEY, max_retries=0) as client,
        client.messages.stream(**body) as stream,
    ):
        message = await stream.get_final_message()
    assert provider.requests[1].body == provider.requests[0].body
    assert provider.requests[1].headers["anthropic-version"] == ANTHROPIC_VERSION
    texts = [block.text for block in message.content if block.type == "text"]
    if texts:
        assert text_of(ours) == "".join(texts)
    calls = [(block.name, block.input) for block in message.content if block.type == "tool_use"]
    assert [(call, pydantic.TypeAdapter(Any).validate_json(text)) for call, text in calls_of(ours)] == calls
    thoughts = [block for block in message.content if block.type in ("thinking", "redacted_thinking")]
    if thoughts:
        native = reasoning_of(ours).native
        assert native is not None
        kept = thoughts[0].model_dump(exclude_none=True)
        # Only the shape of the signature is the same: each answer has one of its own.
        assert native.data.keys() == kept.keys()
        assert native.data.get("thinking") == kept.get("thinking")
    usage = finish_of(ours).usage
    assert usage is not None
    theirs = message.usage
    read = theirs.input_tokens + theirs.cache_read_input_tokens + theirs.cache_creation_input_tokens
    assert usage.input_tokens == read
    assert usage.input_tokens_details.cached_tokens == theirs.cache_read_input_tokens
    assert usage.output_tokens == theirs.output_tokens
    assert usage.output_tokens_details.reasoning_tokens == theirs.output_tokens_details.thinking_tokens
    await model.close()


@pytest.mark.parametrize("name", ["claude-opus-5-5", "claude-haiku-4-5", "claude-sonnet-5-5"])
async def test_a_request_is_of_the_sdks_type(provider: AnthropicProvider, name: str) -> None:
    from anthropic.types.message_create_params import MessageCreateParamsStreaming

    provider.queue(
        answer(
            Thought(("Hm.",)),
            Thought(),
            Text("Look."),
            Call("lookup_order", {"order_id": "A-1"}),
            Call("lookup_order", {"order_id": "A-2"}),
        )
    )
    model = AnthropicModel(provider.settings())
    picture = ImagePart("data:image/png;base64,AAAA")
    first = ask(model=name, tools=(LOOKUP,), effort="high")
    step = entries_of(await collect(model, first))
    owed = [entry for entry in step if isinstance(entry, FunctionCall)]
    await collect(
        model,
        ask(
            UserMessage((TextPart("See"), picture, ImagePart("https://example.com/a.png"))),
            *step,
            *(FunctionResult(entry.call_id, (TextPart("shipped"), picture)) for entry in owed),
            ServerNote((TextPart("Late."),)),
            FunctionCall("call_x", "f", "{}"),
            FunctionResult("call_x", "no such order", failed=True),
            user("Go on."),
            model=name,
            tools=(LOOKUP,),
            output_schema=CLOSED,
            effort="none" if "sonnet" in name else "high",
            summary="auto",
            verbosity="low",
            service_tier="priority",
            cache_ttl="12h",
        ),
    )
    for request in provider.requests:
        validate(MessageCreateParamsStreaming, request.body)
    await model.close()


@pytest.mark.parametrize(
    "wrong",
    [
        {"messages": [{"role": "critic", "content": "x"}]},
        {"messages": [{"role": "user", "content": [{"type": "tool_result", "content": "x"}]}]},
        {"messages": [], "thinking": {"type": "sometimes"}},
        {"messages": [], "service_tier": "flex"},
    ],
)
def test_the_oracle_notices_a_wrong_request(wrong: dict[str, Any]) -> None:
    from anthropic.types.message_create_params import MessageCreateParamsStreaming

    with pytest.raises(pydantic.ValidationError):
        validate(MessageCreateParamsStreaming, {"model": "m", "max_tokens": 1, "stream": True, **wrong})
