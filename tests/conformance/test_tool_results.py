from __future__ import annotations

from typing import Any

import httpx2
import pytest
from openai import BadRequestError, ConflictError, OpenAI

from .conftest import make_client
from .inputs import CLOCK, WEATHER, message, tool_failure, tool_result
from .sessions import answers, create_idle, create_waiting, items, kinds, turns
from .watch import Watcher, until_status


def send(client: OpenAI, session_id: str, *events: Any) -> None:
    client.beta.agents.sessions.events.create(session_id, events=list(events))


def output_of(client: OpenAI, session_id: str, call_id: str) -> dict[str, Any]:
    (found,) = [
        i for i in items(client, session_id) if i.type == "function_call_output" and i.call_id == call_id
    ]
    return found.to_dict(exclude_none=False)


def test_the_session_says_all_that_is_needed_to_answer(client: OpenAI, server: Any) -> None:
    session_id = create_waiting(client).id
    with make_client(server) as other:
        session = other.beta.agents.sessions.retrieve(session_id)
        assert session.status == "requires_action"
        (call,) = session.required_actions
        assert call.type == "function_call"
        assert (call.name, call.arguments) == ("weather", {"city": "Oslo"})
        turn = other.beta.agents.sessions.turns.retrieve(call.turn_id, session_id=session_id)
        assert turn.status == "waiting"
        send(other, session_id, tool_result(call))
        assert until_status(other, session_id, "idle").required_actions == []
        assert answers(other, session_id) == ["It is 7 °C."]
        assert len(turns(other, session_id)) == 1


def test_a_call_is_listed_and_pending_when_its_item_is_announced(client: OpenAI) -> None:
    session = create_idle(client, "weather", tools=[WEATHER])
    with Watcher(client, session.id) as watcher:
        send(client, session.id, message("The weather?"))
        announced = watcher.wait(
            lambda e: e.type == "agent.session.turn.item.added" and e.item.type == "function_call"
        )
        send(client, session.id, tool_result(announced.item))
        watcher.wait("agent.session.turn.completed")
    assert answers(client, session.id)[-1] == "It is 7 °C."


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_parallel_calls_are_answered_one_by_one_in_any_order(client: OpenAI, order: tuple[int, ...]) -> None:
    session = create_waiting(client, "parallel", "both", tools=[WEATHER, CLOCK])
    calls = session.required_actions
    assert [call.name for call in calls] == ["weather", "clock"]
    assert len({call.call_id for call in calls}) == 2
    with Watcher(client, session.id) as watcher:
        watcher.wait("agent.session.requires_action")
        send(client, session.id, tool_result(calls[order[0]], "first"))
        fewer = watcher.wait(
            lambda e: e.type == "agent.session.requires_action" and len(e.session.required_actions) == 1
        )
        assert fewer.session.required_actions == [calls[order[1]]]
        assert client.beta.agents.sessions.retrieve(session.id).required_actions == [calls[order[1]]]
        send(client, session.id, tool_result(calls[order[1]], "second"))
        watcher.wait("agent.session.in_progress")
        watcher.wait("agent.session.idle")
    assert answers(client, session.id) == ["Both are in."]
    assert len(turns(client, session.id)) == 1


def test_both_results_may_come_in_one_batch(client: OpenAI) -> None:
    session = create_waiting(client, "parallel", "both", tools=[WEATHER, CLOCK])
    send(client, session.id, *(tool_result(call) for call in reversed(session.required_actions)))
    until_status(client, session.id, "idle")
    assert answers(client, session.id) == ["Both are in."]


def test_a_failure_is_told_to_the_model(client: OpenAI) -> None:
    session = create_waiting(client)
    (call,) = session.required_actions
    send(client, session.id, tool_failure(call, "no such city"))
    until_status(client, session.id, "idle")
    assert answers(client, session.id) == ["It failed: no such city"]
    output = output_of(client, session.id, call.call_id)
    assert (output["status"], output["output"], output["error"]) == ("failed", None, "no such city")


PARTS = [
    {"type": "input_text", "text": "7 °C"},
    {"type": "input_image", "image_url": "data:image/gif;base64,R0lGODlhAQABAAAAACw="},
]


