"""Sessions on Gemini models: signatures that last, switches to other providers, settings they lack."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from openai import AsyncOpenAI, BadRequestError
from pydantic import BaseModel
from tests.providers.answers import Call, Text, Thought, answer
from tests.providers.gemini import GeminiProvider
from tests.providers.gemini_rules import FOREIGN_SIGNATURE, ModelRules
from tests.providers.responses import ResponsesProvider
from tests.providers.server import KEY, FakeProvider
from tests.server import ServerProcess, scripted_config

from .inputs import CLOCK, NONE, WEATHER, cancel, message, tool_result
from .scripts import SETTINGS
from .test_provider_wires import STORY, BackgroundProvider, ask, items, until, until_status
from .watch import DEADLINE

MODEL = "gemini-3-flash-preview"
OLDER = "gemini-2.5-flash"
HANDLERS = {
    "weather": lambda arguments: f"fine in {arguments['city']}",
    "clock": lambda arguments: f"noon in {arguments['zone']}",
}

Providers = dict[str, FakeProvider]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Providers, ServerProcess]]:
    """Gemini 3, Gemini 2.5 and a provider of another kind, and a server that uses them all."""
    home = tmp_path_factory.mktemp("gemini")
    rules = ModelRules(schema_with_tools=False, signed_calls=False, levels=False)
    with (
        BackgroundProvider(GeminiProvider) as newer,
        BackgroundProvider(lambda: GeminiProvider(rules=rules)) as older,
        BackgroundProvider(ResponsesProvider) as other,
    ):
        served = {"gemini": (newer, MODEL), "older": (older, OLDER), "other": (other, "gpt-test")}
        tables = "".join(
            f"""
