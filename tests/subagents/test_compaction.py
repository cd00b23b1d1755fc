"""Histories that outgrow the window while subagents work: nothing is forgotten, nothing begun twice."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import MakePlace
from .installation import Installation, Scene

pytestmark = pytest.mark.slow

WINDOW = "context_window = 4000"
WORDS = "and all the words of a long request " * 20


def compacted(scene: Scene, agent_id: str = "") -> list[Any]:
    query = {"agent_id": agent_id} if agent_id else {}
    found = scene.place.extension(f"{scene.id}/context", **query)["compactions"]
    assert isinstance(found, list)
    return found


def talk_until_compacted(scene: Scene, times: int) -> None:
    for number in range(60):
        if len(compacted(scene)) >= times:
            return
        scene.say(f"remember {number} {WORDS}")
    raise AssertionError("nothing was compacted")


def test_a_compaction_of_the_root_forgets_no_subagent_and_begins_none(make_place: MakePlace) -> None:
    place: Installation = make_place(provider=WINDOW)
    gate = place.gate()
    scene = place.begin(f"create audit: {gate.text}")
    scene.say("create done: Look.")
    scene.until_turns("done", "completed")
    scene.until_writing("audit")
    (turn,) = scene.turns_of("audit")
    talk_until_compacted(scene, 1)
    audit, done = scene.subagents["audit"], scene.subagents["done"]
    note = scene.context()
    assert f"'audit' ({audit.id}), running: {gate.text}" in note
    assert f"'done' ({done.id}), idle: Look." in note
    assert "do not start the same work again" in note

    # The note is of rows: it is there for the next process, too, and for the compaction after this one.
    place.kill()
    place.start()
    talk_until_compacted(scene, 2)
    assert f"'audit' ({audit.id}), running" in scene.context()
    assert list(scene.subagents) == ["audit", "done"]
    assert [each.id for each in scene.turns_of("audit")] == [turn.id]
    assert scene.statuses("audit") == ["in_progress"]

    scene.say("tell audit: Be quick.")
    scene.say("wait for audit briefly")
    gate.release()
    scene.until_turns("audit", "completed", "completed")
    scene.say("Go on.")
    talk_until_compacted(scene, 3)
    assert [name for name, _ in scene.reports()] == ["done", "audit", "audit"]
    assert f"'audit' ({audit.id}), idle" in scene.context()
    assert place.sessions.delete(scene.id).deleted


def test_a_subagent_is_compacted_as_the_root_is(make_place: MakePlace) -> None:
    place: Installation = make_place(provider=WINDOW)
    scene = place.begin("ask one: Look.")
    one = scene.subagents["one"].id
    for number in range(30):
        if compacted(scene, one):
            break
        scene.say(f"tell one: Read {number} {WORDS}")
        scene.until_turns("one", *["completed"] * (number + 2))
    (compaction,) = compacted(scene, one)
    assert compaction["dropped"]["items"] > 0
    turns = len(scene.turns_of("one"))
    scene.say("tell one: What was the first task?")
    scene.until_turns("one", *["completed"] * (turns + 1))
    assert scene.items_of("one")[-1].content[0].text.endswith("What was the first task?")
    # Nothing is gone from its list.
    assert scene.items_of("one")[0].content[0].text == "Look."
    scene.say("Go on.")
    assert len(scene.reports_of("one")) == turns + 1
