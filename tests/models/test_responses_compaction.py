"""A provider's own compaction: what is asked for, what is kept of it, and to whom it is sent back."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pydantic
import pytest
from openai.types.responses import CompactedResponse
from openai.types.responses.response_compact_params import ResponseCompactParams
from openai.types.responses.response_create_params import ResponseCreateParamsStreaming
from tests.models.test_sdk_oracle import rich_request, sdk, validate
from tests.models.wires import LOOKUP, ask, collect, entries_of, fail, user
from tests.providers.answers import Call, Refusal, Text, Thought, answer
from tests.providers.anthropic import AnthropicProvider
from tests.providers.chat import ChatProvider
from tests.providers.gemini import GeminiProvider
from tests.providers.responses import ResponsesProvider
from tests.providers.server import FakeProvider

from perdure.models.anthropic import AnthropicModel
from perdure.models.chat import ChatModel
from perdure.models.errors import ModelError
from perdure.models.gemini import GeminiModel
from perdure.models.messages import (
    CompactedHistory,
    CompactingModel,
    Entry,
    FunctionCall,
    FunctionResult,
    ImagePart,
    Model,
    ServerNote,
    TextPart,
    UserMessage,
)
from perdure.models.responses import ResponsesModel

OUTLINE = "What happened: the order was sent."


@pytest.fixture
async def provider() -> AsyncIterator[ResponsesProvider]:
    async with ResponsesProvider() as provider:
        yield provider


def note(compacted: CompactedHistory) -> ServerNote:
    return ServerNote((TextPart(OUTLINE),), compacted)


async def history(provider: ResponsesProvider, model: ResponsesModel) -> list[Entry]:
    """A turn with reasoning, a call and its result."""
    provider.queue(answer(Thought(("Hm.",)), Text("Look."), Call("lookup_order", {"order_id": "A-1"})))
    said = entries_of(await collect(model, ask(user("Where is A-1?"), tools=(LOOKUP,))))
    done = [FunctionResult(entry.call_id, "sent") for entry in said if isinstance(entry, FunctionCall)]
    return [user("Where is A-1?"), *said, *done]


async def compact(model: ResponsesModel, *entries: Entry, **fields: Any) -> CompactedHistory:
    compacted, _ = await model.compact(ask(*entries, **fields))
    return compacted


async def refused(model: ResponsesModel, *entries: Entry) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await model.compact(ask(*entries))
    return caught.value


async def test_a_compaction_is_asked_for_and_sent_back_whole(provider: ResponsesProvider) -> None:
    model = ResponsesModel(provider.settings())
    entries = await history(provider, model)
    compacted, finished = await model.compact(ask(*entries, tools=(LOOKUP,), cache_key="sess_1"))
    (asked,) = provider.compactions
    assert asked.headers["Accept"] == "application/json"
    assert set(asked.body) == {"model", "input", "instructions", "prompt_cache_key"}
    kinds = [item["type"] for item in asked.body["input"]]
    assert kinds == ["message", "reasoning", "message", "function_call", "function_call_output"]
    assert finished.usage is not None
    assert finished.usage.input_tokens > 0
    await collect(model, ask(note(compacted), user("And now?")))
    sent = provider.requests[-1].body["input"]
    assert [item["type"] for item in sent] == ["message", "compaction", "message"]
    assert sent[:2] == list(compacted.native.data["items"])
    assert OUTLINE not in str(sent)
    # What was compacted can be compacted again.
    again = await compact(model, note(compacted), user("And now?"))
    await collect(model, ask(note(again), user("Go on.")))
    assert provider.violations == []
    await model.close()


async def test_the_sdk_reads_the_answer_and_can_send_the_request(provider: ResponsesProvider) -> None:
    model = ResponsesModel(provider.settings())
    entries = await history(provider, model)
    request = rich_request([entry for entry in entries if not isinstance(entry, FunctionResult)])
    compacted, finished = await model.compact(request)
    body = provider.compactions[0].body
    validate(ResponseCompactParams, body)
    async with sdk(provider) as client:
        theirs = await client.responses.compact(**body)
    assert provider.compactions[1].body == body
    assert isinstance(theirs, CompactedResponse)
    ours = compacted.native.data["items"]
    assert [item.type for item in theirs.output] == [item["type"] for item in ours]
    assert finished.usage is not None
    assert finished.usage.total_tokens == theirs.usage.total_tokens
    await collect(model, ask(note(compacted), user()))
    validate(ResponseCreateParamsStreaming, provider.requests[-1].body)
    assert provider.violations == []
    await model.close()


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (ResponseCompactParams, {"input": [{"type": "compaction"}]}),
        (CompactedResponse, {"id": "resp_1", "object": "response", "created_at": 1, "output": []}),
    ],
)
def test_the_oracle_notices_what_is_wrong(kind: Any, wrong: dict[str, Any]) -> None:
    with pytest.raises(pydantic.ValidationError):
        validate(kind, {"model": "m", **wrong})


@pytest.mark.parametrize("other", ["model", "provider"])
async def test_another_model_is_told_in_words(provider: ResponsesProvider, other: str) -> None:
    model = ResponsesModel(provider.settings())
    compacted = await compact(model, user("Hi"))
    if other == "model":
        await collect(model, ask(note(compacted), user(), model="other-model"))
    else:
        stranger = ResponsesModel(provider.settings("elsewhere"))
        await collect(stranger, ask(note(compacted), user()))
        await stranger.close()
    sent = provider.requests[-1].body["input"]
    assert [item["type"] for item in sent] == ["message", "message"]
    assert OUTLINE in str(sent)
    assert provider.violations == []
    await model.close()


@pytest.mark.parametrize(
    ("kind", "adapter"),
    [(ChatProvider, ChatModel), (AnthropicProvider, AnthropicModel), (GeminiProvider, GeminiModel)],
)
async def test_other_protocols_are_told_in_words(
    provider: ResponsesProvider, kind: type[FakeProvider], adapter: Any
) -> None:
    model = ResponsesModel(provider.settings())
    compacted = await compact(model, user("Hi"))
    await model.close()
    async with kind() as other:
        target: Model = adapter(other.settings())
        assert not isinstance(target, CompactingModel)
        await collect(target, ask(note(compacted), user()))
        assert OUTLINE in str(other.requests[-1].body)
        assert compacted.native.data["id"] not in str(other.requests[-1].body)
        assert other.violations == []
        await target.close()


async def test_a_provider_that_forgot_its_compaction_is_told_in_words(provider: ResponsesProvider) -> None:
    model = ResponsesModel(provider.settings())
    compacted = await compact(model, user("Hi"))
    provider.forget()
    request = ask(note(compacted), user())
    _, error = await fail(model, request)
    assert error.retryable
    await collect(model, request)
    assert OUTLINE in str(provider.requests[-1].body["input"])
    # Nor is it sent to be compacted again.
    await compact(model, note(compacted), user())
    assert len(provider.violations) == 1
    await model.close()


@pytest.mark.parametrize(
    "message",
    [
        "The encrypted content gAAA...DQ== could not be verified.",
        "The encrypted content for item cmp_1 could not be verified. Reason: it could not be decrypted.",
    ],
)
async def test_both_wordings_of_a_change_of_keys_are_understood(
    provider: ResponsesProvider, message: str
) -> None:
    model = ResponsesModel(provider.settings())
    compacted = await compact(model, user("Hi"))
    refusal = Refusal(400, "invalid_encrypted_content", message)
    provider.refusals.append(refusal)
    assert (await refused(model, note(compacted), user())).retryable
    await compact(model, note(compacted), user())
    assert "compaction" not in [item["type"] for item in provider.compactions[-1].body["input"]]
    await model.close()


@pytest.mark.parametrize(
    ("refusal", "retryable"),
    [
        (Refusal(404, None, "Invalid URL (POST /v1/responses/compact)"), False),
        (Refusal(429, "rate_limit_exceeded", "Slow down."), True),
        (Refusal(500, None, "Oops."), True),
        (Refusal(400, "context_length_exceeded", "Your input exceeds the context window."), False),
        (Refusal(200, body=b'{"object": "response.compaction", "output": []}'), False),
        (Refusal(200, body=b'{"output": [{"type": "compaction", "encrypted_content": null}]}'), False),
        (Refusal(200, body=b'{"output": null}'), False),
        (Refusal(200, body=b'{"error": {"code": "server_error", "message": "Oops."}}'), True),
        (Refusal(200, body=b"[]"), False),
        (Refusal(200, body=b"not JSON"), True),
        (Refusal(200, body=b"<html>", content_type="text/html"), False),
    ],
)
async def test_what_is_no_compaction_is_an_error(
    provider: ResponsesProvider, refusal: Refusal, retryable: bool
) -> None:
    model = ResponsesModel(provider.settings())
    provider.refusals.append(refusal)
    error = await refused(model, user())
    assert error.retryable is retryable
    # It leaves nothing behind.
    assert (await compact(model, user())).tokens > 0
    await model.close()


async def test_a_compaction_without_an_id_is_sent_without_one(provider: ResponsesProvider) -> None:
    model = ResponsesModel(provider.settings())
    body = b'{"output": [{"type": "compaction", "encrypted_content": "gAAA", "created_by": null}]}'
    provider.refusals.append(Refusal(200, body=body))
    compacted = await compact(model, user())
    provider.strict = False
    await collect(model, ask(note(compacted), user()))
    sent = provider.requests[-1].body["input"]
    assert sent[0] == {"type": "compaction", "encrypted_content": "gAAA"}
    await model.close()


async def test_its_size_counts_images_as_images_and_no_more_than_was_written(
    provider: ResponsesProvider,
) -> None:
    model = ResponsesModel(provider.settings())
    provider.compacted_bytes = 400
    plain = await compact(model, user("Hi"))
    data = ImagePart("data:image/png;base64," + "A" * 40_000)
    pictured = await compact(model, UserMessage((TextPart("Hi"), data)))
    assert 1000 < pictured.tokens - plain.tokens < 2000
    said = await compact(model, user("word " * 4000))
    assert 4900 < said.tokens - plain.tokens < 5100
    provider.compacted_bytes = 40_000
    assert (await compact(model, user("Hi"))).tokens < 10_200
    await model.close()
