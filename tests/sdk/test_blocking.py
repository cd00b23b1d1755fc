"""Sessions for programs without an event loop."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.server import ServerProcess

from perdure import BlockingSessions, SdkError, ToolFinished, TurnFailed, tool

from .test_runs import NAME, caller


@tool(parameters=NAME)
def work(given: dict[str, str]) -> str:
    """Work."""
    return "done"


@pytest.fixture
def blocking(server: ServerProcess, tmp_path: Path) -> Iterator[BlockingSessions]:
    with BlockingSessions(
        base_url=server.url, api_key=server.api_key, journal=tmp_path / "journal.db"
    ) as opened:
        yield opened


def test_a_run_waits_for_the_answer(blocking: BlockingSessions) -> None:
    session = blocking.start(caller(work))
    assert session.run("work").final_output == "It is done."
    assert session.run("Hello").final_output == "You said: Hello"
    assert blocking.resume(session.id).final_output == "You said: Hello"
    assert len(session.items()) == 6
    assert session.reconcile() == []
    with pytest.raises(TurnFailed):
        session.run("fail")
    assert session.retrieve().status == "idle"
    session.delete()


def test_events_can_be_iterated(blocking: BlockingSessions) -> None:
    with blocking.start(caller(work)).stream("work") as events:
        seen = list(events)
        assert events.result().final_output == "It is done."
    assert [type(event) for event in seen if isinstance(event, ToolFinished)] == [ToolFinished]
    assert seen[-1].type == "agent.session.idle"


def test_it_runs_inside_of_its_context_alone(server: ServerProcess) -> None:
    closed = BlockingSessions(base_url=server.url, api_key=server.api_key)
    with pytest.raises(SdkError, match="with BlockingSessions"):
        closed.start(caller()).run("Hello")


def test_a_function_in_a_thread_may_use_it_and_an_asynchronous_one_is_refused(
    blocking: BlockingSessions,
) -> None:
    other = blocking.start(caller())

    @tool(parameters=NAME, name="work")
    def nested(given: Any) -> str:
        """Work."""
        return other.run("Hello").final_output

    assert blocking.start(caller(nested)).run("work").final_output == "It is You said: Hello."

    @tool(parameters=NAME, name="work", on_failure="raise")
    async def deadly(given: Any) -> str:
        """Work."""
        return other.run("Hello").final_output

    with pytest.raises(SdkError, match="cannot wait for a blocking session"):
        blocking.start(caller(deadly)).run("work")
