"""Clients that post to one node and follow their session on another, and what must hold in the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx2
import psycopg
from openai import APIConnectionError, AsyncOpenAI, DefaultAsyncHttpxClient, InternalServerError
from psycopg.types.json import set_json_loads
from tests.chaos import traveller as chaos
from tests.chaos.arrival import check_told, stored_behind
from tests.chaos.picture import Json
from tests.crash.database import Storage, check_database
from tests.crash.scenario import kind_of, whole
from tests.crash.witness import check_stream
from tests.providers.server import Recorded, text_of

from .installation import Cluster, Part
from .story import STEPS, TOKENS, TOOLS, TRIP, result_of

PATIENCE = 10.0
"""Seconds of silence after which a connection is given up."""
PAUSE = 0.05


class Guest(chaos.Traveller):
    """A traveller whose processes may die. `heard` are the events of each stream it has had."""

    LOST = (APIConnectionError, InternalServerError, chaos.StreamEnded)

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.picture.outlives = True
        self._agent["reasoning"] = {"summary": "auto"}
        self.heard: list[list[Json]] = []
        self.results: dict[str, str] = {}

    async def _lose(self) -> None:
        await super()._lose()
        await asyncio.sleep(PAUSE)

    async def _take(self, event: Json) -> None:
        self.heard[-1].append(event)
        await super()._take(event)

    async def _answer(self, action: Json) -> None:
        output = result_of(action["name"], action["arguments"]["city"])
        result = {"type": "agent.session.input.tool_result", "success": True, "output": output}
        result |= {"turn_id": action["turn_id"], "call_id": action["call_id"]}
        await self._submit(action["call_id"], [result])
        self.results[action["call_id"]] = output


class Reader(Guest, chaos.Reader):
    """Comes back by the documented procedure."""

    async def _follow_once(self) -> None:
        self.heard.append([])
        await super()._follow_once()


class Replayer(Guest, chaos.Replayer):
    """Comes back with the id of the last event it has seen."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.heard.append([])

    async def _events(self, **query: str) -> AsyncIterator[Json]:
        self.heard.append([])
        async for event in super()._events(**query):
            yield event


@dataclass
class Party:
    """Clients that travel at once. `refused` are the statuses that told a client of an error."""

    cluster: Cluster
    guests: list[Guest]
    refused: list[int]

    @classmethod
    def gather(cls, cluster: Cluster, count: int, *, name: str = "guest") -> Party:
        """Clients who each follow on the node to which they do not post; every other one replays."""
        party = cls(cluster, [], [])
        for number in range(count):
            posts, follows = cluster.nodes[:: 1 if number % 4 < 2 else -1]
            kind = Replayer if number % 2 else Reader
            party.guests.append(
                kind(
                    f"{name} {number}",
                    party._client(posts),
                    "crash-test",
                    TOOLS,
                    follows=party._client(follows),
                )
            )
        return party

    def _client(self, node: Part) -> AsyncOpenAI:
        async def note(response: httpx2.Response) -> None:
            if response.status_code >= 400:
                self.refused.append(response.status_code)

        return AsyncOpenAI(
            base_url=node.base_url,
            api_key=node.api_key,
            max_retries=0,
            timeout=PATIENCE,
            http_client=DefaultAsyncHttpxClient(event_hooks={"response": [note]}),
            _strict_response_validation=True,
        )

    async def travel(self, trips: int, *, within: float) -> None:
        """Every client makes its trips, one after the other; raises TimeoutError when that takes too long."""
        try:
            async with asyncio.timeout(within), asyncio.TaskGroup() as group:
                for number, guest in enumerate(self.guests):
                    places = [f"Trip to C{number}x{trip}." for trip in range(trips)]
                    group.create_task(self._travel(guest, places))
        except TimeoutError as error:
            waiting = [guest for guest in self.guests if not guest.picture.rests(guest.said)]
            error.add_note(f"{len(waiting)} have not arrived: {[_brief(guest) for guest in waiting[:5]]}")
            raise

    async def _travel(self, guest: Guest, places: list[str]) -> None:
        try:
            async with guest:
                await guest.converse([[place] for place in places])
        except BaseException as error:
            if not isinstance(error, asyncio.CancelledError):
                error.add_note(f"{guest.name}: {_brief(guest)}")
            raise

    async def check(self, trips: int, *, repeated: bool = True) -> None:
        """Everything that was accepted happened once, and every client knows exactly what is listed.

        repeated: whether deaths may have broken steps off, which were then made again.
        """
        model = self.cluster.model
        assert model.provider.violations == []
        node = self.cluster.nodes[0]
        async with AsyncOpenAI(base_url=node.base_url, api_key=node.api_key, timeout=60.0) as client:
            with psycopg.connect(self.cluster.storage.url or "", autocommit=True) as connection:
                set_json_loads(lambda text: bytes(text).decode(), connection)
                storage = Connected(
                    self.cluster.storage.data_dir, self.cluster.storage.url, connection=connection
                )
                for guest in self.guests:
                    try:
                        await check_guest(guest, client, node, storage, trips)
                    except AssertionError as error:
                        error.add_note(f"{guest.name} {guest.session_id}")
                        raise
        check_requests(model.provider.requests, len(self.guests) * trips, repeated=repeated)


