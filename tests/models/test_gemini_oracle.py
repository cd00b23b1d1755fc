"""Google's own SDK agrees: with our requests, and with what we read from a stream."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import AsyncIterator
from typing import Any

import pydantic
import pytest
from tests.models.wires import (
    LOOKUP,
    ask,
    calls_of,
    collect,
    entries_of,
    fail,
    finish_of,
    reasoning_of,
    text_of,
    user,
)
from tests.providers.answers import Answer, Call, Text, Thought, Usage, answer
from tests.providers.gemini import GeminiProvider
from tests.providers.gemini_rules import ModelRules
from tests.providers.server import KEY

from perdure.models.gemini import GeminiModel
from perdure.models.messages import (
    Entry,
    FunctionCall,
    FunctionResult,
    ImagePart,
    ServerNote,
    TextPart,
    UserMessage,
)

pytest.importorskip(
    "google.genai", reason="google-genai is not installed: nothing checks our Gemini requests"
)

genai: Any = importlib.import_module("google.genai")
types: Any = importlib.import_module("google.genai.types")

PICTURE = ImagePart("data:image/png;base64,iVBORw0KGgo=")
USAGE = Usage(1000, 50, cached=900, reasoning=30)
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "a": {"type": ["string", "null"], "enum": ["x", None]},
        "b": {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "number"}}]},
    },
    "required": ["a"],
    "additionalProperties": False,
}
ANSWERS: dict[str, Answer] = {
    "text": answer(Text("Hello, world! 😀", chunks=3), usage=USAGE),
    "signed text": answer(Text("Hello.", chunks=3), usage=USAGE, quirks=("signed_text", "late_usage")),
    "calls": answer(
        Text("Looking."),
        Call("lookup_order", {"order_id": "A-1042", "n": [1, 2.5, None, {"x": True}]}),
        Call("lookup_order", {"order_id": "A-1043"}),
        usage=USAGE,
    ),
    "calls apart": answer(Call("f"), Call("g", id=""), usage=USAGE, quirks=("split_calls",)),
    "thoughts": answer(Thought(("One. ", "Two.")), Text("Done."), usage=USAGE),
    "no usage": answer(Text("Hi."), usage=None),
}


@pytest.fixture
async def provider() -> AsyncIterator[GeminiProvider]:
    async with GeminiProvider() as provider:
        yield provider
        assert provider.violations == []


@pytest.fixture
async def twin() -> AsyncIterator[GeminiProvider]:
    """A provider for the SDK, which spells some fields in another way that the real one takes, too."""
    async with GeminiProvider(strict=False) as provider:
        yield provider


def config_of(body: dict[str, Any]) -> Any:
    """Our settings as the SDK's: it has them all in one place."""
    beside = ("systemInstruction", "tools", "toolConfig", "serviceTier")
    fields = {**body.get("generationConfig", {}), **{key: body[key] for key in beside if key in body}}
    return types.GenerateContentConfig.model_validate(
        {**fields, "automaticFunctionCalling": {"disable": True}}
    )


async def chunks_of(provider: GeminiProvider, body: dict[str, Any]) -> list[Any]:
    """What the SDK reads when it sends what we have sent."""
    contents = [types.Content.model_validate(content) for content in body["contents"]]
    options = types.HttpOptions(base_url=provider.base_url.removesuffix("/v1"), api_version="v1")
    async with genai.Client(api_key=KEY, http_options=options).aio as client:
        stream = await client.models.generate_content_stream(
            model=body["model"], contents=contents, config=config_of(body)
        )
        return [chunk async for chunk in stream]


def parts_of(chunks: list[Any]) -> list[Any]:
    candidates = [chunk.candidates[0] for chunk in chunks if chunk.candidates]
    return [part for candidate in candidates if candidate.content for part in candidate.content.parts or ()]


