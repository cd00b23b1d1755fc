"""How the options of a request are told to a provider."""

from __future__ import annotations

from typing import Any

import pytest
from tests.models.wires import LOOKUP, OPENAI_WIRES, WIRES, Wire, ask, collect
from tests.providers.chat import ChatProvider
from tests.providers.responses import ResponsesProvider

from perdure.models.chat import ChatModel
from perdure.models.chat_dialect import dialect_of
from perdure.models.messages import FunctionSpec, ModelRequest
from perdure.models.outgoing import short_call_id
from perdure.models.responses import ResponsesModel

CLOSED: dict[str, Any] = {
    "type": "object",
    "properties": {"answer": {"type": "string"}},
    "required": ["answer"],
    "additionalProperties": False,
}
OPEN: dict[str, Any] = {"type": "object", "properties": {"answer": {"type": "string"}}}


async def sent(wire: Wire, request: ModelRequest, **settings: Any) -> dict[str, Any]:
    """The body of a request that the strict provider accepted."""
    async with wire.provider() as provider:
        model = wire.model(provider.settings(**settings))
        await collect(model, request)
        await model.close()
        assert provider.violations == []
        return provider.requests[0].body


async def responses(request: ModelRequest, **settings: Any) -> dict[str, Any]:
    return await sent(Wire(ResponsesProvider, ResponsesModel), request, **settings)


async def chat(request: ModelRequest, **settings: Any) -> dict[str, Any]:
    return await sent(Wire(ChatProvider, ChatModel), request, **settings)


async def test_a_plain_responses_request_says_only_what_it_must() -> None:
    assert await responses(ask()) == {
        "model": "test-model",
        "instructions": "Be brief.",
        "input": [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello"}]}],
        "stream": True,
        "store": False,
        "include": ["reasoning.encrypted_content"],
    }


async def test_a_plain_chat_request_says_only_what_it_must() -> None:
    assert await chat(ask()) == {
        "model": "test-model",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


async def test_every_option_of_a_responses_request() -> None:
    body = await responses(
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
            "type": "function",
            "name": "lookup_order",
            "description": "Look an order up.",
            "parameters": LOOKUP.parameters,
            "strict": False,
        }
    ]
    schema = {"type": "json_schema", "name": "output", "schema": CLOSED, "strict": True}
    assert body["text"] == {"format": schema, "verbosity": "low"}
    assert body["reasoning"] == {"effort": "high", "summary": "detailed"}
    assert body["service_tier"] == "flex"
    assert body["prompt_cache_options"] == {"ttl": "12h"}
    assert body["prompt_cache_key"] == "sess_1"
    assert body["max_output_tokens"] == 2000


async def test_every_option_of_a_chat_request() -> None:
    body = await chat(
        ask(
            tools=(LOOKUP,),
            output_schema=CLOSED,
            effort="low",
            summary="auto",
            verbosity="high",
            service_tier="ultrafast",
            cache_ttl="30m",
            cache_key="sess_1",
        ),
        max_output_tokens=2000,
    )
    function = {"name": "lookup_order", "description": "Look an order up.", "parameters": LOOKUP.parameters}
    assert body["tools"] == [{"type": "function", "function": function}]
    assert body["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "output", "schema": CLOSED, "strict": True},
    }
    assert body["reasoning_effort"] == "low"
    assert body["verbosity"] == "high"
    assert body["service_tier"] == "fast"
    assert body["max_tokens"] == 2000
    assert "prompt_cache_key" not in body


@pytest.mark.parametrize("tier", ["auto", "default", "flex", "priority", "fast", "ultrafast"])
async def test_every_service_tier_is_acceptable(tier: str) -> None:
    assert (await responses(ask(service_tier=tier))).get("service_tier", "auto") == tier
    await chat(ask(service_tier=tier))


async def test_a_long_cache_key_is_shortened_alike() -> None:
    keys = [(await responses(ask(cache_key="k" * 500)))["prompt_cache_key"] for _ in range(2)]
    assert keys[0] == keys[1]
    assert len(keys[0]) <= 64


@pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)
@pytest.mark.parametrize("parameters", [{}, {"type": "object"}, {"type": "object", "properties": {}}])
async def test_functions_without_parameters(wire: Wire, parameters: dict[str, Any]) -> None:
    body = await sent(wire, ask(tools=(FunctionSpec("now", "", parameters),)))
    assert "{'type': 'object', 'properties': {}}" in str(body["tools"])


