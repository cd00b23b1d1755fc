"""Agents of one session whose transactions cross: what is counted, and what each is told, stays right."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine
from tests.subagents.crew import Crew

from perdure.store.coordination import Coordination
from perdure.store.engine import open_engine
from perdure.store.handover import hand_back
from perdure.store.migrate import migrate
from perdure.store.spending import Tally
from perdure.store.tables import model_calls, turns

CREATE = Coordination("create_subagent", {"task": "Look.", "name": "one"})
INTERRUPT = Coordination("interrupt_subagent", {"agent_id": "one"})
SEND = Coordination("send_subagent_input", {"agent_id": "one", "input": "Rather this."})


@pytest.fixture
def crew(database_url: str) -> Iterator[Crew]:
    engine: Engine = open_engine(database_url)
    migrate(engine)
    yield Crew(engine)
    engine.dispose()


def reserved(crew: Crew) -> int:
    return Tally(**(crew.row.spent or {})).reserved


def test_a_call_that_a_drain_kept_from_beginning_is_released_though_its_turn_was_ended(crew: Crew) -> None:
    crew.step("", CREATE)
    crew.look_around()
    # The subagent's process drains in front of its call; the root's last step ends the turn, and its own.
    crew.step("", INTERRUPT, ends=True)
    assert (crew.row.owner, reserved(crew)) == (None, 1)
    with crew.tx() as inside:
        assert not hand_back(inside, crew.id, "worker_1", unbegun=1)
    assert reserved(crew) == 0


def test_a_session_of_another_owner_keeps_its_reservations(crew: Crew) -> None:
    with crew.tx() as inside:
        assert not hand_back(inside, crew.id, "worker_2", unbegun=1)
    assert (crew.row.owner, reserved(crew)) == ("worker_1", 1)


def test_the_step_of_a_turn_that_was_ended_hears_what_begins_the_next(crew: Crew) -> None:
    crew.step("", CREATE)
    crew.look_around()
    crew.step("", INTERRUPT, SEND)
    crew.say("one", "Too late.")
    (boundary,) = [each for each in crew.boundaries.values() if each.subagent is not None]
    assert [item.data["content"][0]["text"] for item in boundary.items] == ["Rather this."]


def test_a_session_that_was_handed_back_costs_no_call(crew: Crew) -> None:
    crew.step("", CREATE)
    crew.look_around()
    before = [turn.model_calls for turn in crew.rows(turns)]
    with crew.tx() as inside:
        assert hand_back(inside, crew.id, "worker_1", unbegun=2)
    crew.take_over()
    assert [turn.model_calls for turn in crew.rows(turns)] == before
    assert [call.outcome for call in crew.rows(model_calls)].count("interrupted") == 0
    # An owner that dies has broken off the call of the root, and the one of the subagent.
    crew.look_around()
    crew.take_over()
    assert [turn.model_calls for turn in crew.rows(turns)] == [count + 1 for count in before]
    assert [call.outcome for call in crew.rows(model_calls)].count("interrupted") == 2
