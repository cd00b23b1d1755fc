"""How requests are repeated, and what becomes of results that a server does not take."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from openai import APIStatusError, AsyncOpenAI, NotFoundError
from tests.server import ServerProcess

from perdure import (
    Agent,
    NothingToResume,
    ResultRefused,
    SessionBusy,
    SessionFailed,
    Sessions,
    ToolFinished,
    ToolResult,
    tool,
)
from perdure.sdk.asgi import AsgiTransport
from perdure.sdk.requests import persistently

from .test_runs import NAME, caller
from .test_session_ledgers import OrderLedger

Answer = tuple[int, dict[str, str], dict[str, Any]]


def error(status: int, message: str = "no", code: str = "conflict_error", **headers: str) -> Answer:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return status, names, {"error": {"message": message, "type": code, "code": code, "param": None}}


@pytest.fixture
def answering() -> Callable[..., tuple[AsyncOpenAI, list[str]]]:
    """A client whose server gives these answers, one after the other, and the keys it has seen."""

    def make(*answers: Answer) -> tuple[AsyncOpenAI, list[str]]:
        left, keys = iter(answers), []

        async def app(scope: Any, receive: Any, send: Any) -> None:
            keys.append(dict(scope["headers"]).get(b"idempotency-key", b"").decode())
            status, headers, body = next(left)
            raw = [(b"content-type", b"application/json")]
            raw += [(name.encode(), value.encode()) for name, value in headers.items()]
            await send({"type": "http.response.start", "status": status, "headers": raw})
            await send({"type": "http.response.body", "body": json.dumps(body).encode()})

        http = httpx2.AsyncClient(transport=AsgiTransport(app))
        return AsyncOpenAI(base_url="http://inside/v1", api_key="k", max_retries=0, http_client=http), keys

    return make


async def post(client: AsyncOpenAI, **options: Any) -> None:
    await persistently(
        lambda: client.beta.agents.sessions.events.create("s", events=[], idempotency_key="key"),
        30.0,
        **options,
    )


@pytest.mark.parametrize(
    "passing", [error(500), error(503), error(429, retry_after="0"), error(408), error(409)]
)
async def test_what_may_pass_is_tried_again_under_the_same_key(answering: Any, passing: Answer) -> None:
    client, keys = answering(passing, passing, (202, {}, {}))
    await post(client)
    assert keys == ["key"] * 3


@pytest.mark.parametrize(
    "lasting", [error(400), error(401), error(404), error(409, x_should_retry="false"), error(422)]
)
async def test_what_cannot_pass_is_raised_at_once(answering: Any, lasting: Answer) -> None:
    client, keys = answering(lasting)
    with pytest.raises(APIStatusError):
        await post(client)
    assert len(keys) == 1


async def test_a_turn_that_winds_down_is_waited_for(answering: Any) -> None:
    client, keys = answering(error(409, x_should_retry="false"), (202, {}, {}))
    await post(client, settles=True)
    assert len(keys) == 2


class Meddler(httpx2.AsyncBaseTransport):
    """A network that answers some results itself."""

    def __init__(self, meddle: Callable[[dict[str, Any]], Answer | None]) -> None:
        self._real = httpx2.AsyncHTTPTransport()
        self._meddle = meddle

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "POST" and request.url.path.endswith("/events"):
            (event,) = json.loads(await request.aread())["events"]
            answer = self._meddle(event) if event["type"].endswith("tool_result") else None
            if answer is not None:
                return httpx2.Response(answer[0], headers=answer[1], json=answer[2])
        return await self._real.handle_async_request(request)

    async def aclose(self) -> None:
        await self._real.aclose()


@pytest.fixture
async def meddled(
    server: ServerProcess, journal_path: Path
) -> AsyncIterator[Callable[[Callable[[dict[str, Any]], Answer | None]], Sessions]]:
    clients = []

    def make(meddle: Callable[[dict[str, Any]], Answer | None]) -> Sessions:
        http = httpx2.AsyncClient(transport=Meddler(meddle))
        client = AsyncOpenAI(
            base_url=server.base_url, api_key=server.api_key, max_retries=0, http_client=http
        )
        clients.append(client)
        return Sessions(client=client, journal=journal_path, patience=30.0)

    yield make
    for client in clients:
        await client.close()


RUNS: list[str] = []


@tool(parameters=NAME)
def work(given: dict[str, str]) -> str:
    """Work."""
    RUNS.append(given["name"])
    return "done"


def session_in(status: str, **members: Any) -> dict[str, Any]:
    return {"id": "s", "status": status, "metadata": {}, "required_actions": [], "error": None, **members}


@pytest.mark.parametrize(
    ("session", "kind", "told"),
    [
        (session_in("idle"), NothingToResume, "has no turn yet"),
        (session_in("failed", error="No sandbox."), SessionFailed, "Session s failed: No sandbox."),
    ],
)
async def test_a_session_that_cannot_go_on_says_why(
    session: dict[str, Any], kind: type[Exception], told: str, tmp_path: Path
) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        is_stream = scope["path"].endswith("/events")
        body = {"object": "list", "data": [], "has_more": False} if "turns" in scope["path"] else session
        form = b"text/event-stream" if is_stream else b"application/json"
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", form)]})
        if is_stream:
            await send({"type": "http.response.body", "body": b": here\n\n", "more_body": True})
            while (await receive())["type"] != "http.disconnect":
                pass
        await send({"type": "http.response.body", "body": b"" if is_stream else json.dumps(body).encode()})

    http = httpx2.AsyncClient(transport=AsgiTransport(app))
    async with (
        AsyncOpenAI(base_url="http://inside/v1", api_key="k", http_client=http) as client,
        Sessions(client=client, journal=tmp_path / "journal.db") as sessions,
    ):
        waiting = sessions.attach("s", caller())
        with pytest.raises(kind, match=told):
            await waiting.follow()
        if kind is SessionFailed:
            with pytest.raises(kind, match=told):
                await waiting.run("Hello")


async def test_a_call_that_is_not_registered_yet_is_offered_again(meddled: Any) -> None:
    RUNS.clear()
    refusals = []

    def too_early(event: dict[str, Any]) -> Answer | None:
        if len(refusals) == 3:
            return None
        refusals.append(event)
        text = f"Unknown pending tool call: {event['call_id']}"
        return error(400, text, "invalid_request_error")

    async with meddled(too_early) as sessions:
        assert (await sessions.start(caller(work)).run("work")).final_output == "It is done."
    assert len(refusals) == 3
    assert RUNS == ["one"]


async def test_a_refused_result_ends_the_run_and_is_sent_again_by_a_resume(meddled: Any) -> None:
    RUNS.clear()
    refusing = [True]

    def refuse(event: dict[str, Any]) -> Answer | None:
        return error(400, "Not in this shape.", "invalid_request_error") if refusing else None

    async with meddled(refuse) as sessions:
        session = sessions.start(caller(work))
        with pytest.raises(ResultRefused, match="Not in this shape"):
            await session.run("work")
        refusing.clear()
        assert (await sessions.resume(session.id)).final_output == "It is done."
    assert RUNS == ["one"]


async def test_a_result_that_came_too_late_is_told_and_the_run_goes_on(
    meddled: Any, sessions: Sessions
) -> None:
    def too_late(event: dict[str, Any]) -> Answer:
        return error(409, "The tool call already has a different result.", x_should_retry="false")

    async with (
        meddled(too_late) as late,
        late.start(caller(work)).stream("work") as events,
    ):
        async for event in events:
            if isinstance(event, ToolFinished):
                assert not event.is_accepted
                other = ToolResult(True, "somebody else's").event(event.pair.turn_id, event.pair.call_id)
                await sessions.attach(event.pair.session_id, caller()).post([other], "other")
        result = await events.result()
    assert result.final_output == "It is somebody else's."


async def test_a_refused_creation_leaves_nothing_behind(sessions: Sessions) -> None:
    session = sessions.start(Agent(model="nobody's"), ledger=OrderLedger(order_id="A-1042"))
    with pytest.raises(NotFoundError):
        await session.run("Hello")
    assert not session.exists
    journal = await sessions.journal()
    assert await journal.run(journal.journal.ledgers.pending) == []
    with pytest.raises(NotFoundError):
        await session.run("Hello")


async def test_a_session_is_created_once(sessions: Sessions) -> None:
    session = sessions.start(caller())
    results = await asyncio.gather(session.run("one"), session.run("two"), return_exceptions=True)
    (refused,) = [result for result in results if isinstance(result, BaseException)]
    assert isinstance(refused, SessionBusy)
    turns = [turn async for turn in sessions.resource.turns.list(session.id)]
    assert len(turns) == 1


async def test_a_stream_that_is_never_entered_begins_nothing(sessions: Sessions) -> None:
    session = sessions.start(Agent(name="caller", model="caller"))
    session.stream("never")
    assert (await session.run("Hello")).final_output == "You said: Hello"