@pytest.mark.parametrize(
    ("changes", "status", "output", "error"),
    [
        ({}, "completed", None, None),
        ({"output": None, "error": None}, "completed", None, None),
        ({"output": ""}, "completed", "", None),
        ({"output": []}, "completed", [], None),
        (
            {"output": [{"type": "input_text", "text": ""}]},
            "completed",
            [{"type": "input_text", "text": ""}],
            None,
        ),
        ({"output": PARTS}, "completed", PARTS, None),
        ({"output": "x" * 300_000}, "completed", "x" * 300_000, None),
        ({"output": "a\u0000b"}, "completed", "a\u0000b", None),
        ({"success": False}, "failed", None, None),
        ({"success": False, "error": "no", "output": "partial"}, "failed", "partial", "no"),
        ({"error": "with a warning", "output": "7"}, "completed", "7", "with a warning"),
    ],
    ids=[
        "no output",
        "nulls",
        "empty text",
        "no parts",
        "an empty part",
        "parts",
        "long text",
        "a NUL",
        "failed without a reason",
        "failed with both",
        "succeeded with both",
    ],
)
def test_every_documented_shape_is_stored_as_sent(
    client: OpenAI, changes: dict[str, Any], status: str, output: Any, error: Any
) -> None:
    session = create_waiting(client, "parallel", "both", tools=[WEATHER, CLOCK])
    call, other = session.required_actions
    event = {
        "type": "agent.session.input.tool_result",
        "turn_id": call.turn_id,
        "call_id": call.call_id,
        "success": True,
        **changes,
    }
    send(client, session.id, event, tool_result(other))
    until_status(client, session.id, "idle")
    stored = output_of(client, session.id, call.call_id)
    assert {"output", "error"} <= set(stored)
    assert (stored["status"], stored["output"], stored["error"]) == (status, output, error)
    assert answers(client, session.id) == ["Both are in."]


@pytest.mark.parametrize(
    "output", [{"degrees": 7}, 7, True, ["7"], [{"type": "output_text", "text": "7"}], [[]]]
)
def test_an_output_that_is_neither_text_nor_parts_is_refused_by_name(
    client: OpenAI, raw: httpx2.Client, output: Any
) -> None:
    session = create_waiting(client)
    (call,) = session.required_actions
    response = raw.post(f"/agents/sessions/{session.id}/events", json={"events": [tool_result(call, output)]})
    assert response.status_code == 400
    assert response.json()["error"]["param"].startswith("events[0].output")
    assert client.beta.agents.sessions.retrieve(session.id) == session


def test_an_identical_repeat_is_accepted_without_effect(client: OpenAI) -> None:
    session = create_waiting(client, "parallel", "both", tools=[WEATHER, CLOCK])
    first, second = session.required_actions
    for _ in range(2):
        send(client, session.id, tool_result(first))
    send(client, session.id, tool_result(second))
    until_status(client, session.id, "idle")
    before = items(client, session.id)
    send(client, session.id, tool_result(first))
    send(client, session.id, tool_result(second), tool_result(first))
    assert client.beta.agents.sessions.retrieve(session.id).status == "idle"
    assert items(client, session.id) == before
    assert kinds(before).count("function_call_output") == 2


def test_a_different_repeat_is_a_conflict_that_is_not_retried(client: OpenAI) -> None:
    session = create_waiting(client, "parallel", "both", tools=[WEATHER, CLOCK])
    first, second = session.required_actions
    send(client, session.id, tool_result(first))

    def contradict() -> None:
        for other in (tool_result(first, "8 °C"), tool_failure(first), tool_result(first, None)):
            with pytest.raises(ConflictError) as refusal:
                send(client, session.id, other)
            assert refusal.value.code == "conflict_error"
            assert "already has a different result" in str(refusal.value.body)
            assert refusal.value.response.headers["x-should-retry"] == "false"

    contradict()
    send(client, session.id, tool_result(second))
    until_status(client, session.id, "idle")
    contradict()
    assert output_of(client, session.id, first.call_id)["output"] == "7 °C"


