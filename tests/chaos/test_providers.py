"""A bad network between the server and its provider: turns complete, or fail with the code that says why.

The provider refuses a request that is not well formed; every test ends with the check that none was.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
from openai import AsyncOpenAI
from tests.providers.answers import Call, Plan, Text, Thought, answer
from tests.providers.chat import ChatProvider
from tests.providers.responses import ResponsesProvider
from tests.providers.server import KEY, FakeProvider, Recorded
from tests.server import ServerProcess, scripted_config

from perdure.models.errors import ModelError
from perdure.models.transport import Transport

from .picture import Json, text_of
from .proxy import Proxy, Weather
from .test_clients import WEATHER
from .traveller import said

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

DEADLINE = 120.0
SILENCE = 0.4
ATTEMPTS = 2
SETTINGS = f"""
[retry]
attempts = {ATTEMPTS}
base_delay = 0.01
max_delay = 0.02
"""
STORY = answer(Text("Once upon a MIDDLE time.", chunks=("Once upon ", "a ", "MIDDLE ", "time.")))
ASKING = answer(
    Thought(("The weather first.",)),
    Text("I look.", phase="commentary"),
    Call("weather", {"city": "MIDDLETOWN"}, chunks=12),
)
TOLD = "Once upon a MIDDLE time."
MIDDLE_OF_TEXT, MIDDLE_OF_CALL = b"MIDDLE", b"DDLETO"
END = b"\n\n\r\n0"
"""The last bytes of an answer and the first of the chunk that ends it."""


@dataclass(frozen=True)
class Road:
    """A server, its provider, and the network between them."""

    provider: FakeProvider
    proxy: Proxy
    server: ServerProcess


@pytest_asyncio.fixture(
    scope="module", loop_scope="module", params=[ResponsesProvider, ChatProvider], ids=["responses", "chat"]
)
async def built(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, seed: str
) -> AsyncIterator[Road]:
    home = tmp_path_factory.mktemp("road")
    async with request.param() as provider, Proxy(("127.0.0.1", provider._port), seed) as proxy:
        table = f"""
[[provider]]
name = "fake"
protocol = "{provider.PROTOCOL}"
base_url = "{proxy.url}/v1"
api_key = "{KEY}"
models = ["fake"]
timeout = {SILENCE}
"""
        with ServerProcess(scripted_config(home, {}, SETTINGS + table), home / "data") as server:
            yield Road(provider, proxy, server)


@pytest.fixture
def road(built: Road, seed: str, request: pytest.FixtureRequest) -> Iterator[Road]:
    provider = built.provider
    provider.requests.clear()
    provider.violations.clear()
    provider._plans.clear()  # a failed test leaves some behind
    provider.planner = None
    built.proxy.renew(f"{seed} {request.node.name}")
    yield built
    assert provider.violations == []
    assert provider.unplayed == 0
    assert built.proxy.unmet == 0


@pytest_asyncio.fixture(loop_scope="module")
async def client(road: Road) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(
        base_url=road.server.base_url, api_key=road.server.api_key, timeout=DEADLINE
    ) as client:
        yield client


class Talk:
    """One session, from its creation on."""

    def __init__(self, client: AsyncOpenAI) -> None:
        self._sessions = client.beta.agents.sessions
        self.session_id = ""

    async def begin(self, text: str = "Hello.") -> Json:
        """Create the session; returns it once it is idle or waits."""
        created = await self._sessions.create(
            agent={"model": "fake", "tools": [WEATHER], "reasoning": {"summary": "auto"}},
            environment={"type": "none"},
            input=text,
        )
        self.session_id = created.id
        return await self.settled()

    async def send(self, *events: Any) -> Json:
        await self._sessions.events.create(self.session_id, events=list(events))
        return await self.settled()

    async def answer(self, action: Json) -> Json:
        result = {"type": "agent.session.input.tool_result", "success": True, "output": "fine"}
        return await self.send({**result, "turn_id": action["turn_id"], "call_id": action["call_id"]})

    async def settled(self) -> Json:
        """The session as soon as it is not running."""
        async with asyncio.timeout(DEADLINE):
            while True:
                async with await self._sessions.events.stream(self.session_id) as stream:
                    async for event in stream:
                        if event.type in ("agent.session.idle", "agent.session.requires_action"):
                            break
                session = await self._sessions.retrieve(self.session_id)
                if session.status != "in_progress":
                    return session.to_dict()

    async def turns(self) -> list[Json]:
        listed = self._sessions.turns.list(self.session_id, order="asc", limit=100)
        return [turn.to_dict() async for turn in listed]

    async def items(self) -> list[Json]:
        listed = self._sessions.items.list(self.session_id, order="asc", limit=100)
        return [item.to_dict() async for item in listed]

    async def spoken(self) -> list[tuple[str, str]]:
        """Status and text of the assistant's messages."""
        return [(i["status"], text_of(i)) for i in await self.items() if i.get("role") == "assistant"]

    async def check_usable(self) -> None:
        """The next message is answered, whatever happened before."""
        await self.send(said("Still there?"))
        assert (await self.turns())[-1]["status"] == "completed"
        assert (await self.spoken())[-1] == ("completed", "You said: Still there?")


