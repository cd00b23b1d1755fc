"""Sessions on Claude models: thinking that lasts, and settings that the models do not have."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any

import pytest
from openai import AsyncOpenAI, BadRequestError
from pydantic import BaseModel
from tests.providers.answers import Call, Text, Thought, answer
from tests.providers.anthropic import AnthropicProvider
from tests.providers.server import KEY
from tests.server import ServerProcess, scripted_config

from .inputs import CLOCK, NONE, WEATHER, cancel, message, tool_result
from .scripts import SETTINGS
from .test_provider_wires import STORY, BackgroundProvider, ask, items, until, until_status
from .watch import DEADLINE

MODEL = "claude-haiku-5-5"


@pytest.fixture(scope="module")
def claude(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[AnthropicProvider, ServerProcess]]:
    """A provider that binds thinking to what stood before it, and a server that uses it."""
    home = tmp_path_factory.mktemp("claude")
    with BackgroundProvider(partial(AnthropicProvider, bound=True)) as provider:
        assert isinstance(provider, AnthropicProvider)
        table = f"""
[[provider]]
name = "anthropic"
protocol = "anthropic"
base_url = "{provider.base_url}"
api_key = "{KEY}"
models = ["claude-*"]
"""
        with ServerProcess(scripted_config(home, {}, SETTINGS + table), home / "data") as server:
            yield provider, server


@pytest.fixture
def provider(claude: tuple[AnthropicProvider, ServerProcess]) -> Iterator[AnthropicProvider]:
    provider = claude[0]
    provider.requests.clear()
    provider.violations.clear()
    provider._plans.clear()  # a failed test leaves some behind
    yield provider
    assert provider.unplayed == 0


@pytest.fixture
async def client(claude: tuple[AnthropicProvider, ServerProcess]) -> AsyncIterator[AsyncOpenAI]:
    server = claude[1]
    async with AsyncOpenAI(
        base_url=server.base_url, api_key=server.api_key, timeout=DEADLINE, _strict_response_validation=True
    ) as client:
        yield client


async def create(client: AsyncOpenAI, said: str = "Hello.", **agent: Any) -> Any:
    return await client.beta.agents.sessions.create(
        agent={"model": MODEL, **agent}, environment=NONE, input=said
    )


def thoughts_in(body: dict[str, Any]) -> list[str]:
    blocks = [block for message in body["messages"] for block in message["content"]]
    return [block.get("thinking", "") for block in blocks if "thinking" in block["type"]]


async def test_a_long_session_of_thoughts_and_parallel_calls(
    provider: AnthropicProvider, client: AsyncOpenAI
) -> None:
    turns, steps = 4, 5
    for turn in range(turns):
        for step in range(steps):
            where = f"{turn}.{step}"
            provider.queue(
                answer(
                    Thought((f"Thought {where}.",)),
                    Text(f"I ask {where}."),
                    Call("weather", {"city": where}),
                    Thought(()),
                    Call("clock", {"zone": where}),
                )
            )
        provider.queue(answer(Thought((f"Thought {turn}.end.",)), Text(f"Done {turn}.")))
    handlers = {
        "weather": lambda arguments: f"fine in {arguments['city']}",
        "clock": lambda arguments: f"noon in {arguments['zone']}",
    }
    events = await client.beta.agents.sessions.create(
        agent={"model": MODEL, "tools": [WEATHER, CLOCK], "reasoning": {"summary": "auto"}},
        environment=NONE,
        input="Turn 0.",
        stream=True,
        tool_handlers=handlers,
    )
    first = await events.get_final_result()
    assert first.output_text == "Done 0."
    for turn in range(1, turns):
        result = await ask(client, first.session_id, f"Turn {turn}.", tool_handlers=handlers)
        assert result.output_text == f"Done {turn}."
    assert provider.violations == []
    last = provider.requests[-1].body
    assert len(thoughts_in(last)) == turns * (steps * 2 + 1) - 1
    saved = await items(client, first.session_id)
    phases = [item.phase for item in saved if item.type == "message" and item.role == "assistant"]
    assert phases == [*["commentary"] * steps, "final_answer"] * turns
    shown = [item.summary[0].text for item in saved if item.type == "reasoning" and item.summary]
    assert shown[0] == "Thought 0.0."


async def test_an_interrupt_between_thoughts_and_open_calls(
    provider: AnthropicProvider, client: AsyncOpenAI
) -> None:
    provider.queue(
        answer(Thought(("One.",)), Call("weather", {"city": "Oslo"}), Call("clock", {"zone": "UTC"})),
        answer(Thought((STORY,)), Text("Never said."), hang_after=6),
    )
    session = await create(client, "both", tools=[WEATHER, CLOCK], reasoning={"summary": "auto"})
    weather, clock = (await until_status(client, session.id, "requires_action")).required_actions
    events = client.beta.agents.sessions.events
    await events.create(session.id, events=[tool_result(weather), tool_result(clock)])
    await until(lambda: asyncio.sleep(0, len(provider.requests)), lambda count: count == 2)
    await events.create(session.id, events=[cancel()])
    await until_status(client, session.id, "idle")
    provider.queue(
        answer(Thought(("Two.",)), Call("weather", {"city": "Rome"}), Call("clock", {"zone": "X"}))
    )
    await events.create(session.id, events=[message("Again.")])
    await until_status(client, session.id, "requires_action")
    await events.create(session.id, events=[cancel()])
    await until_status(client, session.id, "idle")
    assert (await ask(client, session.id, "Hello again.")).output_text == "You said: Hello again."
    assert provider.violations == []
    assert thoughts_in(provider.requests[-1].body) == ["One.", "Two."]


async def test_thinking_turned_off_and_on_again(provider: AnthropicProvider, client: AsyncOpenAI) -> None:
    provider.queue(answer(Thought(("One.",)), Text("First.")), answer(Text("Second.")))
    session = await create(client, reasoning={"effort": "low"})
    await until_status(client, session.id, "idle")
    for effort, kept in (("none", []), ("high", ["One."])):
        await client.beta.agents.sessions.update(session.id, agent={"reasoning": {"effort": effort}})
        await ask(client, session.id, "Go on.")
        assert thoughts_in(provider.requests[-1].body) == kept
    settings = [request.body.get("thinking", {}).get("type") for request in provider.requests]
    assert settings == ["adaptive", "disabled", "adaptive"]
    assert provider.violations == []


async def test_a_change_of_keys_costs_the_thinking_and_nothing_else(
    provider: AnthropicProvider, client: AsyncOpenAI
) -> None:
    provider.queue(answer(Thought(("One.",)), Text("First.")), answer(Thought(("Two.",)), Text("Second.")))
    session = await create(client)
    await until_status(client, session.id, "idle")
    provider.forget()
    assert (await ask(client, session.id, "Go on.")).output_text == "Second."
    assert (await ask(client, session.id, "And now?")).output_text == "You said: And now?"
    assert len(provider.violations) == 1
    assert thoughts_in(provider.requests[-1].body) == ["Two."]


async def test_the_api_holds_a_model_to_a_schema(provider: AnthropicProvider, client: AsyncOpenAI) -> None:
    class Reading(BaseModel):
        city: str
        degrees: int

    provider.queue(answer(Text('{"city": "Oslo"}')), answer(Text('{"city": "Oslo", "degrees": 7}')))
    events = await client.beta.agents.sessions.create(
        agent={"model": MODEL}, environment=NONE, input="Weather?", stream=True, output_type=Reading
    )
    result = await events.get_final_result()
    assert result.output_parsed == Reading(city="Oslo", degrees=7)
    assert provider.violations == []
    assert all(request.body["output_config"]["format"] for request in provider.requests)


@pytest.mark.parametrize(
    ("model", "agent", "param"),
    [
        ("claude-opus-5-5", {"reasoning": {"effort": "none"}}, "agent.reasoning.effort"),
        ("claude-opus-5-5", {"reasoning": {"effort": "minimal"}}, "agent.reasoning.effort"),
        ("claude-sonnet-4-6", {"reasoning": {"effort": "xhigh"}}, "agent.reasoning.effort"),
        ("claude-opus-5-5", {"service_tier": "flex"}, "agent.service_tier"),
        ("claude-haiku-5-5", {"service_tier": "fast"}, "agent.service_tier"),
    ],
)
async def test_what_a_model_does_not_have_is_refused(
    provider: AnthropicProvider, client: AsyncOpenAI, model: str, agent: dict[str, Any], param: str
) -> None:
    with pytest.raises(BadRequestError) as refusal:
        await create(client, model=model, **agent)
    assert refusal.value.param == param
    assert "Supported: " in str(refusal.value)
    assert provider.requests == []
