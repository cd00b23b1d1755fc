"""Sessions that move between models of all four wires, against strict fakes that refuse a foreign history."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import permutations
from typing import Any

import pytest
from openai import AsyncOpenAI, BadRequestError
from tests.providers.answers import Call, Text, Thought, answer
from tests.providers.anthropic import AnthropicProvider
from tests.providers.chat import ChatProvider
from tests.providers.gemini import GeminiProvider
from tests.providers.gemini_rules import FOREIGN_SIGNATURE
from tests.providers.responses import ResponsesProvider
from tests.providers.server import KEY, FakeProvider
from tests.server import ServerProcess, scripted_config

from .inputs import CLOCK, NONE, WEATHER, cancel, message, tool_result
from .scripts import SETTINGS
from .test_provider_wires import BackgroundProvider, ask, items, until_status
from .watch import DEADLINE

KINDS: dict[str, Callable[[], FakeProvider]] = {
    "responses": ResponsesProvider,
    "chat": ChatProvider,
    "anthropic": partial(AnthropicProvider, bound=True),
    "gemini": GeminiProvider,
}
PAIRS = list(permutations(KINDS, 2))
HOSTILE = "functions.weather:0|" + "x" * 60
"""An id that only its own provider takes back."""
LOOSE = ("responses", "chat")
"""The wires whose servers number calls as they like."""
IMAGE = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8A"
    "AAAASUVORK5CYII="
)
HANDLERS = {
    "weather": lambda arguments: f"fine in {arguments['city']}",
    "clock": lambda arguments: f"noon in {arguments['zone']}",
}
Providers = dict[str, FakeProvider]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Providers, ServerProcess]]:
    """A provider of each wire, a server with models such as `<wire>-model`; `<wire>-blind` has no eyes."""
    home = tmp_path_factory.mktemp("switching")
    with ExitStack() as stack:
        providers = {name: stack.enter_context(BackgroundProvider(kind)) for name, kind in KINDS.items()}
        tables = "".join(
            f"""
[[provider]]
name = "{name}"
protocol = "{provider.PROTOCOL}"
base_url = "{provider.base_url}"
api_key = "{KEY}"
models = ["{name}-*"]

[provider.model."{name}-blind"]
images = false