LONG = pytest.mark.long
COMPLETED = [
    pytest.param(Weather("cut", after=0), [], 2, id="cut before the first byte"),
    pytest.param(Weather("reset", after=0), [], 2, id="reset before the first byte", marks=LONG),
    pytest.param(Weather("stall", after=0), [], 2, id="half-open before the first byte", marks=LONG),
    pytest.param(Weather("cut", after=40), [], 2, id="cut in the head", marks=LONG),
    pytest.param(Weather("reset", after=0, way="up"), [], 1, id="reset before the request", marks=LONG),
    pytest.param(Weather("cut", after=300, way="up"), [], 1, id="cut in the request"),
    pytest.param(Weather("stall", after=300, way="up"), [], 1, id="half-open in the request", marks=LONG),
    pytest.param(Weather("cut", after=MIDDLE_OF_TEXT), ["Once upon a "], 2, id="cut in mid-text"),
    pytest.param(Weather("stall", after=MIDDLE_OF_TEXT), ["Once upon a "], 2, id="half-open in mid-text"),
    pytest.param(Weather("cut", after=END), [], 1, id="cut after the finish"),
    pytest.param(Weather("stall", after=END), [], 1, id="half-open after the finish"),
    pytest.param(Weather(dribble=True), [], 1, id="dribble"),
    pytest.param(
        Weather("cut", after=MIDDLE_OF_TEXT, dribble=True), ["Once upon a "], 2, id="dribble, then cut"
    ),
    pytest.param(Weather(delay=0.1), [], 1, id="delay", marks=LONG),
]


@pytest.mark.parametrize(("weather", "torn", "arrived"), COMPLETED)
async def test_a_turn_completes_behind_a_bad_exchange(
    road: Road, client: AsyncOpenAI, weather: Weather, torn: list[str], arrived: int
) -> None:
    road.proxy.queue(weather)
    road.provider.queue(*[STORY] * arrived)
    talk = Talk(client)
    await talk.begin()
    (turn,) = await talk.turns()
    assert (turn["status"], turn["error"]) == ("completed", None)
    assert await talk.spoken() == [*[("incomplete", text) for text in torn], ("completed", TOLD)]
    assert len(road.provider.requests) == arrived
    await talk.check_usable()


async def test_a_reset_in_mid_text_keeps_what_had_arrived(road: Road, client: AsyncOpenAI) -> None:
    """A reset may overtake what was sent before it."""
    road.proxy.queue(Weather("reset", after=MIDDLE_OF_TEXT))
    road.provider.queue(STORY, STORY)
    talk = Talk(client)
    await talk.begin()
    *torn, whole = await talk.spoken()
    assert whole == ("completed", TOLD)
    assert all(status == "incomplete" and TOLD.startswith(text) for status, text in torn)
    await talk.check_usable()


