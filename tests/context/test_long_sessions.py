"""A session far longer than its model's window loses no fact, and does nothing twice."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from tests.providers.answers import Call, Plan, Refusal, Text, answer
from tests.providers.anthropic import AnthropicProvider
from tests.providers.chat import ChatProvider
from tests.providers.gemini import GeminiProvider
from tests.providers.server import FakeProvider

from .conftest import Desk, Desks
from .office import NOTE

pytestmark = pytest.mark.slow

RULE = "no refund above 100"
OPENING = f"I am the shop. Order A-1042 over 129.90 is in dispute, and there is {RULE}."
PINS = {
    "perdure.pin.disputed_order": "A-1042",
    "perdure.pin.disputed_amount": "129.90",
    "perdure.pin.refund_policy": RULE,
}
NOTE_START = "[Note from the server."


def question(turn: int) -> str:
    return f"Question {turn:03}: how is order B-{2000 + turn}? " + "I ask because it matters. " * 4


def result(turn: int) -> str:
    return f'{{"order_id": "B-{2000 + turn}", "total": {turn}.50, "note": "{"packed with care " * 6}"}}'


def talk(desk: Desk, turns: int, *, options: dict[str, Any] | None = None, first: int = 1) -> str:
    """A session of so many turns behind its first one, every third with a call."""
    session_id = desk.open(OPENING, metadata=PINS, **(options or {}))
    for turn in range(first, turns + 1):
        if turn % 3 == 0:
            desk.office.look_up(f"B-{2000 + turn}", f"Order B-{2000 + turn} is packed.")
            told = desk.say(session_id, question(turn), lambda _, n=turn: result(n))
        else:
            told = desk.say(session_id, question(turn))
        assert told.turn.status == "completed"
    return session_id


def check_requests(desk: Desk) -> None:
    """Of the requests behind the first compaction."""
    office = desk.office
    assert office.provider.overflows == 0
    assert office.provider.violations == []
    compacted = [body for body in office.requests if NOTE in body]
    first = office.requests.index(compacted[0])
    assert compacted == office.requests[first:], "a compacted history came back"
    for body in compacted:
        for name, value in PINS.items():
            assert f"{name.removeprefix('perdure.pin.')}: {value} (pinned by the application)" in body


def check_items(desk: Desk, session_id: str, turns: int) -> None:
    """Every item of the session can still be listed, in order."""
    items = desk.items(session_id)
    said = [item.content[0].text for item in items if item.type == "message" and item.role == "user"]
    assert said == [OPENING, *map(question, range(1, turns + 1))]
    outputs = [item.output for item in items if item.type == "function_call_output"]
    assert outputs == [result(turn) for turn in range(3, turns + 1, 3)]


def check_presented(body: str) -> None:
    """Every message of the user but the newest is answered: nothing that is finished looks open."""
    entries = json.loads(body)["input"]
    roles = []
    for entry in entries:
        text = json.dumps(entry)
        if entry["type"] != "message":
            roles.append("call")
        elif NOTE_START in text:
            roles.append("note")
        else:
            roles.append(entry["role"])
    asked = [place for place, role in enumerate(roles) if role == "user"]
    for before, after in pairwise(asked):
        assert "assistant" in roles[before:after], "an older request looks open"
    newest = json.dumps(entries[asked[-1]])
    numbers = [int(part[:3]) for part in body.split("Question ")[1:]]
    assert f"Question {max(numbers):03}" in newest, "the newest request is not the last one"


@pytest.mark.parametrize("turns", [300])
def test_three_hundred_turns_in_a_window_of_8k(desks: Desks, turns: int) -> None:
    desk = desks()
    session_id = talk(desk, turns)
    check_requests(desk)
    check_items(desk, session_id, turns)
    for body in desk.office.requests:
        if "Question" in body:
            check_presented(body)
    seen = desk.context(session_id)
    compactions = seen["compactions"]
    assert len(compactions) == len(desk.office.summaries) > 5
    assert {each["method"] for each in compactions} == {"summary"}
    assert all(each["tokens"]["after"] < each["tokens"]["before"] for each in compactions)
    assert seen["tokens"]["total"] < seen["room"]["window"] == 8192
    assert {pin["value"] for pin in seen["pins"] if pin["kind"] == "application"} == set(PINS.values())
    found = [pin["value"] for pin in seen["pins"] if pin["kind"] == "rule"]
    orders = [int(value[2:]) for value in found if value.startswith("B-")]
    assert orders == sorted(orders, reverse=True), "the newest-referenced facts come first"
    note = json.loads(desk.office.requests[-1])["input"][0]["content"][0]["text"]
    shown = [
        line for line in note.splitlines() if line.startswith("- ") and "(result of lookup_order" in line
    ]
    assert 5 < len(shown) < len(found)
    assert sum(map(len, shown)) < 4 * 8192 // 12, "facts that were found take no more than their room"
    # Usage holds what the summaries used as well.
    session = desk.sessions.retrieve(session_id)
    sent = sum(len(body.encode()) // 4 for body in (*desk.office.requests, *desk.office.summaries))
    assert session.usage.input_tokens == sent


@pytest.mark.parametrize("kind", [ChatProvider, AnthropicProvider, GeminiProvider])
def test_every_wire_accepts_a_compacted_history(desks: Desks, kind: type[FakeProvider]) -> None:
    desk = desks(kind)
    session_id = talk(desk, 60)
    check_requests(desk)
    check_items(desk, session_id, 60)


FAILURES: dict[str, Plan | None] = {
    "error": Refusal(500, "server_error", "Broken."),
    "refused request": Refusal(400, "invalid_request_error", "No."),
    "empty": answer(Text("   ")),
    "too long": answer(Text("word " * 4000)),
    "a call": answer(Call("lookup_order", {"order_id": "A-1042"})),
    "refusal": answer(Text("I will not write that.", refusal=True)),
    "cut": answer(Text("The user"), cut_after=4),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_a_summary_that_fails_is_replaced_by_an_outline(desks: Desks, failure: str) -> None:
    desk = desks()
    plan = FAILURES[failure]
    assert plan is not None
    desk.office.summarise = lambda _: plan
    session_id = talk(desk, 45)
    check_requests(desk)
    check_items(desk, session_id, 45)
    for body in desk.office.requests:
        if "Question" in body:
            check_presented(body)
    compactions = desk.context(session_id)["compactions"]
    assert {each["method"] for each in compactions} == {"trim"}
    assert all(each["tokens"]["after"] < each["tokens"]["before"] for each in compactions)
    assert desk.office.summaries, "nobody was asked"
    assert {item.type for item in desk.items(session_id)} == {
        "message", "function_call", "function_call_output"
    }  # fmt: skip


def test_asynchronous_compaction_leaves_no_gap(desks: Desks) -> None:
    desk = desks()
    session_id = talk(desk, 150, options={"agent": {"compaction": {"async": True}}})
    check_requests(desk)
    check_items(desk, session_id, 150)
    for body in desk.office.requests:
        if "Question" in body:
            check_presented(body)
    assert {each["method"] for each in desk.context(session_id)["compactions"]} == {"summary"}


def test_a_switch_to_a_small_model_summarises_the_history_in_pieces(desks: Desks) -> None:
    settings = '[context]\npin_paths = { total = "lookup_order:$.total" }\n'
    desk = desks(settings=settings, table={"context_window": 200_000}, context_window=200_000)
    config = desk.server.config
    small = '[provider.model."fake-small"]\ncontext_window = 8192\n'
    config.write_text(f"{config.read_text()}\n{small}")
    desk.server.restart()
    desk.client.base_url = desk.server.base_url
    session_id = desk.open(OPENING, metadata=PINS)
    for turn in range(1, 40):
        if turn % 10 == 0:
            desk.office.look_up(f"B-{2000 + turn}", "Packed.")
        desk.say(session_id, question(turn) + "Tell me all. " * 60, lambda _, n=turn: result(n))
    assert desk.office.summaries == []
    desk.sessions.update(session_id, agent={"model": "fake-small"})
    assert desk.say(session_id, "And now in short?").turn.status == "completed"
    pieces = desk.office.summaries
    assert len(pieces) > 1
    assert all("A summary of what came before" in body for body in pieces[1:])
    small_ones = [body for body in (*desk.office.requests, *pieces) if '"model": "fake-small"' in body]
    assert small_ones[-1] == pieces[-1]
    assert max(len(body.encode()) // 4 for body in small_ones) < 8192
    (compaction,) = desk.context(session_id)["compactions"]
    assert compaction["model"] == {"provider": "fake", "model": "fake-small"}
    last = desk.office.requests[-1]
    for turn in (10, 20, 30):
        assert f"total: {turn}.50 (result of lookup_order" in last, "what a path finds is always told"


def test_another_model_may_write_the_summaries(desks: Desks) -> None:
    desk = desks(settings='[context]\nsummary_model = "fake-writer"\n')
    session_id = talk(desk, 45)
    check_requests(desk)
    assert all('"model": "fake-writer"' in body for body in desk.office.summaries)
    assert all('"model": "fake"' in body for body in desk.office.requests)
    models = {each["model"]["model"] for each in desk.context(session_id)["compactions"]}
    assert models == {"fake-writer"}


def test_a_compaction_changes_nothing_but_the_messages(desks: Desks) -> None:
    schema = {
        "type": "object",
        "properties": {"answer": {"type": "string"}},
        "required": ["answer"],
        "additionalProperties": False,
    }
    text = {"format": {"type": "json_schema", "schema": schema}, "verbosity": "low"}
    agent = {"instructions": "Be exact.", "text": text, "reasoning": {"effort": "low"}}
    desk = desks()
    told = [answer(Text(json.dumps({"answer": "All is well. " * 60}))) for _ in range(31)]
    desk.office.plans += told
    session_id = desk.open(OPENING, agent=agent, metadata=PINS)
    for turn in range(1, 31):
        assert desk.say(session_id, question(turn)).turn.status == "completed"
    check_requests(desk)
    bodies = [json.loads(body) for body in desk.office.requests]
    for body in bodies:
        assert {**body, "input": None} == {**bodies[0], "input": None}
    for summary in map(json.loads, desk.office.summaries):
        assert "format" not in summary["text"], "a summary is no answer in the agent's format"
        assert summary["instructions"] == bodies[0]["instructions"]
        assert summary["tools"] == bodies[0]["tools"]
