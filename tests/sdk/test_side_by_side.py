"""Functions run side by side, off the event loop, while the stream is read; each within its time."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from perdure import Agent, Sessions, ToolStarted, tool

from .test_runs import NAME, caller

TIMEOUT = 60.0


async def test_three_synchronous_functions_run_at_once(sessions: Sessions) -> None:
    together = threading.Barrier(3, timeout=TIMEOUT)

    @tool(parameters=NAME)
    def slow(given: dict[str, str]) -> str:
        """Work."""
        # One after the other, none of them would get past this.
        together.wait()
        return given["name"]

    result = await sessions.start(caller(slow)).run("three")
    assert result.final_output.startswith("It is ")


async def test_deltas_are_read_while_synchronous_functions_run(sessions: Sessions) -> None:
    begun, heard = threading.Barrier(4, timeout=TIMEOUT), threading.Event()

    @tool(parameters=NAME, background=True)
    def slow(given: dict[str, str]) -> str:
        """Work."""
        begun.wait()
        # Only a delta that is read while this runs ends it.
        assert heard.wait(TIMEOUT)
        return given["name"]

    session = sessions.start(Agent(name="talking", model="talking", tools=[slow]))
    async with session.stream("three") as events:
        starting = asyncio.ensure_future(asyncio.to_thread(begun.wait))
        texts = []
        async for event in events:
            if event.type == "agent.session.turn.output_text.delta":
                if not heard.is_set():
                    await starting  # all three are inside of their functions
                    heard.set()
                texts.append(event.delta)
        result = await events.result()
    assert "".join(texts).startswith("In the background.")
    # The results came when the session was idle, and the run went on with the turns that they began.
    outputs = [item for item in await session.items() if item.type == "function_call_output"]
    assert sorted(str(item.output) for item in outputs) == ["one", "three", "two"]
    assert result.final_output == "All are in."
    assert (await session.retrieve()).required_actions == []


async def test_no_more_run_at_once_than_allowed(sessions: Sessions) -> None:
    sessions.max_concurrent_tools = 2
    running, most = 0, 0
    lock = threading.Lock()
    pair = threading.Barrier(2, timeout=TIMEOUT)
    first_two = iter([True, True])

    @tool(parameters=NAME)
    def slow(given: dict[str, str]) -> str:
        """Work."""
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        if next(first_two, False):
            pair.wait()
        with lock:
            running -= 1
        return given["name"]

    await sessions.start(caller(slow)).run("three")
    assert most == 2


@pytest.mark.parametrize("kind", ["synchronous", "asynchronous"])
async def test_a_function_that_takes_too_long_fails_its_call_alone(sessions: Sessions, kind: str) -> None:
    released = threading.Event()

    def hangs(given: dict[str, str]) -> str:
        """Work."""
        if given["name"] == "two":
            released.wait(TIMEOUT)
        return given["name"]

    async def hangs_asynchronously(given: dict[str, str]) -> str:
        """Work."""
        if given["name"] == "two":
            await asyncio.Event().wait()
        return given["name"]

    function: Any = hangs if kind == "synchronous" else hangs_asynchronously
    session = sessions.start(caller(tool(function, parameters=NAME, name="slow", timeout=0.2)))
    try:
        await session.run("three")
    finally:
        released.set()
    outputs = [item for item in await session.items() if item.type == "function_call_output"]
    assert sorted(str(item.output) for item in outputs if item.error is None) == ["one", "three"]
    (error,) = [item.error for item in outputs if item.error is not None]
    assert error == ("slow did not finish within 0.2 s. It may still be running, and its outcome is unknown.")


async def test_a_hanging_thread_keeps_nobody_waiting_when_a_run_is_left(sessions: Sessions) -> None:
    released = threading.Event()

    @tool(parameters=NAME)
    def slow(given: dict[str, str]) -> str:
        """Work."""
        released.wait(TIMEOUT)
        return given["name"]

    session = sessions.start(caller(slow))
    started = 0
    async with session.stream("three") as events:
        async for event in events:
            started += isinstance(event, ToolStarted)
            if started == 3:
                break
    assert (await session.retrieve()).status in ("in_progress", "requires_action")
    released.set()
    await session.cancel()
