"""The fake providers refuse what the real ones refuse."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest
from tests.providers.answers import Call, Text, Thought, answer
from tests.providers.chat import ChatProvider
from tests.providers.responses import ResponsesProvider
from tests.providers.server import KEY, FakeProvider

Body = dict[str, Any]
Change = Callable[[Body], object]

TOOL = {"type": "object", "properties": {}}
PARTS = [{"type": "input_text", "text": "two"}]
RESPONSES: Body = {
    "model": "m",
    "stream": True,
    "store": False,
    "input": [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
        {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"},
        {"type": "function_call", "call_id": "call_2", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call_1", "output": "one"},
        {
            "type": "function_call_output",
            "call_id": "call_2",
            "output": [{"type": "input_text", "text": "two"}],
        },
    ],
    "tools": [{"type": "function", "name": "f", "parameters": TOOL, "strict": False}],
}
CHAT: Body = {
    "model": "m",
    "stream": True,
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
                {"id": "call_2", "type": "function", "function": {"name": "f", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "one"},
        {"role": "tool", "tool_call_id": "call_2", "content": "two"},
    ],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": TOOL}}],
}


async def post(provider: FakeProvider, body: Body) -> tuple[int, Any]:
    url = provider.base_url + provider.PATH
    async with (
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {KEY}"}) as session,
        session.post(url, json=body) as response,
    ):
        if response.status == 200:
            return 200, await response.text()
        return response.status, await response.json()


@pytest.mark.parametrize(("kind", "body"), [(ResponsesProvider, RESPONSES), (ChatProvider, CHAT)])
async def test_a_good_request_is_answered(kind: type[FakeProvider], body: Body) -> None:
    async with kind() as provider:
        assert (await post(provider, body))[0] == 200
        assert provider.violations == []


def item(number: int, **fields: Any) -> Change:
    return lambda body: (body.get("input") or body["messages"])[number].update(fields)


def drop(number: int) -> Change:
    return lambda body: (body.get("input") or body["messages"]).pop(number)


def insert(number: int, value: Any) -> Change:
    return lambda body: (body.get("input") or body["messages"]).insert(number, value)


def field(**fields: Any) -> Change:
    return lambda body: body.update(fields)


def tool(**fields: Any) -> Change:
    return lambda body: (body["tools"][0].get("function") or body["tools"][0]).update(fields)


def call(**fields: Any) -> Change:
    return lambda body: body["messages"][2]["tool_calls"][0].update(fields)


MESSAGE = {"type": "message", "role": "user", "content": "x"}
FOREIGN = {"type": "reasoning", "id": "rs_foreign", "summary": [], "encrypted_content": "x"}

COMMON: dict[str, Change] = {
    "no stream": field(stream=False),
    "unknown field": field(previous_response_id="resp_1"),
    "bad effort": field(reasoning={"effort": "extreme"}, reasoning_effort="extreme"),
    "bad tier": field(service_tier="turbo"),
    "bad tool name": tool(name="a.b"),
    "long tool name": tool(name="a" * 65),
    "empty description": tool(description=""),
    "schema without object": tool(parameters={"type": "string"}),
    "schema without properties": tool(parameters={"type": "object"}),
    "schema that is none": tool(parameters={"type": "object", "properties": {"a": {"type": "strin"}}}),
    "same function twice": lambda body: body["tools"].append(body["tools"][0]),
    "call without a result": drop(4),
    "result twice": lambda body: insert(5, copy.deepcopy((body.get("input") or body["messages"])[4]))(body),
    "unknown role": insert(0, {"type": "message", "role": "critic", "content": "x"}),
    "empty content": insert(1, {"type": "message", "role": "user", "content": ""}),
    "no content parts": insert(1, {"type": "message", "role": "user", "content": []}),
    "no messages": lambda body: (body.get("input") or body["messages"]).clear(),
}
OF_RESPONSES: dict[str, Change] = {
    "stored": field(store=True),
    "bad include": field(include=["everything"]),
    "empty instructions": field(instructions=""),
    "long cache key": field(prompt_cache_key="x" * 65),
    "bad cache lifetime": field(prompt_cache_options={"ttl": "1h"}),
    "unnamed format": field(text={"format": {"type": "json_schema", "schema": TOOL}}),
    "open schema as strict": field(
        text={
            "format": {
                "type": "json_schema",
                "name": "o",
                "strict": True,
                "schema": {"type": "object", "properties": {"a": {"type": "string"}}},
            }
        }
    ),
    "empty part": item(0, content=[{"type": "input_text", "text": ""}]),
    "part of the wrong side": item(0, content=[{"type": "output_text", "text": "x"}]),
    "bad image": item(0, content=[{"type": "input_image", "image_url": "data:image/png;base64,%%"}]),
    "unknown field of an item": item(0, mood="good"),
    "phase of a user": item(0, phase="commentary"),
    "empty call id": item(1, call_id=""),
    "long call id": item(1, call_id="x" * 65),
    "odd call id": item(1, call_id="a:b"),
    "same call id": item(2, call_id="call_1"),
    "bad name": item(1, name=""),
    "arguments that are no object": item(1, arguments="[]"),
    "result before its call": lambda body: body["input"].insert(1, body["input"].pop(3)),
    "result of nothing": drop(1),
    "empty output": item(3, output=""),
    "foreign item id": item(1, id="fc_foreign"),
    "foreign reasoning": insert(1, FOREIGN),
    "unknown item": insert(1, {"type": "thought"}),
}
OF_CHAT: dict[str, Change] = {
    "bad stream options": field(stream_options={"include_usage": False}),
    "bad response format": field(response_format={"type": "json_schema", "json_schema": {"schema": TOOL}}),
    "empty tools": field(tools=[]),
    "late system message": insert(2, {"role": "system", "content": "x"}),
    "assistant of nothing": insert(2, {"role": "assistant", "content": None}),
    "image in a result": item(3, content=[{"type": "image_url", "image_url": {"url": "https://a.b/c"}}]),
    "empty result": item(3, content=""),
    "message between call and result": insert(3, {"role": "user", "content": "x"}),
    "result of nothing": item(3, tool_call_id="call_9"),
    "empty call id": call(id=""),
    "long call id": call(id="x" * 41),
    "same call id": call(id="call_2"),
    "arguments as an object": call(function={"name": "f", "arguments": {}}),
    "bad name": call(function={"name": "a b", "arguments": "{}"}),
    "no calls": item(2, tool_calls=[]),
    "foreign reasoning": item(2, reasoning_content="I thought."),
    "last word of the assistant": insert(5, {"role": "assistant", "content": "x"}),
}
CASES: list[tuple[type[FakeProvider], Body, str, Change]] = [
    *((ResponsesProvider, RESPONSES, name, change) for name, change in {**COMMON, **OF_RESPONSES}.items()),
    *((ChatProvider, CHAT, name, change) for name, change in {**COMMON, **OF_CHAT}.items()),
]


@pytest.mark.parametrize(
    ("kind", "body", "change"),
    [(kind, body, change) for kind, body, _, change in CASES],
    ids=[f"{kind.PROTOCOL}-{name}".replace(" ", "_") for kind, _, name, _ in CASES],
)
async def test_a_bad_request_is_refused_and_told(
    kind: type[FakeProvider], body: Body, change: Change
) -> None:
    bad = copy.deepcopy(body)
    change(bad)
    assert bad != body
    planned = answer(Text("never said"))
    async with kind(planned) as provider:
        status, told = await post(provider, bad)
        assert status == 400
        assert told["error"]["type"] == "invalid_request_error"
        assert len(provider.violations) == 1
        assert provider.unplayed == 1


async def test_reasoning_comes_back_only_as_it_was() -> None:
    async with ResponsesProvider(answer(Thought(("Hm.",)), Text("Hi."), Call("f"))) as provider:
        first = {**RESPONSES, "input": [MESSAGE], "include": ["reasoning.encrypted_content"]}
        _, stream = await post(provider, first)
        minted = provider._minted
        thought, said, called = (one.id for one in minted.values())
        assert thought in stream
        reasoning = {"type": "reasoning", "id": thought, "summary": []}
        sealed = {**reasoning, "encrypted_content": minted[thought].encrypted}
        text = [{"type": "output_text", "text": "Hi.", "annotations": []}]
        message = {"type": "message", "role": "assistant", "id": said, "status": "completed", "content": text}
        call = {"type": "function_call", "id": called, "call_id": "c", "name": "f", "arguments": "{}"}
        output = {"type": "function_call_output", "call_id": "c", "output": "x"}

        async def accepts(*items: Body, **fields: Any) -> bool:
            status, _ = await post(provider, {**first, "input": [MESSAGE, *items, MESSAGE], **fields})
            return status == 200

        assert await accepts(sealed, message, call, output)
        assert await accepts(sealed, message)
        assert not await accepts(sealed, message, model="another")
        assert not await accepts(sealed)
        assert not await accepts(reasoning, message)
        assert not await accepts({**sealed, "encrypted_content": "x"}, message)
        assert not await accepts(sealed, call, output)
        assert not await accepts(message)
        assert not await accepts(call, output)
        assert not await accepts(sealed, message, sealed, message)


async def test_it_runs_in_a_process_of_its_own() -> None:
    import asyncio
    import sys

    command = (sys.executable, "-m", "tests.providers.chat", "--deltas", "3", "--api-key", KEY)
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    url = (await process.stdout.readline()).decode().split()[-1]
    async with (
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {KEY}"}) as session,
        session.post(f"{url}/chat/completions", json=CHAT) as response,
    ):
        assert (await response.text()).count("abc ") == 3
    process.terminate()
    assert await process.wait() == 0
