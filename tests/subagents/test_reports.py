"""What a coordinator is told of its subagents: every ended turn once, in a wait, at a step, or later."""

from __future__ import annotations

import json

from tests.conformance.inputs import cancel, message
from tests.conformance.sessions import kinds
from tests.conformance.watch import until

from .installation import Installation, Scene

INTERRUPTED = "The subagent was interrupted before it had finished.\nWhat it had written last:\nBefore, "


def test_a_report_that_came_after_the_turn_is_read_at_the_start_of_the_next(place: Installation) -> None:
    scene = place.begin("create one: Look.")
    scene.until_turns("one", "completed")
    # It begins no turn of its own.
    assert (len(scene.turns), scene.reports(), scene.session.status) == (1, [], "idle")
    scene.say("Go on.")
    assert kinds(scene.items)[-3:] == ["agent_message", "user", "assistant"]
    scene.say("Go on.")
    assert scene.reports() == [("one", "Done: Look.")]
    assert scene.context().count("Report of the subagent 'one'") == 1


def test_a_report_that_comes_while_the_root_waits_follows_its_wait(place: Installation) -> None:
    scene = place.begin("ask one: Look.")
    assert kinds(scene.items)[-3:] == ["wait_for_subagents_call", "agent_message", "assistant"]
    told = json.loads(scene.answer)
    assert [(each["name"], each["status"]) for each in told["subagents"]] == [("one", "idle")]
    scene.say("Go on.")
    assert scene.reports() == [("one", "Done: Look.")]


def test_a_report_that_comes_while_the_root_works_is_read_at_its_next_step(place: Installation) -> None:
    gate, working = place.gate(), place.gate()
    scene = place.begin(f"create one: {gate.text}")
    scene.until_writing("one")
    place.say(scene.id, f"work {working.text[5:]}")
    until(lambda: scene.items[-1].status, "in_progress".__eq__)
    gate.release()
    scene.until_turns("one", "completed")
    assert scene.reports() == []
    working.release()
    scene.until_idle()
    assert len(scene.turns) == 2
    assert kinds(scene.items)[-3:] == ["wait_for_subagents_call", "agent_message", "assistant"]
    assert scene.calls("wait") == ["failed"]
    assert scene.reports() == [("one", "Before, after.")]


def test_a_wait_for_any_leaves_the_others_to_report_later(place: Installation) -> None:
    gate = place.gate()
    scene = place.begin(f"create slow: {gate.text}")
    scene.say("create fast: Look.")
    scene.until_turns("fast", "completed")
    scene.say("wait for any")
    assert scene.statuses("slow") == ["in_progress"]
    assert scene.reports() == [("fast", "Done: Look.")]
    gate.release()
    scene.until_turns("slow", "completed")
    scene.say("Go on.")
    assert scene.reports() == [("fast", "Done: Look."), ("slow", "Before, after.")]


def test_a_subagent_without_text_is_said_to_have_none(place: Installation) -> None:
    scene = place.begin("ask mute: Please be silent.")
    assert scene.statuses("mute") == ["completed"]
    assert scene.reports() == [("mute", "(The subagent ended its turn without any text.)")]


def test_a_failure_is_told_with_its_code_and_what_had_been_written(place: Installation) -> None:
    scene = place.begin("ask broken: Please break.")
    assert scene.statuses("broken") == ["failed"]
    (report,) = scene.reports_of("broken")
    assert report == (
        "The subagent's turn failed with server_error: It broke.\nWhat it had written last:\nThe first half, "
    )
    assert json.loads(scene.answer)["subagents"][0]["last_turn"] == "failed"
    assert "its turn is failed" in scene.context()
    # It is not broken for ever.
    scene.say("tell broken: Look.")
    scene.until_turns("broken", "failed", "completed")


def test_an_interrupt_tells_what_was_written_at_once_and_never_again(place: Installation) -> None:
    gate = place.gate()
    scene = place.begin(f"create one: {gate.text}")
    scene.until_writing("one")
    told = json.loads(scene.say("interrupt one"))
    assert told["last_turn"] == "cancelled"
    assert told["last_text"] == "Before, "
    assert [item.status for item in scene.items_of("one") if item.type == "message"][-1] == "incomplete"
    scene.say("Go on.")
    assert scene.reports() == []
    # One model call was broken off, and none begun behind it.
    used = {agent["name"]: agent["model_calls"] for agent in place.extension(f"{scene.id}/usage")["agents"]}
    assert used["one"] == 1