@pytest.mark.parametrize("end", ["cut", "stall", pytest.param("reset", marks=LONG)])
async def test_a_call_that_broke_off_is_never_asked_for(road: Road, client: AsyncOpenAI, end: Any) -> None:
    road.proxy.queue(Weather(end, after=MIDDLE_OF_CALL))
    road.provider.queue(ASKING, ASKING, STORY)
    talk = Talk(client)
    (action,) = (await talk.begin())["required_actions"]
    assert action["arguments"] == {"city": "MIDDLETOWN"}
    await talk.answer(action)
    items = await talk.items()
    assert [i["call_id"] for i in items if i["type"] == "function_call"] == [action["call_id"]]
    assert [i["call_id"] for i in items if i["type"] == "function_call_output"] == [action["call_id"]]
    assert [turn["status"] for turn in await talk.turns()] == ["completed"]
    assert [text for status, text in await talk.spoken() if status == "completed"] == ["I look.", TOLD]
    await talk.check_usable()


@pytest.mark.parametrize("end", ["cut", pytest.param("stall", marks=LONG)])
async def test_a_step_behind_a_result_is_made_again_and_the_call_is_not(
    road: Road, client: AsyncOpenAI, end: Any
) -> None:
    road.provider.queue(ASKING, STORY, STORY)
    talk = Talk(client)
    (action,) = (await talk.begin())["required_actions"]
    road.proxy.queue(Weather(end, after=MIDDLE_OF_TEXT))
    assert (await talk.answer(action))["required_actions"] == []
    items = await talk.items()
    assert sum(item["type"] == "function_call" for item in items) == 1
    assert (await talk.spoken())[-2:] == [("incomplete", "Once upon a "), ("completed", TOLD)]
    await talk.check_usable()


FAILED = [
    pytest.param(Weather("cut", after=0), 0, "connection_failed", id="cut before the first byte"),
    pytest.param(
        Weather("reset", after=0), 0, "connection_failed", id="reset before the first byte", marks=LONG
    ),
    pytest.param(Weather("stall", after=0), 0, "request_timeout", id="half-open before the first byte"),
    pytest.param(Weather("cut", after=MIDDLE_OF_TEXT), 2, "connection_failed", id="cut in mid-text"),
    pytest.param(Weather("stall", after=MIDDLE_OF_TEXT), 2, "request_timeout", id="half-open in mid-text"),
]


@pytest.mark.parametrize(("weather", "torn", "code"), FAILED)
async def test_a_turn_whose_attempts_all_break_fails_with_the_reason(
    road: Road, client: AsyncOpenAI, weather: Weather, torn: int, code: str
) -> None:
    road.proxy.queue(*[weather] * ATTEMPTS)
    road.provider.queue(*[STORY] * ATTEMPTS)
    talk = Talk(client)
    assert (await talk.begin())["status"] == "idle"
    (turn,) = await talk.turns()
    assert (turn["status"], turn["error"]["code"]) == ("failed", code)
    assert KEY not in turn["error"]["message"]
    assert await talk.spoken() == [("incomplete", "Once upon a ")] * torn
    await talk.check_usable()


async def test_a_provider_that_is_not_there_is_a_failed_connection(road: Road, client: AsyncOpenAI) -> None:
    road.proxy.refuse()
    talk = Talk(client)
    await talk.begin()
    await road.proxy.start()
    (turn,) = await talk.turns()
    assert (turn["status"], turn["error"]["code"]) == ("failed", "connection_failed")
    await talk.check_usable()


