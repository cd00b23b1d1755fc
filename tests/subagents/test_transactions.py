"""Agents whose transactions meet: in any order, with an owner that dies between any two of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine

from perdure.store.coordination import Coordination
from perdure.store.engine import now_us, open_engine
from perdure.store.handover import arrivals_among
from perdure.store.locked import Fenced
from perdure.store.migrate import migrate
from perdure.store.policy import Policy

from .conftest import Databases
from .crew import HOUR, Crew

CREATE_ONE = Coordination("create_subagent", {"task": "Look.", "name": "one"})
CREATE_TWO = Coordination("create_subagent", {"task": "Look.", "name": "two"})
WAIT = Coordination("wait_for_subagents", {})


@pytest.fixture(scope="module")
def engine(databases: Databases, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    home: Path = tmp_path_factory.mktemp("rows")
    engine = open_engine(databases() or f"sqlite:///{home}/perdure.db")
    migrate(engine)
    yield engine
    engine.dispose()


Act = Callable[[Crew], None]
STORY: list[Act] = [
    lambda crew: crew.step("", CREATE_ONE, CREATE_TWO, WAIT),
    lambda crew: crew.say("one", "It is red."),
    lambda crew: crew.say("two", ""),
    lambda crew: crew.say("", "Both are done."),
    lambda crew: crew.tell("Again."),
    lambda crew: crew.step("", Coordination("send_subagent_input", {"agent_id": "one", "input": "And now?"})),
    lambda crew: crew.say("", "I asked it."),
    lambda crew: crew.say("one", "It is blue."),
    lambda crew: crew.tell("Once more."),
    lambda crew: crew.step(
        "",
        Coordination("send_subagent_input", {"agent_id": "two", "input": "And now?"}),
        Coordination("close_subagent", {"agent_id": "two"}),
        Coordination("close_subagent", {"agent_id": "one"}),
    ),
    lambda crew: crew.say("", "They are closed."),
]


@pytest.mark.parametrize("death", range(len(STORY)))
def test_a_story_ends_the_same_whenever_its_owner_dies(engine: Engine, death: int) -> None:
    crew = Crew(engine)
    for number, act in enumerate(STORY):
        act(crew)
        crew.check()
        if number == death:
            crew.take_over()
            crew.check()
        crew.look_around()
        crew.check()
    assert crew.reports() == [
        ("one", "It is red."),
        ("two", "(The subagent ended its turn without any text.)"),
        ("one", "It is blue."),
    ]
    assert (crew.statuses("one"), crew.statuses("two")) == (
        ["completed", "completed"],
        ["completed", "cancelled"],
    )
    assert crew.statuses("") == ["completed"] * 3
    assert crew.row.status == "idle"
    crew.delete()


def test_two_that_end_at_once_are_each_reported(engine: Engine) -> None:
    crew = Crew(engine)
    crew.step("", CREATE_ONE, CREATE_TWO, WAIT)
    crew.look_around()
    # Nobody looks between the two.
    crew.say("two", "Second.")
    crew.say("one", "First.")
    crew.check()
    crew.look_around()
    assert crew.reports() == [("two", "Second."), ("one", "First.")]
    assert crew.working == [""]


def test_an_interrupt_that_meets_the_end_of_the_turn_is_told_of_it(engine: Engine) -> None:
    crew = Crew(engine)
    crew.step("", CREATE_ONE)
    crew.look_around()
    crew.say("one", "Done.")
    crew.call("", "interrupt_subagent", agent_id="one")
    crew.check()
    assert "nothing was interrupted" in crew.result(1)["note"]
    # The report had come before the next step.
    assert crew.reports() == [("one", "Done.")]


def test_the_step_of_a_turn_that_was_ended_writes_nothing_and_is_counted(engine: Engine) -> None:
    crew = Crew(engine)
    crew.step("", CREATE_ONE)
    crew.look_around()
    crew.call("", "interrupt_subagent", agent_id="one")
    crew.check()
    crew.say("one", "Too late.")
    crew.check()
    assert crew.statuses("one") == ["cancelled"]
    assert crew.working == [""]
    assert crew.reports() == []
    crew.finish()
    crew.delete()


def test_the_step_of_a_turn_that_was_ended_leads_to_the_next_turn(engine: Engine) -> None:
    crew = Crew(engine)
    crew.step("", CREATE_ONE)
    crew.look_around()
    crew.step(
        "",
        Coordination("interrupt_subagent", {"agent_id": "one"}),
        Coordination("send_subagent_input", {"agent_id": "one", "input": "Rather this."}),
    )
    crew.say("one", "Too late.")
    crew.check()
    assert crew.statuses("one") == ["cancelled", "in_progress"]
    crew.say("one", "In time.")
    crew.look_around()
    crew.finish()
    crew.check()
    # The root's step was its last one: its next turn reads the report.
    assert crew.reports() == []
    crew.tell("And?")
    crew.look_around()
    assert crew.reports() == [("one", "In time.")]


def test_an_owner_that_lost_the_session_writes_nothing(engine: Engine) -> None:
    crew = Crew(engine)
    crew.step("", CREATE_ONE)
    crew.look_around()
    before = dict(crew.boundaries)
    crew.take_over()
    crew.look_around()
    now, crew.boundaries = crew.boundaries, before
    for name in ("one", ""):
        with pytest.raises(Fenced):
            crew.say(name, "I am still here.")
    crew.boundaries = now
    crew.check()
    assert crew.working == ["", "one"]


def test_an_interrupted_turn_is_told_as_interrupted_in_the_same_transaction(engine: Engine) -> None:
    crew = Crew(engine, policy=Policy(depth=2))
    crew.step("", CREATE_ONE)
    crew.look_around()
    crew.step("one", Coordination("create_subagent", {"task": "Look below.", "name": "below"}), WAIT)
    crew.look_around()
    crew.call("", "interrupt_subagent", agent_id="one")
    assert crew.result(-1)["last_turn"] == "cancelled"
    crew.break_off("below", fails=False)
    crew.look_around()
    crew.check()
    assert crew.reports() == [
        ("below", "The subagent was interrupted before it had finished.\nIt had written no text.")
    ]


def test_what_woke_a_root_is_told_as_it_ended(engine: Engine) -> None:
    crew = Crew(engine, policy=Policy(reports_wake=True))
    crew.step("", CREATE_ONE)
    crew.look_around()
    crew.say("", "I gave it away.")
    crew.look_around()
    crew.say("one", "It is red.")
    crew.check()
    assert crew.reports() == [("one", "It is red.")]
    crew.look_around()
    assert (crew.statuses(""), crew.working) == (["completed", "in_progress"], [""])
    crew.finish()
    assert crew.statuses("") == ["completed", "completed"]


@pytest.mark.parametrize("reports_wake", [False, True])
def test_a_cancel_ends_all_and_begins_nothing(engine: Engine, reports_wake: bool) -> None:
    crew = Crew(engine, policy=Policy(reports_wake=reports_wake))
    crew.step("", CREATE_ONE, CREATE_TWO)
    crew.look_around()
    crew.say("", "They are at work.")
    crew.cancel()
    # One of them gets to its end before the root looks.
    crew.say("one", "Done.")
    crew.check()
    crew.look(crew.row.agent_id)
    crew.say("two", "Too late.")
    crew.look_around()
    crew.check()
    assert (crew.statuses("one"), crew.statuses("two")) == (["cancelled"], ["cancelled"])
    assert (crew.row.status, crew.statuses("")) == ("idle", ["completed"])
    assert crew.working == []
    crew.tell("What came of it?")
    crew.look_around()
    assert [name for name, _ in crew.reports()] == ["one", "two"]
    assert crew.reports()[0][1].endswith("What it had written last:\nDone.")
    crew.finish()
    crew.check()
    crew.delete()


def test_a_message_behind_a_cancel_of_an_idle_root_is_not_cancelled(engine: Engine) -> None:
    crew = Crew(engine)
    crew.step("", CREATE_ONE)
    crew.look_around()
    crew.say("", "It is at work.")
    crew.cancel()
    crew.tell("Are you there?")
    crew.break_off("one", fails=False)
    crew.look_around()
    crew.check()
    assert (crew.statuses(""), crew.statuses("one")) == (["completed", "in_progress"], ["cancelled"])
    crew.finish()
    assert crew.statuses("") == ["completed", "completed"]


def test_a_turn_that_begins_beside_subagents_is_shown_to_the_owner(engine: Engine) -> None:
    crew = Crew(engine)
    crew.step("", CREATE_ONE)
    crew.look_around()
    crew.say("", "It is at work.")

    def arrived() -> list[str]:
        with engine.connect() as conn:
            return list(arrivals_among(conn, [crew.id], now_us() + crew.late_us))

    assert arrived() == []
    crew.tell("Are you there?")
    assert arrived() == [crew.id]
    crew.look_around()
    assert arrived() == []
    crew.call("", "wait_for_subagents")
    assert arrived() == []
    crew.late_us = HOUR
    assert arrived() == [crew.id]
    crew.look(crew.row.agent_id)
    assert arrived() == []
    assert crew.result(-1)["timed_out"] is True


def test_a_wait_is_never_longer_than_the_settings_allow(engine: Engine) -> None:
    for seconds in (1e308, 10**400, 3601, 0.001):
        crew = Crew(engine)
        crew.step("", CREATE_ONE)
        crew.call("", "wait_for_subagents", timeout_s=seconds)
        crew.check()
        assert crew.row.wake_at <= now_us() + HOUR


def test_a_deadline_outlives_owners_and_is_met_by_the_next(engine: Engine) -> None:
    crew = Crew(engine)
    crew.step("", CREATE_ONE, Coordination("wait_for_subagents", {"timeout_s": 60}))
    deadline = crew.row.wake_at
    for _ in range(3):
        crew.late_us += 10_000_000
        crew.take_over()
        crew.look_around()
        crew.check()
        assert crew.row.wake_at == deadline
        assert crew.working == ["one"]
    crew.late_us = 61_000_000
    crew.take_over()
    assert crew.result(-1)["timed_out"] is True
    assert "" in crew.working
    crew.finish()
    crew.check()


NAMES = ("one", "two", "three")
CALLS: st.SearchStrategy[Any] = st.one_of(
    st.builds(
        lambda name: Coordination("create_subagent", {"task": "Do it.", "name": name}), st.sampled_from(NAMES)
    ),
    st.just(WAIT),
    st.just(Coordination("wait_for_subagents", {"until": "any", "timeout_s": 30})),
    st.builds(
        lambda tool, name: Coordination(tool, {"agent_id": name, "input": "Go on."}),
        st.sampled_from(("send_subagent_input", "interrupt_subagent", "close_subagent", "resume_subagent")),
        st.sampled_from((*NAMES, "nobody")),
    ),
)
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("step"), st.integers(0, 9), st.lists(CALLS, min_size=1, max_size=3)),
        st.tuples(
            st.sampled_from(("say", "mute", "fail", "break off", "look", "look", "say")),
            st.integers(0, 9),
            st.none(),
        ),
        st.tuples(
            st.sampled_from(("tell", "cancel", "cancel and tell", "die", "minute")), st.just(0), st.none()
        ),
    ),
    max_size=30,
)


ANYTHING = given(actions=ACTIONS, limit=st.integers(1, 3), depth=st.integers(1, 2), wakes=st.booleans())
EXAMPLES = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.mark.parametrize("databases", ["sqlite"], indirect=True, scope="session")
@EXAMPLES
@ANYTHING
def test_whatever_happens_in_whatever_order_every_end_is_told_once(
    engine: Engine, actions: list[Any], limit: int, depth: int, wakes: bool
) -> None:
    _check_story(engine, actions, limit, depth, wakes)


@pytest.mark.slow
@pytest.mark.parametrize("databases", ["postgres"], indirect=True, scope="session")
@EXAMPLES
@ANYTHING
def test_the_same_holds_on_postgres(
    engine: Engine, actions: list[Any], limit: int, depth: int, wakes: bool
) -> None:
    _check_story(engine, actions, limit, depth, wakes)


def _check_story(engine: Engine, actions: list[Any], limit: int, depth: int, wakes: bool) -> None:
    crew = Crew(engine, limit=limit, policy=Policy(depth=depth, most=5, reports_wake=wakes))
    for what, number, calls in actions:
        _act(crew, what, number, calls)
        crew.check()
    crew.late_us += HOUR
    crew.take_over()
    crew.finish()
    crew.check()
    assert crew.row.status == "idle"
    assert crew.row.subagents_running == 0
    reports = len(crew.reports())
    crew.tell("What came of it?")
    crew.finish()
    crew.check()
    assert crew.unread() == []
    assert len(crew.reports()) >= reports
    crew.delete()


def _act(crew: Crew, what: str, number: int, calls: Any) -> None:
    working = crew.working
    name = working[number % len(working)] if working else None
    match what:
        case "step" if name is not None:
            crew.step(name, *calls)
        case "say" | "mute" if name is not None:
            crew.say(name, "Done." if what == "say" else "")
        case "fail" | "break off" if name is not None:
            crew.break_off(name, fails=what == "fail")
        case "look" if crew.woken:
            crew.look_at(number)
        case "tell":
            crew.tell("And this.")
        case "cancel":
            crew.cancel()
        case "cancel and tell":
            crew.cancel()
            crew.tell("Rather this.")
        case "die":
            crew.take_over()
        case "minute":
            crew.late_us += 60_000_000
