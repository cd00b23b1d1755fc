"""Runs over a network that breaks: nothing is lost, and nothing happens twice."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.chaos.proxy import CLEAR, Proxy, Weather
from tests.server import ServerProcess, scripted_config

from perdure import Agent, ConnectionLost, Recovered, Sessions, tool

from .conftest import Gate
from .scripts import MODELS, SETTINGS
from .test_runs import NAME, caller


@pytest.fixture
async def proxy(server: ServerProcess) -> AsyncIterator[Proxy]:
    async with Proxy(server.address, "recovery") as opened:
        yield opened


@pytest.fixture
async def far(server: ServerProcess, proxy: Proxy, journal_path: Path) -> AsyncIterator[Sessions]:
    """Sessions behind the proxy."""
    async with Sessions(
        base_url=proxy.url, api_key=server.api_key, journal=journal_path, patience=30.0
    ) as opened:
        yield opened


def long_text() -> str:
    return "".join(f"{number:07d} " for number in range(4096))


@pytest.mark.parametrize("end", ["cut", "reset"])
async def test_a_stream_that_breaks_in_mid_text_is_picked_up(proxy: Proxy, far: Sessions, end: Any) -> None:
    proxy.queue(Weather(end=end, after=b"output_text.delta"))
    async with far.start(Agent(name="long", model="long")).stream("Go on.") as events:
        recovered = [event async for event in events if isinstance(event, Recovered)]
        result = await events.result()
    assert result.final_output == long_text()
    assert len(recovered) == 1
    assert recovered[0].session.id == result.session_id
    assert proxy.unmet == 0


async def test_a_creation_whose_answer_is_lost_makes_one_session(
    proxy: Proxy, far: Sessions, gate: Gate
) -> None:
    proxy.queue(Weather(end="cut", after=0), Weather(end="reset", after=20))
    gate.release()
    result = await far.start(caller(), metadata={"test": gate.text}).run(gate.text)
    assert result.final_output == "Before, after."
    made = [session.id async for session in far.resource.list(metadata={"test": gate.text})]
    assert made == [result.session_id]


async def test_a_message_whose_answer_is_lost_is_said_once(proxy: Proxy, far: Sessions) -> None:
    session = far.start(caller())
    await session.run("Hello")
    # The subscription and the two reads get through; then the message does, and its answer does not.
    proxy.queue(CLEAR, CLEAR, CLEAR, Weather(end="cut", after=0))
    result = await session.run("Again")
    assert result.final_output == "You said: Again"
    assert proxy.unmet == 0
    turns = [turn async for turn in far.resource.turns.list(session.id)]
    assert len(turns) == 2


async def test_whatever_breaks_the_function_runs_once_and_its_result_arrives(
    proxy: Proxy, far: Sessions
) -> None:
    runs: list[str] = []

    @tool(parameters=NAME)
    def work(given: dict[str, str]) -> str:
        """Work."""
        runs.append(given["name"])
        return "done"

    agent = caller(work)
    for cut in range(0, 4000, 400):
        # The creation's stream breaks after so many bytes, and so do the next three exchanges.
        proxy.renew(str(cut))
        proxy.queue(*(Weather(end="cut", after=cut) for _ in range(4)))
        runs.clear()
        result = await far.start(agent).run("work")
        assert result.final_output == "It is done.", cut
        assert runs == ["one"], cut
        assert proxy.unmet == 0, cut
        assert await result.session.reconcile() == [], cut


async def test_a_restart_of_the_server_in_between_is_survived(tmp_path: Path, journal_path: Path) -> None:
    home = tmp_path / "own"
    home.mkdir()
    (home / "gates").mkdir()
    with ServerProcess(scripted_config(home, MODELS, SETTINGS), home / "data") as own:
        async with (
            Proxy(own.address, "restart") as proxy,
            Sessions(base_url=proxy.url, api_key=own.api_key, journal=journal_path, patience=60.0) as far,
        ):
            session = far.start(caller())
            async with session.stream("gate one") as events:
                async for event in events:
                    if event.type == "agent.session.turn.output_text.delta":
                        break
                own.kill()
                own.start()
                proxy.target = own.address
                (home / "gates" / "one").touch()
                result = await events.result()
            assert result.final_output == "Before, after."


async def test_a_server_that_stays_away_is_told_and_nothing_is_claimed(
    proxy: Proxy, server: ServerProcess, journal_path: Path, gate: Gate
) -> None:
    async with Sessions(
        base_url=proxy.url, api_key=server.api_key, journal=journal_path, patience=0.5
    ) as impatient:
        session = impatient.start(caller())
        async with session.stream(gate.text) as events:
            async for event in events:
                if event.type == "agent.session.turn.output_text.delta":
                    break
            proxy.refuse()
            with pytest.raises(ConnectionLost) as lost:
                await events.result()
        assert lost.value.session_id == session.id
        await proxy.start()
        gate.release()
        assert (await impatient.resume(session.id)).final_output == "Before, after."