@pytest.mark.parametrize(("after", "whole"), [(END, True), (MIDDLE_OF_TEXT, False)])
async def test_what_arrived_before_the_cut_is_read_however_late(seed: str, after: bytes, whole: bool) -> None:
    """The reader is busy while the rest of the answer and the end of the connection arrive."""
    transport = Transport()
    async with (
        asyncio.timeout(DEADLINE),
        ChatProvider(STORY, strict=False) as provider,
        Proxy(("127.0.0.1", provider._port), seed) as proxy,
    ):
        proxy.queue(Weather("cut", after=after))
        headers = {"Authorization": f"Bearer {KEY}"}
        url = f"{proxy.url}/v1{provider.PATH}"
        async with transport.post(provider.settings(), url, headers, {"model": "fake"}) as answer:
            while answer._response.content.exception() is None:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            chunks: list[Json] = []
            with contextlib.nullcontext() if whole else pytest.raises(ModelError, match="closed"):
                async for batch in answer:
                    chunks += batch
    await transport.close()
    told = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)
    assert told == (TOLD if whole else "Once upon a ")


def a_plan(recorded: Recorded) -> Plan:
    """Ask for the weather, and tell it when it is known."""
    entries = recorded.body.get("input") or recorded.body["messages"]
    newest = entries[-1]
    return STORY if newest.get("type") == "function_call_output" or newest["role"] == "tool" else ASKING


def any_weather(choice: random.Random) -> Weather:
    """Half of the exchanges end before their time, at any byte."""
    dribble = choice.random() < 0.3
    if choice.random() < 0.5:
        return Weather(dribble=dribble, delay=choice.choice([0, 0.01]))
    way: Any = choice.choice(["up", "down", "down"])
    end: Any = choice.choice(["cut", "cut", "reset", "reset", "stall"])
    return Weather(end, after=int(10 ** choice.uniform(0, 4)), way=way, dribble=dribble)


async def talk_in_any_weather(road: Road, client: AsyncOpenAI, seed: str, rounds: int) -> None:
    choice = random.Random(seed)
    road.provider.planner = a_plan
    road.proxy.queue(*(any_weather(choice) for _ in range(rounds * 2)))
    talk = Talk(client)
    session = await talk.begin("Round 0.")
    for number in range(1, rounds):
        if session["required_actions"]:
            session = await talk.answer(session["required_actions"][0])
        session = await talk.send(said(f"Round {number}."))
    while road.proxy.unmet:
        session = await talk.send(said("On.")) if session["status"] == "idle" else session
        for action in session["required_actions"]:
            session = await talk.answer(action)
    for action in session["required_actions"]:
        session = await talk.answer(action)
    assert session["status"] == "idle"
    await check_any_weather(talk)
    road.provider.planner = None
    await talk.check_usable()


async def check_any_weather(talk: Talk) -> None:
    """Each turn ended for a reason, and what is completed is whole."""
    turns, items = await talk.turns(), await talk.items()
    for turn in turns:
        code = None if turn["error"] is None else turn["error"]["code"]
        allowed = {"completed": {None}, "failed": {"connection_failed", "request_timeout"}}
        assert code in allowed[turn["status"]], turn
    calls = [item["call_id"] for item in items if item["type"] == "function_call"]
    results = [item["call_id"] for item in items if item["type"] == "function_call_output"]
    assert len(set(calls)) == len(calls)
    assert calls == results
    for status, text in await talk.spoken():
        assert (
            text in ("I look.", TOLD) if status == "completed" else TOLD.startswith(text) or text in "I look."
        )


async def test_a_conversation_in_any_weather(road: Road, client: AsyncOpenAI, seed: str) -> None:
    await talk_in_any_weather(road, client, f"{seed} any", rounds=5)


@pytest.mark.long
@pytest.mark.parametrize("part", range(10))
async def test_a_long_conversation_in_any_weather(
    road: Road, client: AsyncOpenAI, seed: str, part: int
) -> None:
    await talk_in_any_weather(road, client, f"{seed} {part}", rounds=20)