@pytest.mark.parametrize("call_id", ["call_unknown", "call_000000000000000000000000", "c", "ä" * 50])
def test_an_unknown_call_is_refused_in_the_words_clients_wait_for(client: OpenAI, call_id: str) -> None:
    session = create_waiting(client)
    (call,) = session.required_actions
    with pytest.raises(BadRequestError) as refusal:
        send(client, session.id, tool_result(call, call_id=call_id))
    assert refusal.value.code == "invalid_request_error"
    assert refusal.value.body["message"] == f"Unknown pending tool call: {call_id}"
    assert client.beta.agents.sessions.retrieve(session.id) == session


def test_a_call_of_another_session_is_an_unknown_one(client: OpenAI) -> None:
    mine, other = create_waiting(client), create_waiting(client)
    (call,) = other.required_actions
    with pytest.raises(BadRequestError) as refusal:
        send(client, mine.id, tool_result(call))
    assert refusal.value.body["message"] == f"Unknown pending tool call: {call.call_id}"
    assert client.beta.agents.sessions.retrieve(other.id) == other


def test_an_item_or_turn_id_in_place_of_the_call_id_is_refused_by_naming_the_right_one(
    client: OpenAI,
) -> None:
    session = create_waiting(client)
    (call,) = session.required_actions
    (item,) = [item for item in items(client, session.id) if item.type == "function_call"]
    user = items(client, session.id)[0]
    for wrong in (item.id, user.id, call.turn_id):
        with pytest.raises(BadRequestError) as refusal:
            send(client, session.id, tool_result(call, call_id=wrong))
        text = str(refusal.value.body["message"])
        assert "call_id" in text
        assert not text.startswith("Unknown pending tool call")
        assert refusal.value.param == "events[0].call_id"
    assert client.beta.agents.sessions.retrieve(session.id) == session


def test_the_wrong_turn_of_a_known_call_is_refused_in_other_words(client: OpenAI) -> None:
    session = create_idle(client, "weather", tools=[WEATHER])
    (old,) = turns(client, session.id)
    send(client, session.id, message("The weather?"))
    (call,) = until_status(client, session.id, "requires_action").required_actions
    for wrong in (old.id, "turn_unknown", call.call_id):
        with pytest.raises(BadRequestError) as refusal:
            send(client, session.id, tool_result(call, turn_id=wrong))
        assert "Unknown pending tool call" not in str(refusal.value.body)
        assert refusal.value.param == "events[0].turn_id"
    send(client, session.id, tool_result(call))
    until_status(client, session.id, "idle")


def test_call_ids_of_the_server_are_unique_even_when_the_model_repeats_itself(client: OpenAI) -> None:
    session = create_idle(client, "weather", tools=[WEATHER])
    seen = set()
    for _ in range(3):
        send(client, session.id, message("The weather?"))
        (call,) = until_status(client, session.id, "requires_action").required_actions
        seen.add(call.call_id)
        send(client, session.id, tool_result(call))
        until_status(client, session.id, "idle")
    assert len(seen) == 3


def test_required_actions_and_items_agree_in_every_read(client: OpenAI) -> None:
    session = create_waiting(client, "parallel", "both", tools=[WEATHER, CLOCK])

    def owed() -> tuple[set[str], set[str]]:
        listed = client.beta.agents.sessions.retrieve(session.id).required_actions
        calls = [item for item in items(client, session.id) if item.type == "function_call"]
        return {a.call_id for a in listed}, {c.call_id for c in calls if c.status == "in_progress"}

    first, second = session.required_actions
    assert owed() == ({first.call_id, second.call_id},) * 2
    with Watcher(client, session.id) as watcher:
        watcher.wait("agent.session.requires_action")
        send(client, session.id, tool_result(first))
        watcher.wait(
            lambda e: e.type == "agent.session.requires_action" and len(e.session.required_actions) == 1
        )
        assert owed() == ({second.call_id},) * 2
    send(client, session.id, tool_result(second))
    until_status(client, session.id, "idle")
    assert owed() == (set(), set())
