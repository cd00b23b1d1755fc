"""A session whose agent gives errands to subagents, and what must be true of it however often it dies.

The model is a strict provider whose answers depend on nothing but the request. The root is known by its
functions, which subagents do not have.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from tests.machine.family_rows import Row, Rows, check_rows, read_rows, rows_engine, text_of
from tests.providers.answers import Answer, Call, Refusal, Text, answer
from tests.providers.server import Recorded
from tests.providers.server import text_of as content_text

from .drive import Drive
from .model import MODEL, Model
from .scenario import until_idle
from .witness import Seen

LIMIT = 3
SAID = ["Split the work.", "Send the scout out again.", "Let the scout go.", "What came of it?"]
TASKS = {
    "reader": "Read the notes aloud, one after the other.",
    "scout": "Look around until somebody calls you.",
    "porter": "Carry the piano upstairs, all alone.",
    "spare": "Wait in the hall, in case of need.",
}
READ = "The notes say that the piano is to be on the third floor by noon, and that the lift is broken."
LOOKED = "I see a street, a lamp, another street, another lamp, and then a street again."
ERRAND = "Only as far as the lamp."
LAMP = "I am at the lamp."
AGAIN = "Look around once more."
STEPS = [4, 3, 2, 1]
"""Answers of the root in each turn."""


class ErrandModel(Model):
    """The root splits the work; the reader reads, the scout looks around for ever, the porter fails."""

    def _plan(self, recorded: Recorded) -> Answer | Refusal:
        entries: list[dict[str, Any]] = recorded.body["input"]
        tools = {tool.get("name") for tool in recorded.body.get("tools", ())}
        if "create_subagent" not in tools:
            return self._errand([content_text(each["content"]) for each in entries if _is_user(each)])
        topics = [n for n, each in enumerate(entries) if _is_user(each) and _text(each) in SAID]
        since = [each["name"] for each in entries[topics[-1] :] if each["type"] == "function_call"]
        return _split(SAID.index(_text(entries[topics[-1]])), len(since))

    def _errand(self, told: list[str]) -> Answer | Refusal:
        newest = told[-1]
        if newest == TASKS["reader"]:
            return answer(Text(READ), delay=0.06)
        if newest == TASKS["porter"]:
            return Refusal(400, "invalid_prompt", "A piano is too heavy.")
        if newest.endswith(ERRAND):
            return answer(Text(LAMP))
        # Nobody lets it go on: it is interrupted, cancelled, or told otherwise.
        return self._held(Text(LOOKED), before=8)


def _split(topic: int, made: int) -> Answer:
    """What the root does: by how many calls it has made in the turn."""
    match topic, made:
        case 0, 0:
            return answer(*(Call("create_subagent", {"name": n, "task": t}) for n, t in TASKS.items()))
        case 0, 4:
            names = {"agent_ids": ["reader", "porter"], "timeout_s": 600}
            return answer(Call("wait_for_subagents", names))
        case 0, 5:
            return answer(Call("interrupt_subagent", {"agent_id": "scout"}))
        case 1, 0:
            return answer(Call("send_subagent_input", {"agent_id": "scout", "input": ERRAND}))
        case 1, 1:
            return answer(Call("wait_for_subagents", {"timeout_s": 600}))
        case 2, 0:
            return answer(
                Call("send_subagent_input", {"agent_id": "scout", "input": AGAIN}),
                Call("close_subagent", {"agent_id": "reader"}),
            )
    return answer(Text(f"That was {SAID[topic]}"))


def _is_user(entry: dict[str, Any]) -> bool:
    return bool(entry["type"] == "message" and entry["role"] == "user")


def _text(entry: dict[str, Any]) -> str:
    return content_text(entry["content"])


class Errands:
    """Reads the rows of the scenario's session beside its servers."""

    def __init__(self, drive: Drive) -> None:
        self.drive = drive
        self._engine = rows_engine(drive.storage.url or str(drive.storage.data_dir / "perdure.db"))

    def look(self) -> Rows:
        assert self.drive.session_id is not None
        rows = read_rows(self._engine, self.drive.session_id)
        check_rows(rows, LIMIT)
        return rows

    def close(self) -> None:
        self._engine.dispose()

    def run(self) -> Seen:
        """Split, send out again, let go, cancel, and ask; returns the last look."""
        drive = self.drive
        agent: Any = {"enabled": True, "max_concurrent_subagents": LIMIT}
        drive.create(SAID[0], model=MODEL, multi_agent=agent)
        self._until_idle(1)
        drive.say(SAID[1])
        self._until_idle(2)
        drive.say(SAID[2])
        self._until_idle(3)
        # A server that was killed must be started again, for the scout to be heard of.
        drive.until(lambda _: _is_writing(self.look(), "scout"))
        drive.send({"type": "agent.session.input.cancel"})
        drive.until(lambda _: not self.look().running)
        drive.say(SAID[3])
        return self._until_idle(4)

    def _until_idle(self, turns: int) -> Seen:
        self.drive.until(lambda seen: bool(self.look()) and len(seen.ended) >= turns)
        return until_idle(self.drive, turns)