[[provider]]
name = "{name}"
protocol = "{provider.PROTOCOL}"
base_url = "{provider.base_url}"
api_key = "{KEY}"
models = ["{model}"]
"""
            for name, (provider, model) in served.items()
        )
        with ServerProcess(scripted_config(home, {}, SETTINGS + tables), home / "data") as server:
            yield {name: provider for name, (provider, _) in served.items()}, server


@pytest.fixture
def providers(world: tuple[Providers, ServerProcess]) -> Iterator[Providers]:
    for provider in world[0].values():
        provider.requests.clear()
        provider.violations.clear()
        provider._plans.clear()  # a failed test leaves some behind
    yield world[0]
    for provider in world[0].values():
        assert provider.violations == []
        assert provider.unplayed == 0


@pytest.fixture
async def client(world: tuple[Providers, ServerProcess]) -> AsyncIterator[AsyncOpenAI]:
    server = world[1]
    async with AsyncOpenAI(
        base_url=server.base_url, api_key=server.api_key, timeout=DEADLINE, _strict_response_validation=True
    ) as client:
        yield client


async def create(client: AsyncOpenAI, said: str = "Hello.", **agent: Any) -> Any:
    return await client.beta.agents.sessions.create(
        agent={"model": MODEL, **agent}, environment=NONE, input=said
    )


def signatures_in(body: dict[str, Any]) -> list[str]:
    parts = [part for content in body["contents"] for part in content["parts"]]
    return [part["thoughtSignature"] for part in parts if "thoughtSignature" in part]


async def test_a_long_session_of_thoughts_and_parallel_calls(
    providers: Providers, client: AsyncOpenAI
) -> None:
    provider = providers["gemini"]
    turns, steps = 5, 5
    for turn in range(turns):
        for step in range(steps):
            where = f"{turn}.{step}"
            provider.queue(
                answer(
                    Thought((f"Thought {where}.",)),
                    Text(f"I ask {where}."),
                    Call("weather", {"city": where}),
                    Call("clock", {"zone": where}),
                    quirks=("split_calls",) if step % 2 else (),
                )
            )
        provider.queue(answer(Thought((f"Thought {turn}.end.",)), Text(f"Done {turn}.")))
    events = await client.beta.agents.sessions.create(
        agent={"model": MODEL, "tools": [WEATHER, CLOCK], "reasoning": {"summary": "auto"}},
        environment=NONE,
        input="Turn 0.",
        stream=True,
        tool_handlers=HANDLERS,
    )
    first = await events.get_final_result()
    assert first.output_text == "Done 0."
    for turn in range(1, turns):
        result = await ask(client, first.session_id, f"Turn {turn}.", tool_handlers=HANDLERS)
        assert result.output_text == f"Done {turn}."
    # Every step signed its first call, every turn its answer; the last answer was not sent yet.
    signed = signatures_in(provider.requests[-1].body)
    assert len(signed) == len(set(signed)) == turns * (steps + 1) - 1
    assert FOREIGN_SIGNATURE not in signed
    saved = await items(client, first.session_id)
    phases = [item.phase for item in saved if item.type == "message" and item.role == "assistant"]
    assert phases == [*["commentary"] * steps, "final_answer"] * turns
    shown = [item.summary[0].text for item in saved if item.type == "reasoning" and item.summary]
    assert shown[0] == "Thought 0.0."


async def test_an_interrupt_between_thoughts_and_open_calls(
    providers: Providers, client: AsyncOpenAI
) -> None:
    provider = providers["gemini"]
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
    provider.queue(answer(Call("weather", {"city": "Rome"}), Call("clock", {"zone": "X"})))
    await events.create(session.id, events=[message("Again.")])
    await until_status(client, session.id, "requires_action")
    await events.create(session.id, events=[message("Wait."), cancel()])
    await until_status(client, session.id, "idle")
    assert (await ask(client, session.id, "Hello again.")).output_text == "You said: Hello again."
    assert len(signatures_in(provider.requests[-1].body)) == 2


async def test_a_session_moves_between_models_and_providers(
    providers: Providers, client: AsyncOpenAI
) -> None:
    hops = [("gemini", MODEL), ("other", "gpt-test"), ("older", OLDER), ("gemini", MODEL)]
    for name, _ in hops:
        providers[name].queue(
            answer(
                Thought((f"Thought of {name}.",)),
                Text(f"{name} asks."),
                Call("weather", {"city": "Oslo"}, id="functions.weather:0" if name == "other" else None),
                Call("clock", {"zone": name}),
            ),
            answer(Text(f"{name} is done.")),
        )
    events = await client.beta.agents.sessions.create(
        agent={"model": MODEL, "tools": [WEATHER, CLOCK]},
        environment=NONE,
        input="Begin.",
        stream=True,
        tool_handlers=HANDLERS,
    )
    first = await events.get_final_result()
    assert first.output_text == "gemini is done."
    for name, model in hops[1:]:
        await client.beta.agents.sessions.update(first.session_id, agent={"model": model})
        result = await ask(client, first.session_id, "Go on.", tool_handlers=HANDLERS)
        assert result.output_text == f"{name} is done."
    last = providers["gemini"].requests[-1].body
    signed = signatures_in(last)
    # Its own calls carry their signatures, those of the others the documented one.
    assert signed.count(FOREIGN_SIGNATURE) == 2
    assert len(signed) - 2 == 3
    assert "Thought of" not in str(last)


async def test_a_call_google_could_not_parse_is_asked_for_again(
    providers: Providers, client: AsyncOpenAI
) -> None:
    providers["gemini"].queue(answer(Call("weather", '{"city": "Os')), answer(Text("It is fine.")))
    session = await create(client, tools=[WEATHER])
    await until_status(client, session.id, "idle")
    assert (await items(client, session.id))[-1].content[0].text == "It is fine."
    assert len(providers["gemini"].requests) == 2


async def test_an_answer_in_words_that_breaks_its_schema_is_asked_for_again(
    providers: Providers, client: AsyncOpenAI
) -> None:
    class Reading(BaseModel):
        city: str
        degrees: int

    good = '{"city": "Oslo", "degrees": 7}'
    providers["older"].queue(answer(Text("Seven degrees in Oslo.")), answer(Text(good)))
    events = await client.beta.agents.sessions.create(
        agent={"model": OLDER, "tools": [WEATHER]},
        environment=NONE,
        input="The reading?",
        stream=True,
        output_type=Reading,
    )
    assert (await events.get_final_result()).output_parsed == Reading(city="Oslo", degrees=7)
    assert all("generationConfig" not in one.body for one in providers["older"].requests)


@pytest.mark.parametrize(
    ("agent", "param"),
    [
        ({"reasoning": {"effort": "none"}}, "agent.reasoning.effort"),
        ({"reasoning": {"effort": "xhigh"}}, "agent.reasoning.effort"),
        ({"model": OLDER, "reasoning": {"effort": "max"}}, "agent.reasoning.effort"),
        ({"service_tier": "ultrafast"}, "agent.service_tier"),
    ],
)
async def test_a_setting_that_gemini_lacks_is_refused_when_the_session_is_made(
    providers: Providers, client: AsyncOpenAI, agent: dict[str, Any], param: str
) -> None:
    with pytest.raises(BadRequestError) as refused:
        await create(client, **agent)
    assert refused.value.param == param
    assert providers["gemini"].requests == []