@dataclass(frozen=True)
class Connected(Storage):
    """A storage whose queries share one connection."""

    connection: Any = None

    def query(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = self.connection.execute(
            statement.replace("?", "%s").encode(), values
        ).fetchall()
        return found


async def check_guest(guest: Guest, client: AsyncOpenAI, node: Part, storage: Storage, trips: int) -> None:
    """One session: what it is, what its client knows, what its streams told, and its rows."""
    sessions, session_id = client.beta.agents.sessions, guest.session_id
    session = (await sessions.retrieve(session_id)).to_dict()
    items = [i.to_dict() async for i in sessions.items.list(session_id, order="asc", limit=100)]
    turns = [t.to_dict() async for t in sessions.turns.list(session_id, order="asc", limit=100)]
    assert guest.picture.session == session
    assert list(guest.picture.items.values()) == items
    assert guest.picture.turns == {turn["id"]: "completed" for turn in turns}
    assert guest.picture.user_texts == guest.said
    assert len(turns) == trips
    for turn in turns:
        made = [kind_of(item) for item in items if item["turn_id"] == turn["id"] and whole(item)]
        assert made == TRIP, f"{made} of {turn}"
        assert turn["usage"]["total_tokens"] == STEPS * TOKENS, "a step was charged twice or not at all"
    torn = {item["type"] for item in items if not whole(item)}
    assert torn <= {"message", "reasoning"}
    results = [(i["call_id"], i["output"]) for i in items if i["type"] == "function_call_output"]
    assert dict(results) == guest.results
    assert len(results) == len(guest.results) == 3 * trips
    assert set(guest.ran.values()) == {1}
    by_id = {item["id"]: item for item in items}
    streams = guest.heard if isinstance(guest, Reader) else []
    for events in streams:
        check_stream(events, by_id, outlives=True)
    if isinstance(guest, Replayer):
        check_told(guest.told, await stored_behind(client, node.url, session_id, guest.first))
    check_database(storage, session_id, streams)


def check_requests(requests: list[Recorded], trips: int, *, repeated: bool) -> None:
    """Each step was asked for; where nothing died, once."""
    asked = [step_of(request) for request in requests]
    asked = [step for step in asked if step[0].startswith("Trip to ")]
    assert len(set(asked)) == trips * STEPS
    if not repeated:
        assert len(asked) == len(set(asked)), "a finished step was made again"


def step_of(request: Recorded) -> tuple[str, int]:
    """The trip of a request and its step."""
    entries = request.body["input"]
    trips = [n for n, entry in enumerate(entries) if entry.get("role") == "user"]
    since = entries[trips[-1] :]
    return text_of(since[0]["content"]), sum(entry["type"] == "function_call_output" for entry in since)


def _brief(guest: Guest) -> str:
    picture = guest.picture
    return (
        f"{guest.session_id} {picture.session.get('status')} {picture.turns} after {guest.connections} losses"
    )
