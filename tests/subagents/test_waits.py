"""Waiting for subagents: always bounded, heard by nobody but rows, and no reason to keep a process alive."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime

import pytest
from tests.conformance.inputs import message, tool_result
from tests.conformance.sessions import kinds
from tests.conformance.watch import until, until_status
from tests.process import STOP_TIMEOUT

from .conftest import MakePlace
from .installation import Installation, Scene
from .lookup import LOOKUP


def waiting(place: Installation, said: str, /, *, limit: int = 6) -> Scene:
    """A session whose root waits for a subagent that has begun to write."""
    scene = Scene(place, place.create(said, limit=limit))
    until(lambda: scene.calls("wait"), ["in_progress"].__eq__)
    scene.until_writing(next(iter(scene.subagents)))
    return scene


def test_a_wait_ends_at_its_time_and_tells_what_is_being_done(place: Installation) -> None:
    scene = place.begin(f"create one: {place.gate().text}")
    told = json.loads(scene.say("wait for one briefly"))
    assert told["timed_out"] is True
    (state,) = told["subagents"]
    assert (state["agent_id"], state["status"]) == (scene.subagents["one"].id, "running")
    assert scene.statuses("one") == ["in_progress"]
    (item,) = [item for item in scene.items if item.type == "wait_for_subagents_call"]
    assert (item.status, item.recipient_agent_ids) == ("completed", [scene.subagents["one"].id])


def test_a_wait_for_all_names_those_it_waits_for(place: Installation) -> None:
    scene = place.begin("ask one: Look.")
    (item,) = [item for item in scene.items if item.type == "wait_for_subagents_call"]
    assert item.sender_agent_id == scene.session.agent.id
    assert item.recipient_agent_ids == [scene.subagents["one"].id]


def test_a_wait_for_nobody_fails_at_once(place: Installation) -> None:
    scene = place.begin("wait")
    assert scene.calls("wait") == ["failed"]
    assert "nothing to wait for" in scene.answer


def test_a_wait_for_one_that_rests_is_over_at_once(place: Installation) -> None:
    scene = place.begin("ask one: Look.")
    told = json.loads(scene.say("wait for one"))
    assert (told["timed_out"], told["subagents"][0]["last_turn"]) == (False, "completed")
    assert scene.reports() == [("one", "Done: Look.")]


def test_a_message_ends_a_wait_early_and_the_subagent_goes_on(place: Installation) -> None:
    gate = place.gate()
    scene = waiting(place, f"ask one: {gate.text}")
    place.say(scene.id, "How far are you?")
    scene.until_idle()
    assert [turn.status for turn in scene.turns] == ["completed"]
    assert kinds(scene.items)[-3:] == ["wait_for_subagents_call", "user", "assistant"]
    assert "a new message for you has come" in scene.answer
    assert (scene.calls("wait"), scene.statuses("one")) == (["completed"], ["in_progress"])
    gate.release()
    scene.until_turns("one", "completed")
    scene.say("Go on.")
    assert scene.reports() == [("one", "Before, after.")]


def test_the_result_of_a_function_comes_while_the_root_waits_too(place: Installation) -> None:
    gate = place.gate()
    scene = Scene(place, place.create(f"ask one: {gate.text}; and look up", tools=[LOOKUP]))
    session = until_status(place.client, scene.id, "requires_action")
    (action,) = session.required_actions
    place.sessions.events.create(scene.id, events=[tool_result(action, "packed")])
    until_status(place.client, scene.id, "in_progress")
    until(lambda: scene.items[-1].type, "function_call_output".__eq__)
    assert scene.calls("wait") == ["in_progress"]
    gate.release()
    scene.until_idle()
    assert scene.calls("wait") == ["completed"]
    assert scene.answer == "packed"
    assert scene.reports() == [("one", "Before, after.")]


def test_a_subagent_that_ends_while_a_result_is_owed_is_reported_behind_it(place: Installation) -> None:
    scene = Scene(place, place.create("ask one: Look; and look up", tools=[LOOKUP]))
    session = until_status(place.client, scene.id, "requires_action")
    scene.until_turns("one", "completed")
    until(lambda: scene.calls("wait"), ["completed"].__eq__)
    assert scene.session.status == "requires_action"
    assert scene.reports() == []
    place.sessions.events.create(scene.id, events=[tool_result(session.required_actions[0], "packed")])
    scene.until_idle()
    assert scene.reports() == [("one", "Done: Look")]


def test_a_cancel_ends_a_wait_and_whoever_is_waited_for(place: Installation) -> None:
    scene = waiting(place, f"ask one: {place.gate().text}")
    place.cancel(scene.id)
    scene.until_idle()
    assert (scene.calls("wait"), scene.statuses("one")) == (["incomplete"], ["cancelled"])
    assert [turn.status for turn in scene.turns] == ["cancelled"]
    scene.say("Go on.")
    assert "The turn ended before the wait was over." in scene.context()
    assert place.sessions.delete(scene.id).deleted


def test_many_messages_at_once_end_a_wait_once(place: Installation) -> None:
    scene = waiting(place, f"ask one: {place.gate().text}")
    place.sessions.events.create(scene.id, events=[message("One."), message("Two."), message("Three.")])
    scene.until_idle()
    assert kinds(scene.items)[-4:] == ["user", "user", "user", "assistant"]
    assert len(scene.turns) == 1


@pytest.mark.slow
def test_a_long_wait_keeps_no_process_and_its_end_stays_where_it_was(make_place: MakePlace) -> None:
    place = make_place("[subagents]\nlongest_wait = 6.0")
    gate = place.gate()
    scene = place.begin(f"create one: {gate.text}")
    began = time.time()
    # Longer than any clock can tell: the settings bound it.
    place.say(scene.id, "wait for one long")
    until(lambda: scene.calls("wait"), ["in_progress"].__eq__)
    place.stop()
    assert time.time() - began < STOP_TIMEOUT
    place.start()
    scene.until_writing("one")
    assert len(scene.turns_of("one")) == 1
    scene.until_idle()
    assert json.loads(scene.answer)["timed_out"] is True
    (turn,) = scene.turns[1:]
    assert turn.status == "completed"
    # The deadline is of the first process: the second one did not begin to wait anew.
    waited = turn.completed_at - turn.created_at
    assert waited >= 5, datetime.fromtimestamp(turn.created_at, UTC)
    assert scene.statuses("one") == ["in_progress"]
    gate.release()
    scene.until_turns("one", "completed")
    scene.say("Go on.")
    assert scene.reports() == [("one", "Before, after.")]