@pytest.mark.parametrize("name", ANSWERS)
async def test_chunks_are_read_as_the_sdk_reads_them(
    provider: GeminiProvider, twin: GeminiProvider, name: str
) -> None:
    provider.queue(ANSWERS[name])
    twin.queue(ANSWERS[name])
    model = GeminiModel(provider.settings())
    ours = await collect(model, ask(tools=(LOOKUP,), summary="auto"))
    chunks = await chunks_of(twin, provider.requests[0].body)
    parts = parts_of(chunks)
    said = "".join(part.text or "" for part in parts if not part.thought)
    if said:
        assert text_of(ours) == said
    thoughts = "".join(part.text for part in parts if part.thought)
    if thoughts:
        assert "".join(reasoning_of(ours).summary) == thoughts
    called = [part.function_call for part in parts if part.function_call]
    assert [(name, json.loads(text)) for name, text in calls_of(ours)] == [
        (call.name, call.args) for call in called
    ]
    told = [chunk.usage_metadata for chunk in chunks if chunk.usage_metadata]
    usage = finish_of(ours).usage
    assert (usage is None) == (not told)
    if usage is not None:
        counts = told[-1]
        assert usage.input_tokens == counts.prompt_token_count
        assert usage.total_tokens == counts.total_token_count
        assert usage.input_tokens_details.cached_tokens == counts.cached_content_token_count
        assert usage.output_tokens_details.reasoning_tokens == counts.thoughts_token_count
    assert finish_of(ours).response_id
    await model.close()


def rich(answered: list[Entry]) -> list[Entry]:
    """A history with every kind of entry."""
    owed = [entry for entry in answered if isinstance(entry, FunctionCall)]
    return [
        UserMessage((TextPart("See"), PICTURE, ImagePart("https://example.com/a.png"))),
        *answered,
        *(FunctionResult(entry.call_id, (TextPart("shipped"), PICTURE)) for entry in owed),
        FunctionCall("call_x", "f", "{}"),
        FunctionResult("call_x", "no such order", failed=True),
        ServerNote((TextPart("Late."),)),
        user("Go on."),
    ]


OPTIONS: dict[str, Any] = {
    "tools": (LOOKUP,),
    "output_schema": SCHEMA,
    "effort": "high",
    "summary": "auto",
    "verbosity": "low",
    "service_tier": "priority",
}


def as_we_spell(value: Any) -> Any:
    """What the SDK has sent, in camel case throughout and without the role that instructions have anyway."""
    if isinstance(value, list):
        return [as_we_spell(one) for one in value]
    if not isinstance(value, dict):
        return value
    spelt = {
        re.sub("_([a-z])", lambda found: found[1].upper(), key): one
        if key in ("args", "parameters_json_schema", "responseJsonSchema", "response")
        else as_we_spell(one)
        for key, one in value.items()
    }
    if "systemInstruction" in spelt:
        spelt["systemInstruction"].pop("role", None)
    return spelt


async def test_the_sdk_sends_what_we_send(provider: GeminiProvider, twin: GeminiProvider) -> None:
    provider.queue(
        answer(Text("Look."), Call("lookup_order", {"order_id": "A-1"}), Call("lookup_order", {}, id=""))
    )
    model = GeminiModel(provider.settings(max_output_tokens=5000))
    answered = entries_of(await collect(model))
    await collect(model, ask(*rich(answered), **OPTIONS))
    ours = provider.requests[-1].body
    await chunks_of(twin, ours)
    assert as_we_spell(twin.requests[-1].body) == ours
    await model.close()


async def test_reduced_schemas_are_of_the_sdks_type() -> None:
    async with GeminiProvider(rules=ModelRules(json_schema=False)) as provider:
        model = GeminiModel(provider.settings())
        await fail(model, ask(**OPTIONS))
        await collect(model, ask(**OPTIONS))
        body = provider.requests[-1].body
        types.Schema.model_validate(body["generationConfig"]["responseSchema"])
        (tool,) = body["tools"]
        assert types.Tool.model_validate(tool).function_declarations[0].parameters is not None
        await model.close()


def test_the_oracle_notices_a_wrong_request() -> None:
    with pytest.raises(pydantic.ValidationError):
        types.Content.model_validate({"role": "user", "parts": [{"txt": "x"}]})
    with pytest.raises(pydantic.ValidationError):
        types.Schema.model_validate({"type": "OBJECT", "const": 1})