def test_a_subagent_that_was_interrupted_works_again_at_once(place: Installation) -> None:
    gate = place.gate()
    scene = place.begin(f"create one: {gate.text}")
    scene.until_writing("one")
    scene.say("interrupt one and tell it: Look.")
    scene.until_turns("one", "cancelled", "completed")
    scene.say("Go on.")
    assert scene.reports() == [("one", "Done: [From the agent that created you]\nLook.")]


def test_what_a_busy_subagent_is_told_is_heard_when_its_answer_is_done(place: Installation) -> None:
    gate = place.gate()
    scene = place.begin(f"create one: {gate.text}")
    scene.until_writing("one")
    scene.say("tell one: Mind the gap.")
    gate.release()
    scene.until_turns("one", "completed", "completed")
    said = [item for item in scene.items_of("one") if item.type == "agent_message"]
    assert [(item.content[0].text, item.recipient_agent_id) for item in said] == [
        ("Mind the gap.", scene.subagents["one"].id)
    ]
    assert (
        scene.items_of("one")[-1].content[0].text == "Done: [From the agent that created you]\nMind the gap."
    )
    scene.say("Go on.")
    assert [text.splitlines()[0] for text in scene.reports_of("one")] == [
        "Before, after.",
        "Done: [From the agent that created you]",
    ]


def test_a_cancel_of_an_idle_session_ends_its_subagents_which_report_it(place: Installation) -> None:
    gate = place.gate()
    scene = place.begin(f"create one: {gate.text}")
    scene.until_writing("one")
    place.cancel(scene.id)
    scene.until_turns("one", "cancelled")
    assert (scene.session.status, len(scene.turns)) == ("idle", 1)
    assert scene.subagents["one"].status == "active"
    scene.say("Go on.")
    assert scene.reports() == [("one", INTERRUPTED)]
    assert place.sessions.delete(scene.id).deleted


def test_a_message_behind_a_cancel_of_an_idle_session_begins_a_turn(place: Installation) -> None:
    gate = place.gate()
    scene = place.begin(f"create one: {gate.text}")
    scene.until_writing("one")
    place.sessions.events.create(scene.id, events=[cancel(), message("Go on.")])
    until(lambda: [turn.status for turn in scene.turns], ["completed", "completed"].__eq__)
    assert scene.statuses("one") == ["cancelled"]
    assert scene.reports() == [("one", INTERRUPTED)]


def test_a_message_finds_an_idle_root_whose_subagent_works_on(place: Installation) -> None:
    gate = place.gate()
    scene = place.begin(f"create one: {gate.text}")
    scene.until_writing("one")
    scene.say("Are you there?")
    assert [turn.status for turn in scene.turns] == ["completed", "completed"]
    assert scene.statuses("one") == ["in_progress"]


def test_a_session_reports_what_all_agents_used(place: Installation) -> None:
    scene: Scene = place.begin("ask one: Look.")
    (turn,) = scene.turns
    (child,) = scene.turns_of("one")
    assert (turn.usage.total_tokens, child.usage.total_tokens) == (22, 110)
    assert scene.session.usage.total_tokens == 132


def test_the_model_hears_a_message_that_comes_right_behind_a_cancel(place: Installation) -> None:
    gate = place.gate()
    scene = place.begin("create zero: Look.")
    for number in range(4):
        place.say(scene.id, f"ask slow{number}: {gate.text}")
        until(lambda: scene.items[-1].type, "wait_for_subagents_call".__eq__)
        place.cancel(scene.id)
        place.say(scene.id, f"create next{number}: Look.")
        scene.until_idle()
        assert f"next{number}" in scene.subagents
        assert f"slow{number}" in dict(scene.reports())
    gate.release()


def test_a_session_is_not_idle_behind_a_message_that_waits_for_a_cancel(place: Installation) -> None:
    gate, working = place.gate(), place.gate()
    scene = place.begin(f"create one: {gate.text}")
    scene.until_writing("one")
    place.cancel(scene.id)
    place.say(scene.id, f"work {working.text[5:]}")
    assert scene.session.status == "in_progress"
    working.release()
    scene.until_idle()
    assert [turn.status for turn in scene.turns] == ["completed", "completed"]
