"""One session from its first subagents to its deletion, seen through the official client after every act."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from tests.conformance.watch import Watcher, until, until_status

from .conftest import MakePlace
from .installation import Installation, Scene
from .lookup import LOOKUP

pytestmark = pytest.mark.slow


def test_a_session_with_subagents_from_the_first_to_its_deletion(make_place: MakePlace) -> None:
    place = make_place()
    first, second, third = place.gate(), place.gate(), place.gate()
    scene = Scene(place, place.create(f"five {first.text[5:]}", limit=2, tools=[LOOKUP]))
    scene.until_idle()
    with Watcher(place.client, scene.id) as watcher:
        _create_five_under_a_limit_of_two(scene)
        _let_one_spawn_one_call_and_one_break(scene)
        _wait_briefly_tell_and_interrupt(scene)
        _close_and_resume(scene)
        _end_while_one_runs(scene, second.text)
        _cancel_during_a_fan_out(scene, third.text)
        _check_events(scene, watcher.events)
    _kill_while_the_root_waits(place, scene)
    _check_usage(scene)
    assert place.sessions.delete(scene.id).deleted
    with pytest.raises(openai.NotFoundError):
        place.sessions.subagents.list(scene.id)


def _create_five_under_a_limit_of_two(scene: Scene) -> None:
    assert scene.calls("create") == ["completed", "completed", "failed", "failed", "failed"]
    assert "2 subagents are running, and no more than 2" in scene.answer
    scene.until_turns("answers", "completed")
    scene.until_writing("hangs")
    assert list(scene.subagents) == ["answers", "hangs"]
    assert scene.statuses("hangs") == ["in_progress"]
    assert {each.status for each in scene.subagents.values()} == {"active"}
    # The root's turn is over, and one subagent is at work.
    assert [turn.status for turn in scene.turns] == ["completed"]
    assert scene.session.status == "idle"
    assert scene.reports() == []
    with pytest.raises(openai.ConflictError):
        scene.place.sessions.delete(scene.id)


def _let_one_spawn_one_call_and_one_break(scene: Scene) -> None:
    assert json.loads(scene.say("create spawns: Please spawn."))["status"] == "running"
    assert scene.reports() == [("answers", "Done: Say yes.")]
    scene.until_turns("spawns", "completed")
    (attempt,) = [item for item in scene.items_of("spawns") if item.type == "function_call"]
    assert (attempt.name, attempt.status) == ("create_subagent", "failed")

    def never(arguments: Any) -> str:
        raise AssertionError(f"a handler ran for a subagent: {arguments}")

    with scene.place.sessions.stream(
        scene.id, input="create calls: Please look up A-1042.", tool_handlers={"lookup_order": never}
    ) as stream:
        assert json.loads(stream.get_final_result().output_text)["name"] == "calls"
    scene.until_turns("calls", "completed")
    assert scene.reports_of("spawns") == [
        "I was told: There is no function named 'create_subagent': "
        "subagents have no functions of the application."
    ]
    scene.say("create breaks: Please break.")
    scene.until_turns("breaks", "failed")
    (turn,) = scene.turns_of("breaks")
    assert turn.error.code == "server_error"
    assert list(scene.subagents) == ["answers", "hangs", "spawns", "calls", "breaks"]
    assert scene.session.required_actions == []


def _wait_briefly_tell_and_interrupt(scene: Scene) -> None:
    told = json.loads(scene.say("wait for hangs briefly"))
    assert told["timed_out"] is True
    assert [(each["name"], each["status"]) for each in told["subagents"]] == [("hangs", "running")]
    assert scene.calls("wait") == ["completed"]
    assert scene.reports_of("calls") == [
        "I was told: There is no function named 'lookup_order': "
        "subagents have no functions of the application."
    ]
    (failure,) = scene.reports_of("breaks")
    assert "server_error: It broke." in failure
    assert "The first half, " in failure

    assert json.loads(scene.say("tell hangs: Mind the gap."))["delivery"] == "with its next step"
    assert scene.statuses("hangs") == ["in_progress"]
    told = json.loads(scene.say("interrupt hangs"))
    assert (told["status"], told["last_turn"], told["last_text"]) == ("idle", "cancelled", "Before, ")
    assert scene.statuses("hangs") == ["cancelled"]
    kept = [item for item in scene.items_of("hangs") if item.type == "agent_message"]
    assert [item.content[0].text for item in kept] == ["Mind the gap."]
    assert "nothing was interrupted" in scene.say("interrupt hangs")


def _close_and_resume(scene: Scene) -> None:
    opened = scene.subagents["hangs"].opened_at
    assert json.loads(scene.say("close hangs"))["status"] == "closed"
    closed = scene.subagents["hangs"]
    assert (closed.status, closed.closed_at is None) == ("closed", False)
    assert json.loads(scene.say("close hangs"))["status"] == "closed"
    assert scene.subagents["hangs"].closed_at == closed.closed_at
    assert "is closed. Resume it first" in scene.say("tell hangs: Go on.")
    assert "You have no subagent 'nobody'" in scene.say("tell nobody: Go on.")
    assert scene.calls("send") == ["completed", "failed", "failed"]
    assert json.loads(scene.say("resume hangs"))["status"] == "idle"
    again = scene.subagents["hangs"]
    assert (again.status, again.closed_at, again.opened_at) == ("active", None, opened)
    # What was told with the call that interrupted it is not reported once more.
    assert scene.reports_of("hangs") == []


def _end_while_one_runs(scene: Scene, task: str) -> None:
    assert json.loads(scene.say(f"tell hangs: {task}"))["delivery"] == "now, as a new turn"
    scene.until_turns("hangs", "cancelled", "in_progress")
    assert scene.session.status == "idle"
    assert scene.turns[-1].status == "completed"


def _cancel_during_a_fan_out(scene: Scene, task: str) -> None:
    place = scene.place
    place.say(scene.id, f"fan {task[5:]}")
    until(lambda: scene.calls("wait")[-1], "in_progress".__eq__)
    # One of before is still at work, so only one more may be.
    assert scene.calls("create")[-2:] == ["completed", "failed"]
    scene.until_writing("left")
    assert scene.session.status == "in_progress"
    place.cancel(scene.id)
    scene.until_idle()
    assert scene.turns[-1].status == "cancelled"
    assert scene.calls("wait") == ["completed", "incomplete"]
    assert scene.statuses("left") == ["cancelled"]
    assert scene.statuses("hangs") == ["cancelled", "cancelled"]
    assert {each.status for each in scene.subagents.values()} == {"active"}
    scene.say("Go on.")
    for name in ("hangs", "left"):
        (report,) = scene.reports_of(name)
        assert report == (
            "The subagent was interrupted before it had finished.\nWhat it had written last:\nBefore, "
        )


def _check_events(scene: Scene, events: list[Any]) -> None:
    """The root's stream tells of the root's turns and items alone, and of the lives of subagents."""
    known = {item.id for item in scene.items}
    told = [event.to_dict() for event in events]
    assert {event["turn"]["subagent_id"] for event in told if "turn" in event} == {None}
    assert {event["item"]["id"] for event in told if "item" in event} <= known
    assert {event["item_id"] for event in told if "item_id" in event} <= known
    lives = [
        (event["type"].rpartition(".")[2], event["subagent"]["name"]) for event in told if "subagent" in event
    ]
    assert lives == [
        *(("created", "spawns"), ("created", "calls"), ("created", "breaks")),
        *(("closed", "hangs"), ("active", "hangs"), ("created", "left")),
    ]


def _kill_while_the_root_waits(place: Installation, scene: Scene) -> None:
    gate = place.gate()
    place.say(scene.id, f"ask last: {gate.text}")
    until(lambda: scene.calls("wait")[-1], "in_progress".__eq__)
    scene.until_writing("last")
    before = scene.turns_of("last")
    place.kill()
    place.start()
    until(
        lambda: [item.status for item in scene.items_of("last") if item.type == "message"],
        lambda found: found == ["completed", "incomplete", "in_progress"],
    )
    assert [turn.id for turn in scene.turns_of("last")] == [turn.id for turn in before]
    assert (scene.calls("wait")[-1], scene.session.status) == ("in_progress", "in_progress")
    gate.release()
    until_status(place.client, scene.id, "idle")
    told = json.loads(scene.answer)
    assert (told["timed_out"], told["subagents"][0]["last_turn"]) == (False, "completed")
    assert scene.reports_of("last") == ["Before, after."]
    assert list(scene.subagents) == ["answers", "hangs", "spawns", "calls", "breaks", "left", "last"]
    scene.say("Anything else?")
    assert [len(scene.reports_of(name)) for name in scene.subagents] == [1] * 7


def _check_usage(scene: Scene) -> None:
    """A turn has what its own agent used; the session all of it."""
    turns = [*scene.turns, *(turn for name in scene.subagents for turn in scene.turns_of(name))]
    known = [turn.usage.total_tokens for turn in turns if turn.usage is not None]
    assert scene.turns_of("answers")[0].usage.total_tokens == 110
    assert scene.turns_of("spawns")[0].usage.total_tokens == 220
    assert scene.session.usage.total_tokens == sum(known)
