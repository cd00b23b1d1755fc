"""Agents that work beside each other: what one is shown of the others, and what it no longer begins."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.server import scripted_config
from tests.subagents.crew import Crew

from perdure.config.settings import load_settings
from perdure.harness.attempt import Attempt
from perdure.harness.conversation import Conversation
from perdure.harness.cuts import row_tokens
from perdure.harness.deps import Deps
from perdure.harness.excerpts import READ_RESULT
from perdure.harness.halt import Halt
from perdure.harness.reading import read_parts
from perdure.harness.step import Step
from perdure.harness.stream import AnswerStream
from perdure.live.hub import Hub
from perdure.models.errors import ModelError
from perdure.models.messages import CallDone, FunctionResult, ServerNote, TextPart
from perdure.models.registry import Registry
from perdure.store.compactions import load_history
from perdure.store.coordination import Coordination
from perdure.store.engine import open_engine
from perdure.store.migrate import migrate
from perdure.store.spending import Tally
from perdure.store.sqlite import SqliteStore
from perdure.store.steps import Text
from perdure.store.tables import model_calls

MOST = 2000
LONG = "".join(f"{number} and on. " for number in range(2000))


def ask(arguments: str) -> CallDone:
    return CallDone(0, READ_RESULT, arguments)


async def test_what_subagents_told_is_bounded_and_can_be_read_on(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/perdure.db"
    engine = open_engine(url)
    migrate(engine)
    crew = Crew(engine)
    crew.step("", *(Coordination("create_subagent", {"task": "Look.", "name": name}) for name in ("a", "b")))
    crew.look_around()
    crew.say("a", LONG)
    part = {"type": "output_text", "text": LONG}
    crew.step("b", Text("message", {"role": "assistant", "content": [part], "phase": "commentary"}))
    crew.call("", "interrupt_subagent", agent_id="b")
    root = str(crew.row.agent_id)
    with engine.connect() as conn:
        history = load_history(conn, crew.id, root)
    engine.dispose()
    conversation = Conversation(history.items)
    turn = history.items[-1].turn_id
    entries = conversation.entries("p", "m", turn, MOST)
    assert conversation.is_cut
    (report,) = [entry for entry in entries if isinstance(entry, ServerNote)]
    assert isinstance(report.content[1], TextPart)
    result = [entry for entry in entries if isinstance(entry, FunctionResult)][-1]
    assert isinstance(result.content, str)
    places = {row.type: row.id for row in history.items}
    store = await SqliteStore.open(url, lambda _: None)
    try:
        for shown, kind in (
            (report.content[1].text, "agent_message"),
            (result.content, "interrupt_subagent_call"),
        ):
            place = places[kind]
            assert len(shown) < MOST + 400
            assert f"with call_id {place} and offset" in shown
            read, head = "", ""
            while "This is the end" not in head and len(read) < 2 * len(LONG):
                arguments = json.dumps({"call_id": place, "offset": len(read)})
                answer = (await read_parts(store, crew.id, root, [ask(arguments)], MOST))[0]
                head, _, text = answer.partition("\n")
                read += text
            assert LONG in read
            arguments = json.dumps({"call_id": place, "offset": 0})
            another = await read_parts(store, crew.id, "agt_another", [ask(arguments)], MOST)
            assert "There is no stored result" in another[0]
    finally:
        await store.close()
    assert max(row_tokens(row, MOST) for row in history.items) < MOST


class Alone:
    """An agent that no others work beside."""

    async def hold(self, holder: str, agent_ids: Iterable[str]) -> None:
        raise AssertionError("it ends nobody's turn")


@dataclass(frozen=True)
class Place:
    """A loop on a database, and what the agents of a session there have come to."""

    deps: Deps
    crew: Crew


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    script = '[otherwise]\nanswer = [{ text = "x" }]\n'
    settings = load_settings(scripted_config(tmp_path, {"m": script}), {}, {"data_dir": str(tmp_path)})
    store = await SqliteStore.open(settings.database, lambda _: None)
    registry = Registry(settings)
    engine = open_engine(settings.database)
    try:
        deps = Deps(settings, store, Hub(1 << 20), registry, asyncio.Semaphore(1))
        yield Place(deps, Crew(engine))
    finally:
        engine.dispose()
        await registry.close()
        await store.close()


async def test_a_call_that_broke_is_not_made_again_for_a_turn_that_is_about_to_be_ended(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    boundary = next(iter(place.crew.boundaries.values()))
    halt = Halt()
    calls = 0

    async def breaks(self: AnswerStream, attempt: Attempt, resolved: object, request: object) -> bool:
        nonlocal calls
        calls += 1
        assert calls == 1
        writing = await self._open(attempt, 0, "message")
        writing.live.append_text("It is")
        # Another agent has just asked for the end of the turn.
        halt.held_by.add("agt_another")
        halt.requested.set()
        raise ModelError("server_error", "It broke.", retryable=True)

    monkeypatch.setattr(AnswerStream, "read", breaks)
    left = await Step(place.deps, boundary, Conversation(boundary.items), halt, Alone()).run()
    assert (left.state, left.is_reserved) == ("run", False)


async def test_a_call_whose_turn_was_ended_under_it_is_counted_once(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    crew = place.crew
    crew.step("", Coordination("create_subagent", {"task": "Look.", "name": "one"}))
    crew.look_around()
    (boundary,) = [each for each in crew.boundaries.values() if each.subagent is not None]
    before = Tally(**crew.row.spent)

    async def breaks(self: AnswerStream, attempt: Attempt, resolved: object, request: object) -> bool:
        assert attempt.call is not None
        attempt.call.begin()
        crew.step("", Coordination("interrupt_subagent", {"agent_id": "one"}))
        raise ModelError("server_error", "It broke.", retryable=True)

    monkeypatch.setattr(AnswerStream, "read", breaks)
    left = await Step(place.deps, boundary, Conversation(boundary.items), Halt(), Alone()).run()
    assert left.state == "idle"
    after = Tally(**crew.row.spent)
    # The call of the subagent, and that of the step with which the root interrupted it.
    assert (after.model_calls - before.model_calls, after.reserved) == (2, 1)
    assert [call.outcome for call in crew.rows(model_calls)] == ["cancelled"]