[provider.model."{name}-plain"]
efforts = ["low"]
"""
            for name, provider in providers.items()
        )
        config = scripted_config(home, {}, SETTINGS + tables)
        server = stack.enter_context(ServerProcess(config, home / "data"))
        yield providers, server


@pytest.fixture
def providers(world: tuple[Providers, ServerProcess]) -> Iterator[Providers]:
    for provider in world[0].values():
        provider.requests.clear()
        provider.violations.clear()
        provider._plans.clear()  # a failed test leaves some behind
    yield world[0]
    for name, provider in world[0].items():
        assert provider.violations == [], name
        assert provider.unplayed == 0, name


@pytest.fixture
async def client(world: tuple[Providers, ServerProcess]) -> AsyncIterator[AsyncOpenAI]:
    server = world[1]
    async with AsyncOpenAI(
        base_url=server.base_url, api_key=server.api_key, timeout=DEADLINE, _strict_response_validation=True
    ) as client:
        yield client


async def switch(client: AsyncOpenAI, session_id: str, name: str) -> None:
    await client.beta.agents.sessions.update(session_id, agent={"model": f"{name}-model"})


def own_reasoning(body: dict[str, Any]) -> int:
    """How much reasoning of earlier turns a request gives back to its own model."""
    if "contents" in body:
        parts = [part for content in body["contents"] for part in content["parts"]]
        return sum(part.get("thoughtSignature") not in (None, FOREIGN_SIGNATURE) for part in parts)
    if "max_tokens" in body:
        blocks = [block for entry in body["messages"] for block in entry["content"]]
        return sum(block["type"] in ("thinking", "redacted_thinking") for block in blocks)
    if "messages" in body:
        return sum("reasoning" in entry for entry in body["messages"])
    return sum(entry["type"] == "reasoning" for entry in body["input"])


def work(name: str, turn: int) -> tuple[Any, Any]:
    """The answers of a turn that thinks, speaks, makes two calls at once, and thinks again."""
    return (
        answer(
            Thought((f"Thought of {name} {turn}.",)),
            Text(f"{name} asks."),
            Call("weather", {"city": f"{name} {turn}"}, id=HOSTILE if name in LOOSE else None),
            Call("clock", {"zone": f"{name} {turn}"}, id="" if name in LOOSE else None),
        ),
        answer(Thought((f"Afterthought of {name} {turn}.",)), Text(f"{name} is done {turn}.")),
    )


@pytest.mark.parametrize(("first", "second"), PAIRS, ids=[f"{a}-{b}" for a, b in PAIRS])
async def test_a_session_moves_to_another_provider_and_back(
    providers: Providers, client: AsyncOpenAI, first: str, second: str
) -> None:
    for number, name in enumerate((first, second, first, second)):
        providers[name].queue(*work(name, number))
    stream = await client.beta.agents.sessions.create(
        agent={
            "model": f"{first}-model",
            "tools": [WEATHER, CLOCK],
            "reasoning": {"summary": "auto"},
        },
        environment=NONE,
        input="Begin.",
        stream=True,
        tool_handlers=HANDLERS,
    )
    begun = await stream.get_final_result()
    assert begun.output_text == f"{first} is done 0."
    for number, name in enumerate((second, first, second), start=1):
        await switch(client, begun.session_id, name)
        result = await ask(client, begun.session_id, "Go on.", tool_handlers=HANDLERS)
        assert result.output_text == f"{name} is done {number}."
    saved = await items(client, begun.session_id)
    thoughts = [part.text for item in saved if item.type == "reasoning" for part in item.summary]
    # Foreign reasoning leaves the model's view, never the items.
    assert f"Thought of {first} 0." in thoughts
    for name, other, turns in ((first, second, 3), (second, first, 4)):
        sent = str(providers[name].requests[-1].body)
        assert f"Thought of {other}" not in sent
        assert sent.count("fine in") == turns
        # Its own reasoning comes back to each provider that takes any, in front of what followed it.
        assert (own_reasoning(providers[name].requests[-1].body) > 0) is (name != "chat"), name
    assert len({item.call_id for item in saved if item.type == "function_call"}) == 8


@pytest.mark.parametrize(("first", "second"), PAIRS, ids=[f"{a}-{b}" for a, b in PAIRS])
async def test_what_a_cancel_left_open_is_history_the_next_provider_accepts(
    providers: Providers, client: AsyncOpenAI, first: str, second: str
) -> None:
    providers[first].queue(work(first, 0)[0])
    session = await client.beta.agents.sessions.create(
        agent={"model": f"{first}-model", "tools": [WEATHER, CLOCK]}, environment=NONE, input="Begin."
    )
    waiting = await until_status(client, session.id, "requires_action")
    events = client.beta.agents.sessions.events
    await events.create(session.id, events=[tool_result(waiting.required_actions[0])])
    await events.create(session.id, events=[cancel()])
    await until_status(client, session.id, "idle")
    await switch(client, session.id, second)
    assert (await ask(client, session.id, "And now?")).output_text == "You said: And now?"
    await switch(client, session.id, first)
    assert (await ask(client, session.id, "And here?")).output_text == "You said: And here?"


async def test_a_running_turn_keeps_its_model_and_the_next_one_takes_the_new(
    providers: Providers, client: AsyncOpenAI
) -> None:
    providers["responses"].queue(*work("responses", 0))
    session = await client.beta.agents.sessions.create(
        agent={"model": "responses-model", "tools": [WEATHER, CLOCK]}, environment=NONE, input="Begin."
    )
    waiting = await until_status(client, session.id, "requires_action")
    await switch(client, session.id, "anthropic")
    events = client.beta.agents.sessions.events
    await events.create(session.id, events=[message("Faster."), *map(tool_result, waiting.required_actions)])
    await until_status(client, session.id, "idle")
    assert len(providers["responses"].requests) == 2
    assert providers["anthropic"].requests == []
    assert (await ask(client, session.id, "Next.")).output_text == "You said: Next."
    assert len(providers["anthropic"].requests) == 1


@pytest.mark.parametrize("name", KINDS)
async def test_images_that_the_new_model_does_not_see_are_told_in_words(
    providers: Providers, client: AsyncOpenAI, name: str
) -> None:
    said: Any = [
        {
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_text", "text": "Look."},
                {"type": "input_image", "image_url": IMAGE},
            ],
        }
    ]
    other = "chat" if name != "chat" else "responses"
    session = await client.beta.agents.sessions.create(
        agent={"model": f"{other}-model"}, environment=NONE, input=said
    )
    await until_status(client, session.id, "idle")
    await client.beta.agents.sessions.update(session.id, agent={"model": f"{name}-blind"})
    assert (await ask(client, session.id, "And now?")).output_text == "You said: And now?"
    sent = str(providers[name].requests[-1].body)
    assert IMAGE.partition(",")[2] not in sent
    assert "does not see images" in sent
    shown = (await items(client, session.id))[0].content[1]
    assert shown.image_url == IMAGE


async def test_a_model_that_lacks_the_effort_is_refused_and_nothing_changes(
    providers: Providers, client: AsyncOpenAI
) -> None:
    session = await client.beta.agents.sessions.create(
        agent={"model": "chat-model", "reasoning": {"effort": "high"}}, environment=NONE, input="Begin."
    )
    await until_status(client, session.id, "idle")
    update = client.beta.agents.sessions.update
    with pytest.raises(BadRequestError) as refused:
        await update(session.id, agent={"model": "anthropic-plain"})
    assert refused.value.param == "agent.reasoning.effort"
    assert (await client.beta.agents.sessions.retrieve(session.id)).agent.model == "chat-model"
    await update(session.id, agent={"model": "anthropic-plain", "reasoning": {"effort": "low"}})
    assert (await ask(client, session.id, "Go on.")).output_text == "You said: Go on."


async def test_a_tier_that_the_model_lacks_is_refused_at_the_update(
    providers: Providers, client: AsyncOpenAI
) -> None:
    session = await client.beta.agents.sessions.create(
        agent={"model": "gemini-model", "service_tier": "flex"}, environment=NONE, input="Begin."
    )
    await until_status(client, session.id, "idle")
    update = client.beta.agents.sessions.update
    with pytest.raises(BadRequestError) as refused:
        await update(session.id, agent={"service_tier": "ultrafast"})
    assert refused.value.param == "agent.service_tier"
    with pytest.raises(BadRequestError) as refused:
        await update(session.id, agent={"model": "anthropic-model"})
    assert refused.value.param == "agent.service_tier"


LEAKS = {
    "kimi": '<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0{"city": "Oslo"}',
    "qwen": '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>',
    "unknown": "<|tool_calls_section_begin|>",
}


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("markup", LEAKS.values(), ids=LEAKS)
async def test_a_call_written_as_text_is_made_again_and_never_the_answer(
    providers: Providers, client: AsyncOpenAI, name: str, markup: str
) -> None:
    providers[name].queue(
        answer(Thought(("Hm.",)), Text(markup)),
        answer(Call("weather", {"city": "Oslo"})),
        answer(Text("It is fine.")),
    )
    stream = await client.beta.agents.sessions.create(
        agent={"model": f"{name}-model", "tools": [WEATHER]},
        environment=NONE,
        input="The weather?",
        stream=True,
        tool_handlers=HANDLERS,
    )
    result = await stream.get_final_result()
    assert result.output_text == "It is fine."
    saved = await items(client, result.session_id)
    for item in saved:
        if item.type == "message" and item.role == "assistant" and item.content[0].text == markup:
            assert (item.status, item.phase) == ("incomplete", "commentary")
    calls = [item for item in saved if item.type == "function_call"]
    assert [call.status for call in calls] == ["failed", "completed"]
    again = str(providers[name].requests[1].body)
    assert "as plain text" in again
    assert "section_begin" not in again
    assert "<tool_call>" not in again


async def test_a_model_that_keeps_writing_calls_as_text_fails_its_turn_and_the_next_message_works(
    providers: Providers, client: AsyncOpenAI
) -> None:
    providers["chat"].queue(*[answer(Text(LEAKS["qwen"]))] * 4)
    session = await client.beta.agents.sessions.create(
        agent={"model": "chat-model", "tools": [WEATHER]}, environment=NONE, input="The weather?"
    )
    await until_status(client, session.id, "idle")
    (turn,) = (await client.beta.agents.sessions.turns.list(session.id)).data
    assert turn.error is not None
    assert turn.error.code == "server_error"
    assert len(providers["chat"].requests) == 4
    assert (await ask(client, session.id, "Go on.")).output_text == "You said: Go on."


async def test_a_text_about_such_markup_is_an_answer(providers: Providers, client: AsyncOpenAI) -> None:
    said = "It writes:\n```\n<tool_call>\n{}\n</tool_call>\n```"
    providers["chat"].queue(answer(Text(said)))
    session = await client.beta.agents.sessions.create(
        agent={"model": "chat-model", "tools": [WEATHER]}, environment=NONE, input="How?"
    )
    await until_status(client, session.id, "idle")
    assert (await items(client, session.id))[-1].content[0].text == said
