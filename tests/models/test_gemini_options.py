"""How the options of a request are told to Gemini, and what a refusal teaches."""

from __future__ import annotations

from typing import Any

import pytest
from tests.models.wires import LOOKUP, ask, collect, fail, text_of
from tests.providers.answers import Refusal, Text, answer
from tests.providers.gemini import GeminiProvider
from tests.providers.gemini_rules import ModelRules

from perdure.config.settings import ProviderSettings, Settings
from perdure.models.gemini import GeminiModel
from perdure.models.messages import FunctionSpec, ModelRequest
from perdure.models.registry import Registry

CLOSED: dict[str, Any] = {
    "type": "object",
    "properties": {"answer": {"type": ["string", "null"]}},
    "required": ["answer"],
    "additionalProperties": False,
}
OLD = ModelRules(signed_calls=False, levels=False, schema_with_tools=False)


async def sent(request: ModelRequest, rules: ModelRules | None = None, **settings: Any) -> dict[str, Any]:
    """The body of a request that the strict provider accepted."""
    async with GeminiProvider(rules=rules) as provider:
        model = GeminiModel(provider.settings(**settings))
        await collect(model, request)
        await model.close()
        assert provider.violations == []
        return provider.requests[0].body


async def test_a_plain_request_says_only_what_it_must() -> None:
    assert await sent(ask()) == {
        "model": "test-model",
        "stream": True,
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "contents": [{"role": "user", "parts": [{"text": "Hello"}]}],
    }


async def test_every_option_of_a_request() -> None:
    body = await sent(
        ask(
            tools=(LOOKUP,),
            output_schema=CLOSED,
            effort="high",
            summary="detailed",
            verbosity="low",
            service_tier="flex",
            cache_ttl="12h",
            cache_key="sess_1",
        ),
        max_output_tokens=2000,
    )
    assert body["tools"] == [
        {
            "functionDeclarations": [
                {
                    "name": "lookup_order",
                    "description": "Look an order up.",
                    "parametersJsonSchema": LOOKUP.parameters,
                }
            ]
        }
    ]
    assert body["toolConfig"] == {"functionCallingConfig": {"mode": "AUTO"}}
    assert body["generationConfig"] == {
        "maxOutputTokens": 2000,
        "thinkingConfig": {"includeThoughts": True, "thinkingLevel": "HIGH"},
        "responseMimeType": "application/json",
        "responseJsonSchema": CLOSED,
    }
    assert body["serviceTier"] == "flex"
    assert body["systemInstruction"]["parts"][0]["text"].startswith("Be brief.\n\nKeep your answers short")


@pytest.mark.parametrize(
    ("model", "effort", "thinking"),
    [
        ("gemini-3-flash-preview", "minimal", {"thinkingLevel": "MINIMAL"}),
        ("gemini-3.1-pro-preview", "low", {"thinkingLevel": "LOW"}),
        ("gemini-flash-latest", "xhigh", {"thinkingLevel": "XHIGH"}),
        ("gemini-flash-latest", "none", {"thinkingBudget": 0}),
    ],
)
async def test_newer_models_think_by_levels(model: str, effort: Any, thinking: dict[str, Any]) -> None:
    body = await sent(ask(model=model, effort=effort))
    assert body["generationConfig"] == {"thinkingConfig": thinking}


@pytest.mark.parametrize(
    ("effort", "budget"), [("none", 0), ("minimal", 512), ("low", 1024), ("medium", 8192), ("high", 24_576)]
)
async def test_gemini_2_5_thinks_by_budgets(effort: Any, budget: int) -> None:
    body = await sent(ask(model="gemini-2.5-flash", effort=effort), OLD)
    assert body["generationConfig"] == {"thinkingConfig": {"thinkingBudget": budget}}


async def test_a_model_that_does_not_think_is_not_asked_to() -> None:
    body = await sent(ask(model="gemini-2.0-flash", effort="none", summary="auto"), OLD)
    assert "generationConfig" not in body


async def test_a_model_that_takes_no_schema_beside_functions_is_asked_in_words() -> None:
    body = await sent(ask(model="gemini-2.5-pro", tools=(LOOKUP,), output_schema=CLOSED), OLD)
    assert "generationConfig" not in body
    assert '"additionalProperties":false' in body["systemInstruction"]["parts"][0]["text"]
    body = await sent(ask(model="gemini-2.5-pro", output_schema=CLOSED), OLD)
    assert body["generationConfig"]["responseJsonSchema"] == CLOSED


async def test_a_schema_the_settings_say_cannot_be_enforced_is_asked_for_in_words() -> None:
    settings = {"model": {"mine": {"upstream": "test-model", "structured_output": False}}}
    body = await sent(ask(output_schema=CLOSED), **settings)
    assert "generationConfig" not in body
    assert '"additionalProperties":false' in body["systemInstruction"]["parts"][0]["text"]


@pytest.mark.parametrize("parameters", [{}, {"type": "object"}, {"type": "object", "properties": {}}])
async def test_functions_without_parameters(parameters: dict[str, Any]) -> None:
    body = await sent(ask(tools=(FunctionSpec("f", "", parameters),)))
    (function,) = body["tools"][0]["functionDeclarations"]
    assert function == {"name": "f", "parametersJsonSchema": {"type": "object", "properties": {}}}