def _is_writing(rows: Rows, name: str) -> bool:
    (agent,) = [each for each in rows.subagents if each["name"] == name]
    return any(item["status"] == "in_progress" for item in rows.items_of(agent["id"]))


def check_errands(rows: Rows, drive: Drive, final: Seen) -> None:
    """All that must be true when the last server has ended."""
    check_rows(rows, LIMIT)
    assert drive.model.provider.violations == []
    drive.witness.check(final)
    assert [each["name"] for each in rows.subagents] == ["reader", "scout", "porter"]
    assert [each["status"] for each in rows.subagents] == ["closed", "active", "active"]
    reader, scout, porter = (each["id"] for each in rows.subagents)
    assert rows.user_texts == SAID
    statuses = {agent: [turn["status"] for turn in rows.turns_of(agent)] for agent in (reader, scout, porter)}
    assert statuses == {
        reader: ["completed"],
        scout: ["cancelled", "completed", "cancelled"],
        porter: ["failed"],
    }
    assert [turn["status"] for turn in rows.turns_of(rows.root)] == ["completed"] * 4
    _check_calls(rows)
    reports = [item for item in rows.items_of(rows.root) if item["type"] == "agent_message"]
    told = {
        sender: [text_of(i) for i in reports if i["data"]["sender_agent_id"] == sender] for sender in statuses
    }
    assert told[reader] == [READ]
    assert len(told[porter]) == 1
    assert told[scout][0] == LAMP
    assert len(told[scout]) == 2
    assert told[scout][1].startswith("The subagent was interrupted")
    assert rows.session["owner"] is None
    assert rows.session["wake_at"] is None
    assert rows.inbox == []
    assert rows.reserved == 0
    _check_model_calls(drive, rows)


def _check_calls(rows: Rows) -> None:
    """What the root did, in its order, less what a death broke off."""
    own = [item for item in rows.items_of(rows.root) if item["type"].endswith("_call")]
    assert [(item["type"].removesuffix("_call"), item["status"]) for item in own] == [
        *[("create_subagent", "completed")] * 3,
        ("create_subagent", "failed"),
        ("wait_for_subagents", "completed"),
        ("interrupt_subagent", "completed"),
        ("send_subagent_input", "completed"),
        ("wait_for_subagents", "completed"),
        ("send_subagent_input", "completed"),
        ("close_subagent", "completed"),
    ]
    told = json.loads(own[5]["private"]["result"])
    assert LOOKED.startswith(told["last_text"])
    assert told["last_turn"] == "cancelled"


def _check_model_calls(drive: Drive, rows: Rows) -> None:
    """A step that was committed is not made again; others are, once for each death at most."""
    found = drive.storage.query(
        "SELECT turn_id, outcome FROM model_calls WHERE session_id = ?", drive.session_id
    )
    answered = Counter(turn for turn, outcome in found if outcome == "ok")
    expected: dict[str, int] = {}
    for turn, steps in zip(rows.turns_of(rows.root), STEPS, strict=True):
        expected[turn["id"]] = steps
    for turn in rows.turns:
        if turn["subagent_id"] is not None and turn["status"] == "completed":
            expected[turn["id"]] = 1
    assert answered == Counter(expected), "a step is listed twice or not at all"
    broken = sum(outcome == "interrupted" for _, outcome in found)
    # Each agent has a step under way when its server dies.
    assert broken <= len(drive.deaths) * (LIMIT + 1)
    for turn in rows.turns:
        _check_usage_of(turn, expected.get(turn["id"], 0))


def _check_usage_of(turn: Row, steps: int) -> None:
    used = None if turn["usage"] is None else turn["usage"]["total_tokens"]
    assert used == (steps * 120 or None), f"a step was charged twice or not at all: {turn}"
