"""Sessions with subagents live at random, and what their rows say is never in conflict."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from .alone import Alone
from .families import FamilyMachine
from .family import Family, House

pytestmark = pytest.mark.slow


def test_sessions_with_subagents_live_by_the_rules(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    given = request.config.getoption("--hypothesis-seed")
    chosen = random.SystemRandom().getrandbits(32) if given in (None, "random") else int(given)
    long = request.config.getoption("--long")
    print(f"reproduce with --hypothesis-seed={chosen}" + (" --long" if long else ""))
    alone = Alone(tmp_path)

    @seed(chosen)
    class Machine(FamilyMachine):
        place = alone

    with alone:
        run_state_machine_as_test(
            Machine,
            settings=settings(
                max_examples=120 if long else 5,
                stateful_step_count=40 if long else 14,
                deadline=None,
                database=None,
                report_multiple_bugs=False,
                suppress_health_check=list(HealthCheck),
                phases=(Phase.generate, Phase.shrink) if long else (Phase.generate,),
                print_blob=False,
            ),
        )
        assert "Traceback" not in alone.stderr(), alone.stderr()


def test_a_message_between_two_cancels_of_an_idle_session_is_heard(tmp_path: Path) -> None:
    """What is accepted before a cancel is history of the turn that it ends, even if it had not begun."""
    with Alone(tmp_path) as alone:
        house = House(alone, alone.client())
        family = Family(house)
        family.create(family.write("create a hang"))
        assert [turn["status"] for turn in family.settle().turns] == ["completed", "in_progress"]
        family.post([None, family.write("say"), None])
        rows = family.settle()
        assert [turn["status"] for turn in rows.turns_of(rows.root)] == ["completed", "cancelled"]
        family.end()
