"""Conversations through the real model wires, against strict fake providers.

A provider refuses what the real one refuses: a call without a result, a result without a call, reasoning
without what followed it. Every test ends with the check that nothing was refused.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any

import pytest
from openai import AsyncOpenAI
from openai.lib.beta.agents import AgentTurnResultError
from pydantic import BaseModel
from tests.providers.answers import Call, Refusal, Text, Thought, Usage, answer
from tests.providers.anthropic import AnthropicProvider
from tests.providers.chat import ChatProvider
from tests.providers.gemini import GeminiProvider
from tests.providers.responses import ResponsesProvider
from tests.providers.server import KEY, FakeProvider, text_of
from tests.server import ServerProcess, scripted_config

from .inputs import CLOCK, NONE, WEATHER, cancel, message, tool_result
from .scripts import SETTINGS
from .watch import DEADLINE, PAUSE

STORY = "Once upon a time there was an answer of many deltas, and it was cut off before its end. " * 2


@dataclass(frozen=True)
class Wired:
    provider: FakeProvider
    server: ServerProcess


class BackgroundProvider:
    """A fake provider on a thread and loop of its own, so that one server can use it for many tests."""

    def __init__(self, kind: Callable[[], FakeProvider]) -> None:
        self.provider = kind()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> FakeProvider:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self.provider.start(), self._loop).result(DEADLINE)
        return self.provider

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self.provider.stop(), self._loop).result(DEADLINE)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(DEADLINE)


PROVIDERS: dict[str, Callable[[], FakeProvider]] = {
    "responses": ResponsesProvider,
    "chat": ChatProvider,
    # The strictest of its models: thinking comes back behind exactly what stood before it.
    "anthropic": partial(AnthropicProvider, bound=True),
    "gemini": GeminiProvider,
}


@pytest.fixture(scope="session", params=PROVIDERS.values(), ids=PROVIDERS)
def wires(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wired]:
    """A provider, and a server whose model `fake` it is."""
    home = tmp_path_factory.mktemp("wires")
    with BackgroundProvider(request.param) as provider:
        table = f"""
