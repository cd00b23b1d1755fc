"""Clients behind a bad network: what was accepted counts once, and nothing that happened stays unknown."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from typing import Any

import pytest
from openai import AsyncOpenAI
from tests.server import ServerProcess, scripted_config

from .arrival import check_told, stored_behind
from .picture import Json, text_of
from .proxy import CLEAR, Proxy, Weather
from .traveller import Reader, Replayer, Traveller, said, through

DEADLINE = 240.0
SETTINGS = """
[server]
keepalive = 0.25
"""
GUIDE = """
[[rule]]
when = { after_result_of = "weather" }
answer = [{ delta_size = 8, pause = 0.004, text = "STORY It is {result}, and all of it was told." }]

[[rule]]
when = { user_matches = "weather in (?P<city>[A-Z]\\\\w+)", has_tool = "weather", step = 0 }
answer = [
    { delta_size = 8, pause = 0.004, text = "I look at {city}, and at Rome as well. STORY" },
    { call = "weather", arguments = { city = "{city}" } },
    { call = "weather", arguments = { city = "Rome" } },
]

[otherwise]
answer = [{ delta_size = 8, pause = 0.004, text = "You said: {user}. STORY" }]
""".replace("STORY", "".join(f"word {number}, " for number in range(40)))
WEATHER: Any = {
    "type": "function",
    "name": "weather",
    "description": "The weather in a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    home = tmp_path_factory.mktemp("guide")
    with ServerProcess(scripted_config(home, {"guide": GUIDE}, SETTINGS), home / "data") as process:
        yield process


def bad_weather(choice: random.Random) -> Weather:
    """Any weather; two exchanges of three end before their time, if they are long enough."""
    dribble = choice.random() < 0.3
    if choice.random() < 0.33:
        return choice.choice([CLEAR, Weather(dribble=dribble), Weather(delay=0.02)])
    return Weather(
        choice.choice(["cut", "cut", "reset", "reset", "stall"]),
        after=int(10 ** choice.uniform(0, 4.3)),
        way=choice.choice(["up", "down", "down"]),
        dribble=dribble,
    )


def rounds_of(choice: random.Random, count: int) -> list[list[str]]:
    """What a client says: always something else, sometimes twice at once."""
    rounds = []
    for number in range(count):
        texts = [choice.choice([f"The weather in Oslo{number}?", f"Note {number}."])]
        if number and choice.random() < 0.3:
            texts.append(f"And note {number} as well.")
        rounds.append(texts)
    return rounds


async def travel(
    kind: type[Traveller], server: ServerProcess, seed: str, rounds: int
) -> tuple[Traveller, Proxy]:
    """Send a client through a network of its own, and check what it knows in the end."""
    choice = random.Random(f"{seed} says")
    proxy = Proxy(server.address, seed, lambda: bad_weather(proxy.choice))
    async with proxy, kind(*through(server, proxy), "guide", [WEATHER]) as traveller:
        try:
            async with asyncio.timeout(DEADLINE):
                await traveller.converse(rounds_of(choice, rounds))
        except BaseException as error:
            error.add_note(f"{kind.__name__} {seed}: {traveller.picture}\n{proxy.seen}\n{server.stderr()}")
            raise
        return traveller, proxy


async def check(traveller: Traveller, server: ServerProcess) -> None:
    """The client knows exactly what the API lists, and everything happened once."""
    session_id, picture = traveller.session_id, traveller.picture
    async with AsyncOpenAI(base_url=server.base_url, api_key=server.api_key, timeout=DEADLINE) as client:
        sessions = client.beta.agents.sessions
        items = [i.to_dict() async for i in sessions.items.list(session_id, order="asc", limit=100)]
        turns = [t async for t in sessions.turns.list(session_id, order="asc", limit=100)]
        assert picture.session == (await sessions.retrieve(session_id)).to_dict()
        assert list(picture.items.values()) == items
        assert picture.turns == {turn.id: "completed" for turn in turns}
        if isinstance(traveller, Replayer):
            check_told(traveller.told, await stored_behind(client, server.url, session_id, traveller.first))
    assert picture.user_texts == traveller.said
    check_calls(items, traveller)
    assert all(text_of(item).strip() for item in items if item["type"] == "message")
    assert {item["status"] for item in items} == {"completed"}


def check_calls(items: list[Json], traveller: Traveller) -> None:
    """Every call of the model was run once, and has the result of that."""
    cities = {i["call_id"]: i["arguments"]["city"] for i in items if i["type"] == "function_call"}
    results = [(i["call_id"], i["output"]) for i in items if i["type"] == "function_call_output"]
    assert sorted(results) == sorted((call, f"fine in {city}") for call, city in cities.items())
    assert dict(traveller.ran) == dict.fromkeys(cities, 1)
    # The model asks twice for a message about the weather, if it was the last word of its request.
    asked = sum("weather" in text for text in traveller.said)
    assert len(cities) <= 2 * asked


async def travel_together(server: ServerProcess, seed: str, clients: int, rounds: int) -> None:
    """Many clients at once, half of each kind."""
    async with asyncio.TaskGroup() as group:
        trips = [
            group.create_task(travel((Reader, Replayer)[n % 2], server, f"{seed} {n}", rounds))
            for n in range(clients)
        ]
    arrived = [trip.result() for trip in trips]
    for traveller, _ in arrived:
        await check(traveller, server)
    print({type(t).__name__: t.connections for t, _ in arrived})
    assert sum(traveller.connections for traveller, _ in arrived) > clients
    assert len({w.end for _, proxy in arrived for w in proxy.seen}) > 2


@pytest.mark.slow
async def test_clients_behind_a_bad_network_know_everything_and_do_it_once(
    server: ServerProcess, seed: str
) -> None:
    await travel_together(server, seed, clients=4, rounds=2)


@pytest.mark.long
@pytest.mark.parametrize("part", range(4))
async def test_many_clients_behind_bad_networks(server: ServerProcess, seed: str, part: int) -> None:
    await travel_together(server, f"{seed} part {part}", clients=12, rounds=8)


async def test_a_dribbling_network_changes_nothing(server: ServerProcess, seed: str) -> None:
    async with (
        Proxy(server.address, seed, lambda: Weather(dribble=True)) as proxy,
        Reader(*through(server, proxy), "guide", [WEATHER]) as reader,
        Replayer(*through(server, proxy), "guide", [WEATHER]) as replayer,
        asyncio.timeout(DEADLINE),
    ):
        for traveller in (reader, replayer):
            traveller.name += type(traveller).__name__
            await traveller.converse([["The weather in Bergen?"]])
            await check(traveller, server)


@pytest.mark.parametrize("end", ["cut", "reset", "stall"])
async def test_an_input_whose_answer_is_lost_counts_once(server: ServerProcess, seed: str, end: Any) -> None:
    """The request arrives and its answer does not, again and again, for each kind of POST."""
    losses = 1 if end == "stall" else 3
    async with (
        Proxy(server.address, seed) as proxy,
        Reader(*through(server, proxy), "guide", [WEATHER]) as traveller,
        asyncio.timeout(DEADLINE),
    ):
        proxy.queue(*[Weather(end, after=0)] * losses)
        traveller.session_id = (
            await traveller.persist(lambda: traveller._create("Note one.", stream=False))
        ).id
        traveller.said.append("Note one.")
        assert proxy.unmet == 0
        for number in range(losses):
            proxy.queue(Weather(end, after=12), Weather(end, after=5, way="up"))
            traveller.said.append(f"Note {number}.")
            await traveller._submit(f"note {number}", [said(f"Note {number}.")])
            assert proxy.unmet == 0
    async with AsyncOpenAI(base_url=server.base_url, api_key=server.api_key, timeout=DEADLINE) as client:
        sessions = client.beta.agents.sessions
        async with await sessions.events.stream(traveller.session_id) as stream:
            async for event in stream:
                if event.type == "agent.session.idle":
                    break
        items = [i.to_dict() async for i in sessions.items.list(traveller.session_id, order="asc", limit=100)]
    assert [text_of(item) for item in items if item.get("role") == "user"] == traveller.said
