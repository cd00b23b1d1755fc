"""How many subagents there may be, how deep, and what wakes an idle root: what the settings say."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from tests.conformance.watch import until

from .conftest import Databases
from .installation import Installation, Scene

SETTINGS = "[subagents]\ndepth = 2\nper_session = 3\nreports_wake = true"


@pytest.fixture(scope="module")
def waking(databases: Databases, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    with Installation(tmp_path_factory.mktemp("waking"), databases(), SETTINGS) as started:
        yield started


def test_no_more_subagents_run_at_once_than_the_agent_may_have(place: Installation) -> None:
    gate = place.gate()
    scene = place.begin(f"create one: {gate.text}", limit=1)
    assert "1 subagents are running" in scene.say("create two: Look.")
    assert list(scene.subagents) == ["one"]
    gate.release()
    scene.until_turns("one", "completed")
    assert json.loads(scene.say("create two: Look."))["status"] == "running"
    scene.until_turns("two", "completed")
    # One that rests takes no place, and needs one to work again.
    held = place.gate()
    scene.say(f"tell one: {held.text}")
    scene.until_turns("one", "completed", "in_progress")
    assert "1 subagents are running" in scene.say("tell two: Look again.")
    assert scene.statuses("two") == ["completed"]


def test_a_session_has_so_many_subagents_and_no_more(waking: Installation) -> None:
    scene = Scene(waking, waking.create("ask one: Look."))
    scene.until_idle()
    for name in ("two", "three"):
        scene.say(f"ask {name}: Look.")
    scene.say("close three")
    assert "has had 3 subagents" in scene.say("create four: Look.")
    assert list(scene.subagents) == ["one", "two", "three"]


def test_a_report_wakes_an_idle_root_once(waking: Installation) -> None:
    gate = waking.gate()
    scene = waking.begin(f"create one: {gate.text}")
    assert len(scene.turns) == 1
    gate.release()
    until(lambda: [turn.status for turn in scene.turns], ["completed", "completed"].__eq__)
    assert scene.reports() == [("one", "Before, after.")]
    begun = scene.turns[1]
    assert [item.type for item in scene.items if item.turn_id == begun.id] == ["agent_message", "message"]
    scene.until_idle()
    scene.say("Go on.")
    assert len(scene.turns) == 3
    assert scene.reports() == [("one", "Before, after.")]


def test_a_report_of_an_interrupt_by_the_user_wakes_nobody(waking: Installation) -> None:
    scene = waking.begin(f"create one: {waking.gate().text}")
    scene.until_writing("one")
    waking.cancel(scene.id)
    scene.until_turns("one", "cancelled")
    scene.say("Go on.")
    assert len(scene.turns) == 2
    assert len(scene.reports_of("one")) == 1


def test_a_failure_wakes_an_idle_root_with_what_was_written(waking: Installation) -> None:
    scene = Scene(waking, waking.create("create broken: Please break."))
    until(lambda: len(scene.reports()), (1).__eq__)
    scene.until_idle()
    (report,) = scene.reports_of("broken")
    assert report.startswith("The subagent's turn failed with server_error: It broke.")
    assert report.endswith("The first half, ")


def test_a_subagent_has_subagents_of_its_own_where_that_is_allowed(waking: Installation) -> None:
    gate = waking.gate()
    scene = Scene(waking, waking.create(f"ask above: create below: {gate.text}"))
    until(lambda: list(scene.subagents), ["above", "below"].__eq__)
    above, below = scene.subagents.values()
    assert (above.parent_agent_id, below.parent_agent_id) == (scene.session.agent.id, above.id)
    scene.until_writing("below")
    # A third generation is not offered.
    functions = waking.extension(f"{scene.id}/context", agent_id=below.id)["functions"]
    assert functions == []
    gate.release()
    scene.until_idle()
    assert [name for name, _ in scene.reports()] == ["above"]
    (told,) = [item for item in scene.items_of("above") if item.type == "agent_message"]
    assert (told.sender_agent_id, told.content[0].text) == (below.id, "Before, after.")
    assert not [item.type for item in scene.items if below.id in str(item)]


def test_an_interrupt_ends_the_whole_branch_and_keeps_what_it_had_written(waking: Installation) -> None:
    gate = waking.gate()
    scene = Scene(waking, waking.create(f"create above: create below: {gate.text}"))
    until(lambda: list(scene.subagents), ["above", "below"].__eq__)
    scene.until_writing("below")
    scene.until_idle()
    told = json.loads(scene.say("interrupt above"))
    assert (told["status"], told["last_turn"]) == ("idle", "cancelled")
    assert (scene.statuses("above"), scene.statuses("below")) == (["cancelled"], ["cancelled"])
    (report,) = [item for item in scene.items_of("above") if item.type == "agent_message"]
    assert report.content[0].text == (
        "The subagent was interrupted before it had finished.\nWhat it had written last:\nBefore, "
    )
    scene.say("close above")
    assert [each.status for each in scene.subagents.values()] == ["closed", "closed"]
    # Nobody is woken by the reports of those that were stopped.
    assert (len(scene.turns), scene.session.status) == (3, "idle")
    assert waking.sessions.delete(scene.id).deleted