[[provider]]
name = "fake"
protocol = "{provider.PROTOCOL}"
base_url = "{provider.base_url}"
api_key = "{KEY}"
models = ["fake"]
"""
        with ServerProcess(scripted_config(home, {}, SETTINGS + table), home / "data") as server:
            yield Wired(provider, server)


@pytest.fixture
def provider(wires: Wired) -> Iterator[FakeProvider]:
    provider = wires.provider
    provider.requests.clear()
    provider.violations.clear()
    provider._plans.clear()  # a failed test leaves some behind
    yield provider
    assert provider.violations == []
    assert provider.unplayed == 0


@pytest.fixture
async def wired(wires: Wired) -> AsyncIterator[AsyncOpenAI]:
    """A client of the server that uses the provider."""
    server = wires.server
    async with AsyncOpenAI(
        base_url=server.base_url, api_key=server.api_key, timeout=DEADLINE, _strict_response_validation=True
    ) as client:
        yield client


async def until(read: Callable[[], Awaitable[Any]], accept: Callable[[Any], bool]) -> Any:
    async with asyncio.timeout(DEADLINE):
        while not accept(value := await read()):  # noqa: ASYNC110  (another process is watched)
            await asyncio.sleep(PAUSE)
    return value


async def until_status(client: AsyncOpenAI, session_id: str, *statuses: str) -> Any:
    return await until(
        lambda: client.beta.agents.sessions.retrieve(session_id), lambda session: session.status in statuses
    )


async def create(client: AsyncOpenAI, said: str = "Hello.", **agent: Any) -> Any:
    return await client.beta.agents.sessions.create(
        agent={"model": "fake", **agent}, environment=NONE, input=said
    )


async def ask(client: AsyncOpenAI, session_id: str, said: str, **options: Any) -> Any:
    async with client.beta.agents.sessions.stream(session_id, input=said, **options) as stream:
        return await stream.get_final_result()


async def items(client: AsyncOpenAI, session_id: str) -> list[Any]:
    return [item async for item in client.beta.agents.sessions.items.list(session_id, order="asc")]


async def test_an_answer_with_its_usage(provider: FakeProvider, wired: AsyncOpenAI) -> None:
    provider.queue(answer(Text("Good day."), usage=Usage(input=50, output=10, cached=20, reasoning=3)))
    session = await create(wired)
    await until_status(wired, session.id, "idle")
    (turn,) = (await wired.beta.agents.sessions.turns.list(session.id)).data
    assert turn.usage is not None
    assert turn.usage.to_dict() == {
        "input_tokens": 50,
        "input_tokens_details": {"cached_tokens": 20},
        "output_tokens": 10,
        "output_tokens_details": {"reasoning_tokens": 3},
        "total_tokens": 60,
    }
    assert (await ask(wired, session.id, "And now?")).output_text == "You said: And now?"


async def test_parallel_calls_with_one_id_are_told_apart(provider: FakeProvider, wired: AsyncOpenAI) -> None:
    provider.queue(
        answer(
            Call("weather", {"city": "Oslo"}, id="call_0"), Call("weather", {"city": "Rome"}, id="call_0")
        ),
        answer(Text("Both.")),
        answer(Call("weather", {"city": "Bern"}, id="call_0")),
        answer(Text("A third.")),
    )
    asked: list[str] = []

    def weather(arguments: dict[str, Any]) -> str:
        asked.append(arguments["city"])
        return f"fine in {arguments['city']}"

    events = await wired.beta.agents.sessions.create(
        agent={"model": "fake", "tools": [WEATHER]},
        environment=NONE,
        input="Oslo and Rome?",
        stream=True,
        tool_handlers={"weather": weather},
    )
    result = await events.get_final_result()
    assert result.output_text == "Both."
    third = await ask(wired, result.session_id, "And Bern?", tool_handlers={"weather": weather})
    assert third.output_text == "A third."
    assert asked == ["Oslo", "Rome", "Bern"]
    saved = await items(wired, result.session_id)
    calls = {item.call_id: item.arguments["city"] for item in saved if item.type == "function_call"}
    outputs = {item.call_id: item.output for item in saved if item.type == "function_call_output"}
    assert len(calls) == 3
    assert outputs == {call_id: f"fine in {city}" for call_id, city in calls.items()}


async def test_a_cancel_between_two_results_leaves_a_history_the_provider_accepts(
    provider: FakeProvider, wired: AsyncOpenAI
) -> None:
    provider.queue(answer(Text("I ask."), Call("weather", {"city": "Oslo"}), Call("clock", {"zone": "UTC"})))
    session = await until_status(
        wired, (await create(wired, "both", tools=[WEATHER, CLOCK])).id, "requires_action"
    )
    events = wired.beta.agents.sessions.events
    await events.create(session.id, events=[tool_result(session.required_actions[0])])
    await events.create(session.id, events=[cancel()])
    await until_status(wired, session.id, "idle")
    assert (await ask(wired, session.id, "Hello again.")).output_text == "You said: Hello again."
    assert len(provider.requests) == 2


async def test_a_cancel_of_all_pending_calls_leaves_a_history_the_provider_accepts(
    provider: FakeProvider, wired: AsyncOpenAI
) -> None:
    provider.queue(answer(Call("weather", {"city": "Oslo"}), Call("clock", {"zone": "UTC"})))
    session = await until_status(
        wired, (await create(wired, "both", tools=[WEATHER, CLOCK])).id, "requires_action"
    )
    await wired.beta.agents.sessions.events.create(session.id, events=[message("Wait."), cancel()])
    await until_status(wired, session.id, "idle")
    assert (await ask(wired, session.id, "Hello again.")).output_text == "You said: Hello again."


async def test_a_cancel_in_mid_text_closes_the_connection_and_the_talk_goes_on(
    provider: FakeProvider, wired: AsyncOpenAI
) -> None:
    provider.queue(answer(Text(STORY), hang_after=6))
    session = await create(wired)
    await until(lambda: items(wired, session.id), lambda saved: len(saved) == 2)
    await wired.beta.agents.sessions.events.create(session.id, events=[cancel()])
    await until_status(wired, session.id, "idle")
    await until(lambda: asyncio.sleep(0, provider.requests[0].left.is_set()), bool)
    assert (await ask(wired, session.id, "Hello again.")).output_text == "You said: Hello again."


async def test_a_cancel_in_mid_thought_leaves_no_orphan_behind(
    provider: FakeProvider, wired: AsyncOpenAI
) -> None:
    provider.queue(answer(Thought((STORY,)), Text("Never said."), hang_after=6))
    session = await create(wired, reasoning={"summary": "auto"})
    await until(lambda: asyncio.sleep(0, len(provider.requests)), bool)
    await wired.beta.agents.sessions.events.create(session.id, events=[cancel()])
    await until_status(wired, session.id, "idle")
    assert (await ask(wired, session.id, "Hello again.")).output_text == "You said: Hello again."


async def test_reasoning_goes_along_with_its_call(provider: FakeProvider, wired: AsyncOpenAI) -> None:
    provider.queue(
        answer(Thought(("I need the weather.",)), Call("weather", {"city": "Oslo"})),
        answer(Thought(("Seven degrees.",)), Text("Mild.")),
    )
    session = await create(wired, "The weather?", tools=[WEATHER], reasoning={"summary": "auto"})
    (call,) = (await until_status(wired, session.id, "requires_action")).required_actions
    await wired.beta.agents.sessions.events.create(session.id, events=[tool_result(call)])
    await until_status(wired, session.id, "idle")
    assert (await ask(wired, session.id, "Thanks.")).output_text == "You said: Thanks."


async def test_a_result_of_every_shape_reaches_the_provider(
    provider: FakeProvider, wired: AsyncOpenAI
) -> None:
    shapes: list[Any] = [
        {"output": ""},
        {"output": None},
        {"output": []},
        {"output": [{"type": "input_text", "text": ""}]},
        {"output": [{"type": "input_image", "image_url": "data:image/gif;base64,R0lGODlhAQABAAAAACw="}]},
        {"output": "NUL \u0000"},
        {"success": False, "output": None, "error": None},
        {"success": False, "output": None, "error": "no such city"},
    ]
    session = await create(wired, tools=[WEATHER])
    await until_status(wired, session.id, "idle")
    for shape in shapes:
        provider.queue(answer(Call("weather", {"city": "Oslo"})), answer(Text("Noted.")))
        await wired.beta.agents.sessions.events.create(session.id, events=[message("The weather?")])
        (call,) = (await until_status(wired, session.id, "requires_action")).required_actions
        await wired.beta.agents.sessions.events.create(session.id, events=[tool_result(call, **shape)])
        await until_status(wired, session.id, "idle")
    assert (await items(wired, session.id))[-1].content[0].text == "Noted."


async def test_refused_calls_are_history_the_provider_accepts(
    provider: FakeProvider, wired: AsyncOpenAI
) -> None:
    session = await create(wired, tools=[WEATHER])
    await until_status(wired, session.id, "idle")
    written = ['{"city": "Os', '{"city": 5}', "", "null", "[]", '{"city": "a"}{"city": "b"}']
    if provider.PROTOCOL == "gemini":
        # It parses the arguments itself: what is no object never arrives.
        written = ['{"city": 5}', ""]
    for arguments in written:
        provider.queue(answer(Call("weather", arguments)), answer(Text("I see.")))
        assert (await ask(wired, session.id, "The weather?")).output_text == "I see."
    provider.queue(answer(Call("wether", {"city": "Oslo"})), answer(Text("I see.")))
    assert (await ask(wired, session.id, "The weather?")).output_text == "I see."
    saved = await items(wired, session.id)
    calls = [item.status for item in saved if item.type == "function_call"]
    assert calls == ["failed"] * (len(written) + 1)


async def test_a_refused_key_fails_the_turn_and_the_next_one_works(
    provider: FakeProvider, wired: AsyncOpenAI
) -> None:
    provider.queue(answer(Text("Hello.")), Refusal(401, "invalid_api_key"))
    session = await until_status(wired, (await create(wired)).id, "idle")
    with pytest.raises(AgentTurnResultError) as failure:
        await ask(wired, session.id, "Now fail.")
    assert failure.value.turn is not None
    assert failure.value.turn.error is not None
    assert failure.value.turn.error.code == "authentication_error"
    assert KEY not in str(failure.value.turn.error)
    assert (await ask(wired, session.id, "Hello again.")).output_text == "You said: Hello again."


async def test_an_answer_cut_off_is_asked_for_again_and_said_anew(
    provider: FakeProvider, wired: AsyncOpenAI
) -> None:
    provider.queue(answer(Text(STORY), cut_after=6, reset=True), answer(Text("The whole.")))
    events = await wired.beta.agents.sessions.create(
        agent={"model": "fake"}, environment=NONE, input="Hello.", stream=True
    )
    result = await events.get_final_result()
    assert result.output_text == "The whole."
    saved = [item for item in await items(wired, result.session_id) if item.type == "message"]
    assert {item.status for item in saved[1:-1]} <= {"incomplete"}
    assert len(provider.requests) == 2


async def test_a_busy_provider_is_asked_again(provider: FakeProvider, wired: AsyncOpenAI) -> None:
    provider.queue(Refusal(503, headers={"Retry-After": "0"}), answer(Text("At last.")))
    events = await wired.beta.agents.sessions.create(
        agent={"model": "fake"}, environment=NONE, input="Hello.", stream=True
    )
    assert (await events.get_final_result()).output_text == "At last."


async def test_structured_output(provider: FakeProvider, wired: AsyncOpenAI) -> None:
    class Reading(BaseModel):
        city: str
        degrees: int

    provider.queue(answer(Text('{"city": "Oslo", "degrees": 7}')))
    events = await wired.beta.agents.sessions.create(
        agent={"model": "fake"}, environment=NONE, input="The reading?", stream=True, output_type=Reading
    )
    assert (await events.get_final_result()).output_parsed == Reading(city="Oslo", degrees=7)


async def test_a_steering_message_stands_behind_the_result(
    provider: FakeProvider, wired: AsyncOpenAI
) -> None:
    provider.queue(answer(Call("weather", {"city": "Oslo"})))
    session = await until_status(
        wired, (await create(wired, "The weather?", tools=[WEATHER])).id, "requires_action"
    )
    (call,) = session.required_actions
    events = wired.beta.agents.sessions.events
    await events.create(session.id, events=[message("Tokyo instead.")])
    await events.create(session.id, events=[tool_result(call)])
    await until_status(wired, session.id, "idle")
    assert (await items(wired, session.id))[-1].content[0].text == "You said: Tokyo instead."


async def test_a_late_result_is_history_the_provider_accepts(
    provider: FakeProvider, wired: AsyncOpenAI
) -> None:
    provider.queue(answer(Call("weather", {"city": "Oslo"})), answer(Text("I have asked.")))
    session = await create(wired, "The weather?", tools=[{**WEATHER, "async": True}])
    (call,) = (await until_status(wired, session.id, "idle")).required_actions
    provider.queue(answer(Text("It is 7 °C.")))
    await wired.beta.agents.sessions.events.create(session.id, events=[tool_result(call)])
    await until_status(wired, session.id, "idle")
    assert (await ask(wired, session.id, "Thanks.")).output_text == "You said: Thanks."
    texts = [item.content[0].text for item in await items(wired, session.id) if item.type == "message"]
    assert texts[1:3] == ["I have asked.", "It is 7 °C."]


async def test_loose_schemas_are_made_acceptable(provider: FakeProvider, wired: AsyncOpenAI) -> None:
    loose: list[Any] = [
        {"type": "object", "properties": {"a": {"type": "string"}}},
        {"type": "object", "properties": {}},
        {"type": "object"},
        {"type": "object", "properties": {"payload": {"type": "object"}}},
        {
            "type": "object",
            "properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}},
            "$defs": {"x": {"type": "integer"}},
        },
    ]
    tools = [
        {"type": "function", "name": f"tool_{n}", "description": "", "parameters": parameters}
        for n, parameters in enumerate(loose)
    ]
    session = await create(wired, tools=tools)
    await until_status(wired, session.id, "idle")
    assert (await items(wired, session.id))[-1].content[0].text == "You said: Hello."


async def test_results_reach_the_provider_in_the_order_of_their_calls(
    provider: FakeProvider, wired: AsyncOpenAI
) -> None:
    provider.queue(
        answer(Call("weather", {"city": "Oslo"}), Call("clock", {"zone": "UTC"})), answer(Text("Both."))
    )
    session = await create(wired, "both", tools=[WEATHER, CLOCK])
    weather, clock = (await until_status(wired, session.id, "requires_action")).required_actions
    events = wired.beta.agents.sessions.events
    await events.create(session.id, events=[tool_result(clock, "noon")])
    await events.create(session.id, events=[tool_result(weather, "7 °C")])
    await until_status(wired, session.id, "idle")
    assert results_in(provider.requests[1].body) == ["7 °C", "noon"]


async def test_the_provider_sees_a_bounded_part_of_a_huge_result_and_the_list_all_of_it(
    provider: FakeProvider, wired: AsyncOpenAI
) -> None:
    provider.queue(answer(Call("weather", {"city": "Oslo"})), answer(Text("Too much.")))
    session = await create(wired, "The weather?", tools=[WEATHER])
    (call,) = (await until_status(wired, session.id, "requires_action")).required_actions
    huge = "HEAD" + "x" * 3_000_000 + "TAIL"
    await wired.beta.agents.sessions.events.create(session.id, events=[tool_result(call, huge)])
    await until_status(wired, session.id, "idle")
    (shown,) = results_in(provider.requests[1].body)
    assert len(shown) < 300_000
    assert shown.startswith("HEAD")
    assert "TAIL" in shown
    assert [i.output for i in await items(wired, session.id) if i.type == "function_call_output"] == [huge]


async def test_instructions_and_settings_reach_the_provider(
    provider: FakeProvider, wired: AsyncOpenAI
) -> None:
    session = await create(wired, instructions="Be very brief.", reasoning={"effort": "low"}, tools=[WEATHER])
    await until_status(wired, session.id, "idle")
    body = provider.requests[0].body
    assert body["model"] == "fake"
    assert body["stream"] is True
    assert "Be very brief." in str(body)
    assert "weather" in str(body["tools"])


def results_in(body: dict[str, Any]) -> list[str]:
    """The tool results of a request, in the order in which the model reads them."""
    if "contents" in body:
        parts = [part for content in body["contents"] for part in content["parts"]]
        results = [part["functionResponse"]["response"] for part in parts if "functionResponse" in part]
        return [result.get("output", result.get("error")) for result in results]
    if "max_tokens" in body:
        blocks = [block for message in body["messages"] for block in message["content"]]
        return [text_of(block["content"]) for block in blocks if block["type"] == "tool_result"]
    if "messages" in body:
        return [text_of(entry["content"]) for entry in body["messages"] if entry["role"] == "tool"]
    return [text_of(entry["output"]) for entry in body["input"] if entry["type"] == "function_call_output"]
