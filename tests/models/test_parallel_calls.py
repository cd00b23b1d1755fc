"""One call at a time, asked of each provider in its own way."""

from __future__ import annotations

from typing import Any

import pytest
from tests.models.wires import LOOKUP, WIRES, Wire, ask, calls_of, collect, fail, user
from tests.providers.answers import Call, Refusal, answer
from tests.providers.chat import ChatProvider

from perdure.models.chat import ChatModel
from perdure.models.gemini_body import ONE_CALL
from perdure.models.messages import Entry, FunctionCall, FunctionResult, ImagePart, TextPart

SINGLE = {"mine": {"upstream": "test-model", "parallel_calls": False}}
PICTURE = ImagePart("data:image/png;base64,AAAA")
PARALLEL: tuple[Entry, ...] = (
    user("Where are they?"),
    FunctionCall("call_1", "lookup_order", '{"order_id":"1"}'),
    FunctionCall("call_2", "lookup_order", '{"order_id":"2"}'),
    FunctionResult("call_2", (TextPart("here"), PICTURE)),
    FunctionResult("call_1", "there"),
)


async def sent(wire: Wire, *entries: Entry, tools: bool = True, **settings: Any) -> dict[str, Any]:
    async with wire.provider() as provider:
        model = wire.model(provider.settings(**settings))
        await collect(model, ask(*entries, tools=(LOOKUP,) if tools else ()))
        await model.close()
        assert provider.violations == []
        return provider.requests[0].body


@pytest.mark.parametrize("name", ["responses", "chat"])
async def test_openai_is_asked_by_a_parameter(name: str) -> None:
    assert (await sent(WIRES[name], model=SINGLE))["parallel_tool_calls"] is False
    assert "parallel_tool_calls" not in await sent(WIRES[name], model=SINGLE, tools=False)


async def test_anthropic_is_asked_by_its_tool_choice() -> None:
    wire = WIRES["anthropic"]
    asked = (await sent(wire, model=SINGLE))["tool_choice"]
    assert asked == {"type": "auto", "disable_parallel_tool_use": True}
    assert "tool_choice" not in await sent(wire, model=SINGLE, tools=False)
    # Calls of the past need tools beside them; there the choice is none.
    assert (await sent(wire, *PARALLEL, model=SINGLE, tools=False))["tool_choice"] == {"type": "none"}


async def test_gemini_is_asked_in_words() -> None:
    wire = WIRES["gemini"]
    told = (await sent(wire, model=SINGLE))["systemInstruction"]["parts"][0]["text"]
    assert told == f"Be brief.\n\n{ONE_CALL}"
    assert ONE_CALL not in str(await sent(wire, model=SINGLE, tools=False))


@pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)
async def test_nothing_is_asked_otherwise(wire: Wire) -> None:
    for settings in ({}, {"model": {"mine": {"upstream": "test-model", "parallel_calls": True}}}):
        body = str(await sent(wire, **settings))
        assert "parallel" not in body
        assert ONE_CALL not in body


@pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)
async def test_several_calls_that_come_anyway_are_taken(wire: Wire) -> None:
    async with wire.provider() as provider:
        model = wire.model(provider.settings(model=SINGLE))
        provider.queue(answer(Call("lookup_order", {"order_id": "1"}), Call("lookup_order")))
        assert len(calls_of(await collect(model, ask(tools=(LOOKUP,))))) == 2
        await model.close()


@pytest.mark.parametrize("wire", WIRES.values(), ids=WIRES)
async def test_parallel_calls_of_the_past_are_accepted(wire: Wire) -> None:
    await sent(wire, *PARALLEL, model=SINGLE)


@pytest.mark.parametrize("name", ["responses", "chat"])
async def test_a_model_that_does_not_know_the_wish_is_not_asked_again(name: str) -> None:
    said = "Unsupported parameter: 'parallel_tool_calls' is not supported with this model."
    wire = WIRES[name]
    async with wire.provider() as provider:
        model = wire.model(provider.settings(model=SINGLE))
        refusal = Refusal(400, "unsupported_parameter", said, param="parallel_tool_calls")
        provider.queue(refusal)
        _, error = await fail(model, ask(tools=(LOOKUP,)))
        assert error.retryable
        await collect(model, ask(tools=(LOOKUP,)))
        assert "parallel_tool_calls" not in provider.requests[-1].body
        await model.close()


async def test_a_template_with_single_calls_sees_no_two_in_one_message() -> None:
    """A session with parallel calls in it goes on with a model whose chat template fails on them."""
    async with ChatProvider(single_calls=True) as provider:
        model = ChatModel(provider.settings(model=SINGLE))
        for settled in (0, len(PARALLEL)):
            entries = (*PARALLEL, user("Thanks."))
            await collect(model, ask(*entries, tools=(LOOKUP,), cache_key="s", settled=settled))
            messages = provider.requests[-1].body["messages"]
            roles = [message["role"] for message in messages]
            expected = ["system", "user", "assistant", "tool", "assistant", "tool", "user", "user"]
            assert roles == expected
            answered = [message["tool_call_id"] for message in messages if message["role"] == "tool"]
            assert answered == ["call_1", "call_2"]
        assert provider.violations == []
        await model.close()