# ---- output schemas ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        (CLOSED, True),
        (OPEN, False),
        ({**CLOSED, "required": []}, False),
        ({**CLOSED, "additionalProperties": True}, False),
        ({**CLOSED, "properties": {"answer": {}}}, False),
        ({**CLOSED, "properties": {"answer": {"type": "string", "default": "x"}}}, False),
        ({**CLOSED, "properties": {"answer": {"type": "string", "minLength": 1}}}, False),
        ({**CLOSED, "properties": {"answer": {"type": "string", "format": "uuid"}}}, True),
        ({**CLOSED, "properties": {"answer": {"type": "string", "format": "iban"}}}, False),
        ({**CLOSED, "properties": {"answer": {"type": ["string", "null"], "enum": ["a", None]}}}, True),
        ({**CLOSED, "properties": {"answer": CLOSED}}, True),
        ({**CLOSED, "properties": {"answer": OPEN}}, False),
        ({**CLOSED, "properties": {"answer": {"type": "array", "items": CLOSED}}}, True),
        ({**CLOSED, "properties": {"answer": {"type": "array", "items": OPEN}}}, False),
        ({**CLOSED, "properties": {"answer": {"anyOf": [CLOSED, {"type": "null"}]}}}, True),
        ({**CLOSED, "properties": {"answer": {"anyOf": [OPEN, {"type": "null"}]}}}, False),
        ({**CLOSED, "properties": {"answer": {"oneOf": [CLOSED]}}}, False),
        ({**CLOSED, "properties": {"answer": {"$ref": "#/$defs/x"}}, "$defs": {"x": CLOSED}}, True),
        ({**CLOSED, "properties": {"answer": {"$ref": "#/$defs/x"}}, "$defs": {"x": OPEN}}, False),
        ({**CLOSED, "properties": {"answer": {"$ref": "#", "title": "x"}}}, False),
    ],
)
async def test_a_schema_is_enforced_where_strict_mode_takes_it(schema: dict[str, Any], strict: bool) -> None:
    for wire in OPENAI_WIRES.values():
        body = await sent(wire, ask(output_schema=schema))
        wanted = body["text"]["format"] if "text" in body else body["response_format"]["json_schema"]
        assert wanted["schema"] == schema
        assert wanted["strict"] is strict


async def test_a_list_of_an_output_schema_says_what_is_in_it() -> None:
    schema = {**CLOSED, "properties": {"answer": {"type": "array"}}}
    for wire in OPENAI_WIRES.values():
        body = await sent(wire, ask(output_schema=schema))
        wanted = body["text"]["format"] if "text" in body else body["response_format"]["json_schema"]
        assert wanted["schema"]["properties"] == {"answer": {"type": "array", "items": {}}}
        assert wanted["strict"] is False


async def test_an_output_schema_that_chooses_at_its_root_is_asked_for_in_words() -> None:
    for wire in OPENAI_WIRES.values():
        body = await sent(wire, ask(output_schema={**CLOSED, "anyOf": [{"required": ["answer"]}]}))
        assert "text" not in body
        assert "response_format" not in body
        assert '"anyOf":[{"required":["answer"]}]' in str(body)


@pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)
async def test_a_schema_the_model_cannot_enforce_is_asked_for_in_words(wire: Wire) -> None:
    settings = {"model": {"mine": {"upstream": "test-model", "structured_output": False}}}
    body = await sent(wire, ask(output_schema=CLOSED), **settings)
    assert "text" not in body
    assert "response_format" not in body
    assert "output_config" not in body
    assert "Be brief.\\n\\nYour final answer" in str(body)
    assert '"additionalProperties":false' in str(body)


# ---- dialects ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base_url", "field", "length"),
    [
        ("https://api.openai.com/v1", "max_completion_tokens", 29),
        ("https://mine.openai.azure.com/openai/v1", "max_completion_tokens", 29),
        ("https://api.mistral.ai/v1", "max_tokens", 9),
        ("http://127.0.0.1:11434/v1", "max_tokens", 29),
        ("https://notopenai.com/v1", "max_tokens", 29),
    ],
)
def test_dialects_by_address(base_url: str, field: str, length: int) -> None:
    dialect = dialect_of(base_url)
    assert dialect.limit_field == field
    assert len(dialect.call_id("call_" + "a" * 24)) == length


def test_short_call_ids_are_stable_and_distinct() -> None:
    ids = [short_call_id(f"call_{number}") for number in range(10_000)]
    assert ids == [short_call_id(f"call_{number}") for number in range(10_000)]
    assert len(set(ids)) == len(ids)
    assert all(len(one) == 9 and one.isalnum() for one in ids)
