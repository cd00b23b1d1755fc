"""Lives that once broke the rules, played again by the machine."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from tests.server import ServerProcess

from perdure.live.hub import Hub
from perdure.wire.events import ItemAdded, ItemDone
from perdure.wire.items import AssistantMessageItem

from .life import wait_for
from .rules import Result
from .test_machine import SessionMachine

YES, NO = Result(True, "7"), Result(False, None, "No.")


@pytest.fixture
def state(machine_server: ServerProcess) -> Iterator[SessionMachine]:
    class Machine(SessionMachine):
        server = machine_server

    made = Machine()
    yield made
    made.teardown()


def answer(which: int, result: Result = YES) -> Any:
    return ("answer", (which, result, "call"))


@pytest.mark.parametrize("word", ["weather", "two", "mixed"])
def test_a_turn_behind_an_answered_and_cancelled_one_says_that_the_session_runs(
    state: SessionMachine, word: str
) -> None:
    state.first(word=word, stream=True)
    life = state.life(0)
    answers = [answer(number) for number in life.world.owed]
    state.batch(slot=0, batch=[*answers, ("cancel", None), ("say", ["hold"])], keyed=False, settle=True)
    state.look_in(slot=0, settle=True)


@pytest.mark.parametrize("first", ["async", "mute"])
def test_messages_between_two_cancels_of_an_idle_session_are_kept(state: SessionMachine, first: str) -> None:
    state.first(word=first, stream=False)
    batch = [("cancel", None), ("say", ["say", "hold"]), ("cancel", None), ("say", ["think"])]
    state.batch(slot=0, batch=batch, keyed=True, settle=True)
    state.repeat(slot=0)


def test_the_idle_of_a_dropped_call_tells_when_the_session_was_last_active(state: SessionMachine) -> None:
    state.first(word="async", stream=False)
    life = state.life(0)
    before = life.seen
    assert before is not None
    wait_for(lambda: time.time() >= before.session["last_active_at"] + 1.01, "the clock stands still")
    state.cancel(slot=0, settle=True)
    assert life.seen is not None
    assert life.seen.session["last_active_at"] > before.session["last_active_at"]


@pytest.mark.parametrize("word", ["think", "two", "mixed", "stubborn", "tear", "break", "mute"])
def test_a_repeated_creation_tells_the_first_turn_as_it_was(state: SessionMachine, word: str) -> None:
    state.first(word=word, stream=True)
    state.recreate(slot=0)
    while state.life(0).world.owed:
        state.answer_open(slot=0, which=0, result=NO, settle=True)
    state.recreate(slot=0)
    state.message(slot=0, word="weather", settle=True)
    state.recreate(slot=0)
    state.restart(kill=True, settle=True)
    state.recreate(slot=0)


async def test_an_event_that_is_announced_behind_the_snapshot_that_tells_of_it_is_not_told_again() -> None:
    session, turn = "sess_0123456789abcdef01234567", "turn_1"
    item = AssistantMessageItem(id="msg_1", turn_id=turn, status="in_progress", content=[])
    where: Any = {"session_id": session, "turn_id": turn, "item": item, "output_index": 0}
    fan = Hub(1 << 20)
    reader = fan.subscribe(session, obfuscate=False)
    reader.attach(2, ["msg_1"])
    fan.publish(session, 2, ItemAdded(event_id="evt_2", **where))
    fan.publish(session, 3, ItemDone(event_id="evt_3", **where))
    frames = await reader.next_batch(0.01) or []
    told = [orjson.loads(frame.encoded(False).split(b"data: ")[1]) for frame in frames]
    assert [event["event_id"] for event in told] == ["evt_3"]
