"""The fake of Anthropic's API refuses what the real one refuses."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest
from tests.providers.answers import Call, Text, Thought, answer
from tests.providers.anthropic import AnthropicProvider
from tests.providers.server import KEY

Body = dict[str, Any]
Change = Callable[[Body], object]

HEADERS = {"x-api-key": KEY, "anthropic-version": "2026-10-21"}
CALLS = [{"type": "tool_use", "id": f"toolu_{n}", "name": "f", "input": {}} for n in (1, 2)]
RESULTS = [{"type": "tool_result", "tool_use_id": f"toolu_{n}", "content": "done"} for n in (1, 2)]
IMAGE = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
GOOD: Body = {
    "model": "m",
    "max_tokens": 4096,
    "stream": True,
    "system": [{"type": "text", "text": "Be brief."}],
    "messages": [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": [{"type": "text", "text": "I look."}, *CALLS]},
        {"role": "user", "content": [*RESULTS, {"type": "image", "source": IMAGE}]},
    ],
    "tools": [{"name": "f", "input_schema": {"type": "object"}}],
}


async def post(provider: AnthropicProvider, body: Body, headers: dict[str, str] = HEADERS) -> tuple[int, Any]:
    url = provider.base_url + provider.PATH
    async with aiohttp.ClientSession(headers=headers) as session, session.post(url, json=body) as response:
        if response.status == 200:
            return 200, await response.text()
        return response.status, await response.json()


def field(**fields: Any) -> Change:
    return lambda body: body.update(fields)


def message(number: int, *content: Any) -> Change:
    return lambda body: body["messages"][number].update(content=list(content))


def content(number: int, index: int, **fields: Any) -> Change:
    return lambda body: body["messages"][number]["content"][index].update(fields)


def say(text: Any) -> Body:
    return {"type": "text", "text": text}


def add(role: str, *blocks: Any) -> Change:
    return lambda body: body["messages"].append({"role": role, "content": list(blocks)})


CLOSED = {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}
MARK = {"type": "ephemeral"}
WRONG: dict[str, Change] = {
    "no limit": lambda body: body.pop("max_tokens"),
    "too high a limit": field(max_tokens=128_001),
    "no stream": field(stream=False),
    "sampling": field(temperature=0.5),
    "blank instructions": field(system=" "),
    "small budget": field(thinking={"type": "enabled", "budget_tokens": 1000}),
    "budget of all": field(thinking={"type": "enabled", "budget_tokens": 4096}),
    "budget without a thought": field(thinking={"type": "enabled", "budget_tokens": 1024}),
    "unknown thinking": field(thinking={"type": "sometimes"}),
    "unknown display": field(thinking={"type": "adaptive", "display": "all"}),
    "unknown effort": field(output_config={"effort": "minimal"}),
    "open output": field(output_config={"format": {"type": "json_schema", "schema": {"type": "object"}}}),
    "bounded output": field(
        output_config={"format": {"type": "json_schema", "schema": {**CLOSED, "maxProperties": 1}}}
    ),
    "unknown tier": field(service_tier="flex"),
    "bad tool name": lambda body: body["tools"][0].update(name="a.b"),
    "same tool twice": lambda body: body["tools"].append(body["tools"][0]),
    "union at the root": lambda body: body["tools"][0].update(input_schema={"type": "object", "anyOf": [{}]}),
    "bad property name": lambda body: body["tools"][0].update(
        input_schema={"type": "object", "properties": {"a[]": {}}}
    ),
    "calls without tools": lambda body: body.pop("tools"),
    "five breakpoints": lambda body: (
        [block.update(cache_control=MARK) for block in [*body["system"], *body["tools"]]]
        + [block.update(cache_control=MARK) for block in body["messages"][2]["content"]]
    ),
    "short before long": lambda body: (
        body["system"][0].update(cache_control=MARK),
        body["messages"][2]["content"][0].update(cache_control={**MARK, "ttl": "1h"}),
    ),
    "unknown ttl": content(2, 0, cache_control={**MARK, "ttl": "12h"}),
    "no messages": field(messages=[]),
    "assistant first": lambda body: body["messages"].pop(0),
    "two of the user": add("user", say("Again.")),
    "prefill": add("assistant", say("It is ")),
    "empty message": message(0),
    "empty text": message(0, say("")),
    "blank text": message(0, say(" \n")),
    "unknown block": message(0, {"type": "video"}),
    "result behind text": message(2, say("First."), *RESULTS),
    "missing result": message(2, RESULTS[0]),
    "result twice": message(2, *RESULTS, RESULTS[0]),
    "result of nothing": message(0, RESULTS[0]),
    "call twice": lambda body: body["messages"][1]["content"].append(CALLS[0]),
    "bad call id": content(1, 1, id="functions.f:0"),
    "input that is no object": content(1, 1, input="{}"),
    "image in an error": content(2, 0, is_error=True, content=[{"type": "image", "source": IMAGE}]),
    "http image": message(0, {"type": "image", "source": {"type": "url", "url": "http://a.example/b"}}),
    "unreadable image": message(0, {"type": "image", "source": {**IMAGE, "media_type": "image/bmp"}}),
    "broken image": message(0, {"type": "image", "source": {**IMAGE, "data": "A"}}),
    "foreign signature": lambda body: body["messages"][1]["content"].insert(
        0, {"type": "thinking", "thinking": "Hm.", "signature": "abc"}
    ),
    "foreign redaction": lambda body: body["messages"][1]["content"].insert(
        0, {"type": "redacted_thinking", "data": "abc"}
    ),
}


async def test_a_good_request_is_answered() -> None:
    async with AnthropicProvider() as provider:
        assert (await post(provider, GOOD))[0] == 200
        assert provider.violations == []


@pytest.mark.parametrize("name", WRONG)
async def test_a_wrong_request_is_refused(name: str) -> None:
    body = copy.deepcopy(GOOD)
    WRONG[name](body)
    async with AnthropicProvider() as provider:
        status, said = await post(provider, body)
        assert (status, said["type"], said["error"]["type"]) == (400, "error", "invalid_request_error")
        assert len(provider.violations) == 1


@pytest.mark.parametrize("missing", HEADERS)
async def test_a_request_without_its_headers_is_refused(missing: str) -> None:
    async with AnthropicProvider() as provider:
        headers = {name: value for name, value in HEADERS.items() if name != missing}
        status, said = await post(provider, GOOD, headers)
        assert (status, said["error"]["type"]) == (401, "authentication_error")


async def produced(provider: AnthropicProvider) -> list[Body]:
    """The blocks of an answer of two thoughts, a text and a call, as the provider wants them back."""
    provider.queue(answer(Thought(("Hm.",)), Thought(), Text("I look."), Call("f", id="toolu_3")))
    assert (await post(provider, GOOD))[0] == 200
    thoughts = [dict(minted.block) for minted in provider._minted.values()]
    return [*thoughts, say("I look."), {"type": "tool_use", "id": "toolu_3", "name": "f", "input": {}}]


ANSWERED = {"type": "tool_result", "tool_use_id": "toolu_3", "content": "done"}
CHANGES: dict[str, tuple[bool, Callable[[Body, list[Body]], object]]] = {
    "text": (False, lambda body, blocks: blocks[0].update(thinking="Other.")),
    "signature": (False, lambda body, blocks: blocks[0].update(signature="other")),
    "model": (False, lambda body, blocks: body.update(model="other")),
    "follower": (False, lambda body, blocks: blocks.pop(2)),
    "turned off": (False, lambda body, blocks: body.update(thinking={"type": "disabled"})),
    "last": (False, lambda body, blocks: blocks.append(blocks.pop(0))),
    "instructions": (True, lambda body, blocks: body.update(system="Be kind.")),
    "tools": (True, lambda body, blocks: body["tools"][0].update(description="Do.")),
    "earlier message": (True, lambda body, blocks: body["messages"][0].update(content="Hello")),
    "thought left out": (True, lambda body, blocks: blocks.pop(0)),
}


@pytest.mark.parametrize("bound", [False, True])
async def test_thinking_goes_back_unchanged(bound: bool) -> None:
    async with AnthropicProvider(bound=bound) as provider:
        body = copy.deepcopy(GOOD)
        blocks = await produced(provider)
        body["messages"] += [
            {"role": "assistant", "content": blocks},
            {"role": "user", "content": [ANSWERED]},
        ]
        assert (await post(provider, body))[0] == 200
        body["messages"][0]["content"] = [say("Hi")]
        assert (await post(provider, body))[0] == 200


@pytest.mark.parametrize("name", CHANGES)
async def test_changed_thinking_is_refused(name: str) -> None:
    bound, change = CHANGES[name]
    async with AnthropicProvider(bound=True) as provider:
        body = copy.deepcopy(GOOD)
        blocks = await produced(provider)
        body["messages"] += [
            {"role": "assistant", "content": blocks},
            {"role": "user", "content": [ANSWERED]},
        ]
        provider._bound = bound
        change(body, blocks)
        status, said = await post(provider, body)
        assert status == 400
        assert "think" in said["error"]["message"]