# ---- lessons -----------------------------------------------------------------------------------


async def second(rules: ModelRules, request: ModelRequest) -> dict[str, Any]:
    """The body of the request after one that was refused, which is accepted; so is the next one."""
    async with GeminiProvider(rules=rules) as provider:
        model = GeminiModel(provider.settings())
        _, error = await fail(model, request)
        assert (error.code, error.retryable) == ("invalid_request", True)
        for _ in range(2):
            await collect(model, request)
        await model.close()
        assert len(provider.violations) == 1
        return provider.requests[1].body


async def test_an_endpoint_without_json_schema_gets_its_own_subset() -> None:
    free = FunctionSpec("free", "", {"type": "object", "minProperties": 1})
    request = ask(tools=(LOOKUP, free), output_schema=CLOSED)
    body = await second(ModelRules(json_schema=False), request)
    lookup, without = body["tools"][0]["functionDeclarations"]
    assert lookup["parameters"] == {
        "type": "OBJECT",
        "properties": {"order_id": {"type": "STRING"}},
        "required": ["order_id"],
    }
    assert without == {"name": "free"} or "minProperties" in without["description"]
    assert body["generationConfig"]["responseSchema"] == {
        "type": "OBJECT",
        "properties": {"answer": {"type": "STRING", "nullable": True}},
        "required": ["answer"],
    }


async def test_a_schema_beside_functions_that_is_refused_is_asked_for_in_words() -> None:
    body = await second(ModelRules(schema_with_tools=False), ask(tools=(LOOKUP,), output_schema=CLOSED))
    assert "generationConfig" not in body
    assert "JSON Schema" in body["systemInstruction"]["parts"][0]["text"]


async def test_a_model_without_levels_of_thinking_gets_a_budget() -> None:
    body = await second(ModelRules(levels=False), ask(effort="low"))
    assert body["generationConfig"]["thinkingConfig"] == {"thinkingBudget": 1024}


async def test_other_models_are_not_concerned_by_a_refusal() -> None:
    async with GeminiProvider() as provider:
        model = GeminiModel(provider.settings())
        provider.queue(Refusal(400, None, "Thinking level is not supported for this model."))
        await fail(model, ask(effort="low"))
        await collect(model, ask(effort="low", model="another"))
        assert provider.requests[1].body["generationConfig"]["thinkingConfig"] == {"thinkingLevel": "LOW"}
        await model.close()


async def test_what_is_no_lesson_is_final() -> None:
    async with GeminiProvider() as provider:
        model = GeminiModel(provider.settings())
        for message in ("Request contains an invalid argument.", "Invalid thinking budget."):
            provider.queue(Refusal(400, None, message))
            _, error = await fail(model, ask(tools=(LOOKUP,), output_schema=CLOSED, effort="low"))
            assert (error.code, error.retryable) == ("invalid_request", False)
        await model.close()


# ---- address -----------------------------------------------------------------------------------


async def test_the_model_is_part_of_the_address_and_the_key_of_a_header() -> None:
    async with GeminiProvider(answer(Text("Hi."))) as provider:
        model = GeminiModel(provider.settings())
        assert text_of(await collect(model, ask(model="models/gemini 3"))) == "Hi."
        recorded = provider.requests[0]
        assert recorded.body["model"] == "gemini 3"
        assert recorded.headers["x-goog-api-key"] == "test-key"
        assert "Authorization" not in recorded.headers
        await model.close()


async def test_an_address_without_a_path_gets_the_version() -> None:
    async with GeminiProvider() as provider:
        bare = provider.base_url.removesuffix("/v1")
        model = GeminiModel(provider.settings(base_url=bare))
        _, error = await fail(model)
        # The fake has only /v1: /v1beta is not found there.
        assert error.status == 404
        assert provider.requests == []
        await model.close()


# ---- what a name tells -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "window", "efforts"),
    [
        ("gemini-3-flash-preview", 1_048_576, ("minimal", "low", "medium", "high")),
        ("gemini-3.1-pro-preview", 1_048_576, ("low", "medium", "high")),
        ("google/gemini-2.5-flash-lite", 1_048_576, ("none", "minimal", "low", "medium", "high")),
        ("gemini-2.5-pro", 1_048_576, ("minimal", "low", "medium", "high")),
        ("gemini-2.0-flash", 1_048_576, ("none",)),
        ("gemini-4-pro", 1_048_576, None),
        ("gemini-flash-latest", None, None),
        ("my-own", None, None),
    ],
)
def test_a_name_tells_what_a_model_can_do(
    name: str, window: int | None, efforts: tuple[str, ...] | None
) -> None:
    overrides = {"mine": {"upstream": name, "efforts": ["max"], "context_window": 5000}}
    provider = ProviderSettings.model_validate(
        {"name": "g", "protocol": "gemini", "base_url": "http://127.0.0.1:9/v1", "model": overrides}
    )
    registry = Registry(Settings(provider=(provider,)))
    found = registry.resolve(f"g/{name}").capabilities
    assert (found.context_window, found.efforts) == (window, efforts)
    assert found.service_tiers == ("auto", "default", "flex", "priority")
    mine = registry.resolve("mine").capabilities
    assert (mine.context_window, mine.efforts) == (5000, ("max",))
