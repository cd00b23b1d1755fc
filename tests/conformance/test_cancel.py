from __future__ import annotations

from typing import Any

import pytest
from openai import ConflictError, OpenAI

from .conftest import Gate, PrivateServers
from .inputs import CLOCK, WEATHER, cancel, message, tool_result
from .scripts import SETTINGS
from .sessions import answers, create, create_idle, create_waiting, items, kinds, text_of, turns, user_texts
from .watch import Watcher, until, until_status, until_turn


def send(client: OpenAI, session_id: str, *events: Any) -> None:
    client.beta.agents.sessions.events.create(session_id, events=list(events))


def test_a_running_turn_ends_as_cancelled_and_keeps_what_was_said(client: OpenAI, gate: Gate) -> None:
    session = create_idle(client, "gated")
    with Watcher(client, session.id) as watcher:
        send(client, session.id, message(gate.text))
        turn_id = watcher.wait("agent.session.turn.output_text.delta").turn_id
        send(client, session.id, cancel())
        watcher.wait("agent.session.idle", after=1)
        tail = watcher.types[-3:]
    assert tail == [
        "agent.session.turn.item.done",
        "agent.session.turn.cancelled",
        "agent.session.idle",
    ]
    done = next(event for event in watcher.events if event.type == "agent.session.turn.item.done")
    assert (done.item.status, text_of(done.item)) == ("incomplete", "Before, ")
    turn = client.beta.agents.sessions.turns.retrieve(turn_id, session_id=session.id)
    assert (turn.status, turn.error) == ("cancelled", None)
    assert turn.completed_at is not None
    last = items(client, session.id)[-1]
    assert (last.status, text_of(last)) == ("incomplete", "Before, ")


def test_a_turn_cancelled_before_its_first_word_has_no_answer(client: OpenAI, gate: Gate) -> None:
    session = create(client, "held", gate.text)
    until(lambda: turns(client, session.id)[0].status, lambda status: status == "in_progress")
    send(client, session.id, cancel())
    until_status(client, session.id, "idle")
    assert turns(client, session.id)[0].status == "cancelled"
    assert kinds(items(client, session.id)) == ["user"]


def test_a_waiting_turn_ends_as_cancelled_and_owes_nothing(client: OpenAI) -> None:
    session = create_waiting(client)
    (call,) = session.required_actions
    with Watcher(client, session.id) as watcher:
        watcher.wait("agent.session.requires_action")
        send(client, session.id, cancel())
        idle = watcher.wait("agent.session.idle")
        done = watcher.wait("agent.session.turn.item.done")
        watcher.wait("agent.session.turn.cancelled")
    assert idle.session.required_actions == []
    assert (done.item.type, done.item.status) == ("function_call", "incomplete")
    after = client.beta.agents.sessions.retrieve(session.id)
    assert (after.status, after.required_actions) == ("idle", [])
    turn = client.beta.agents.sessions.turns.retrieve(call.turn_id, session_id=session.id)
    assert (turn.status, turn.error) == ("cancelled", None)
    assert [item.status for item in items(client, session.id) if item.type == "function_call"] == [
        "incomplete"
    ]


def test_the_conversation_goes_on_after_a_cancelled_call(client: OpenAI) -> None:
    session = create_waiting(client)
    send(client, session.id, cancel())
    until_status(client, session.id, "idle")
    with client.beta.agents.sessions.stream(session.id, input="Hello again.") as stream:
        assert stream.get_final_result().output_text == "You said: Hello again."


def test_the_conversation_goes_on_after_a_cancel_between_two_results(client: OpenAI) -> None:
    session = create_waiting(client, "parallel", "both", tools=[WEATHER, CLOCK])
    first, second = session.required_actions
    send(client, session.id, tool_result(first))
    send(client, session.id, cancel())
    until_status(client, session.id, "idle")
    with pytest.raises(ConflictError):
        send(client, session.id, tool_result(second))
    states = {item.call_id: item.status for item in items(client, session.id) if item.type == "function_call"}
    assert states == {first.call_id: "completed", second.call_id: "incomplete"}
    with client.beta.agents.sessions.stream(session.id, input="Hello again.") as stream:
        assert stream.get_final_result().output_text == "You said: Hello again."


def test_a_result_after_the_cancel_is_a_conflict_that_is_not_retried(client: OpenAI) -> None:
    session = create_waiting(client)
    (call,) = session.required_actions
    send(client, session.id, cancel())
    for _ in range(2):
        with pytest.raises(ConflictError) as refusal:
            send(client, session.id, tool_result(call))
        assert refusal.value.code == "conflict_error"
        assert refusal.value.response.headers["x-should-retry"] == "false"
        until_status(client, session.id, "idle")
    assert answers(client, session.id) == []


def test_a_cancel_of_an_idle_session_makes_no_event_and_leaves_nothing(client: OpenAI) -> None:
    session = create_idle(client)
    with Watcher(client, session.id) as watcher:
        watcher.wait("agent.session.idle")
        for _ in range(3):
            send(client, session.id, cancel())
        send(client, session.id, message("Next."))
        watcher.wait("agent.session.idle", after=1)
    assert watcher.types[:2] == ["agent.session.idle", "agent.session.turn.created"]
    assert [turn.status for turn in turns(client, session.id)] == ["completed", "completed"]
    assert answers(client, session.id)[-1] == "You said: Next."


def test_cancelling_twice_cancels_once(client: OpenAI, gate: Gate) -> None:
    session = create_idle(client, "gated")
    with Watcher(client, session.id) as watcher:
        send(client, session.id, message(gate.text))
        watcher.wait("agent.session.turn.output_text.delta")
        for _ in range(20):
            send(client, session.id, cancel())
        watcher.wait("agent.session.idle", after=1)
        send(client, session.id, message("Next."))
        watcher.wait("agent.session.turn.completed")
    assert watcher.types.count("agent.session.turn.cancelled") == 1
    assert [turn.status for turn in turns(client, session.id)] == ["completed", "cancelled", "completed"]


def test_cancels_around_the_end_of_a_turn_leave_the_session_usable(client: OpenAI) -> None:
    session = create_idle(client)
    for number in range(10):
        send(client, session.id, message(f"Message {number}."))
        for _ in range(5):
            send(client, session.id, cancel())
        until_status(client, session.id, "idle")
    assert {turn.status for turn in turns(client, session.id)} <= {"completed", "cancelled"}
    with client.beta.agents.sessions.stream(session.id, input="Still there?") as stream:
        assert stream.get_final_result().output_text == "You said: Still there?"


def test_a_queued_turn_is_cancelled_before_it_starts(private_servers: PrivateServers) -> None:
    server = private_servers(SETTINGS.replace("[work]", "[work]\nsession_concurrency = 1"))
    client, gate = private_servers.client(server), private_servers.gate(server)
    busy = create(client, "held", gate.text)
    until(lambda: turns(client, busy.id)[0].status, lambda status: status == "in_progress")
    queued = create(client, "echo")
    (turn,) = turns(client, queued.id)
    assert (turn.status, turn.started_at) == ("queued", None)
    assert client.beta.agents.sessions.retrieve(queued.id).status == "in_progress"
    send(client, queued.id, cancel())
    gate.release()
    cancelled = until_turn(client, queued.id, turn.id, "cancelled", "completed")
    assert (cancelled.status, cancelled.started_at, cancelled.error) == ("cancelled", None, None)
    until_status(client, queued.id, "idle")
    assert kinds(items(client, queued.id)) == ["user"]
    with client.beta.agents.sessions.stream(queued.id, input="Now?") as stream:
        assert stream.get_final_result().output_text == "You said: Now?"


def test_a_cancel_and_a_message_in_one_batch_end_one_turn_and_start_the_next(
    client: OpenAI, gate: Gate
) -> None:
    session = create(client, "gated", gate.text)
    with Watcher(client, session.id) as watcher:
        watcher.wait("agent.session.turn.output_text.delta")
        send(client, session.id, cancel(), message("Instead."))
        watcher.wait("agent.session.turn.completed")
        watcher.wait("agent.session.idle")
    types = watcher.types
    ended = types.index("agent.session.turn.cancelled")
    assert types[ended + 1] == "agent.session.turn.created"
    assert types.count("agent.session.idle") == 1
    assert [turn.status for turn in turns(client, session.id)] == ["cancelled", "completed"]
    assert answers(client, session.id) == ["Before, ", "You said: Instead."]


def test_a_message_before_the_cancel_becomes_history_of_the_cancelled_turn(
    client: OpenAI, gate: Gate
) -> None:
    session = create(client, "gated", gate.text)
    with Watcher(client, session.id) as watcher:
        watcher.wait("agent.session.turn.output_text.delta")
        send(client, session.id, message("Unheard."), cancel())
        watcher.wait("agent.session.idle")
    (turn,) = turns(client, session.id)
    assert turn.status == "cancelled"
    assert user_texts(client, session.id) == [gate.text, "Unheard."]
    assert {item.turn_id for item in items(client, session.id)} == {turn.id}


def test_a_terminal_turn_is_not_changed_by_a_later_cancel(client: OpenAI) -> None:
    session = create_idle(client)
    (before,) = turns(client, session.id)
    send(client, session.id, cancel())
    assert turns(client, session.id) == [before]


def test_closing_a_stream_cancels_nothing(client: OpenAI, gate: Gate) -> None:
    session = create(client, "gated", gate.text)
    with Watcher(client, session.id) as watcher:
        watcher.wait("agent.session.turn.output_text.delta")
    gate.release()
    until_status(client, session.id, "idle")
    assert answers(client, session.id) == ["Before, after."]


def test_a_cancel_that_took_a_message_along_leaves_the_next_input_heard(client: OpenAI) -> None:
    session = create_waiting(client)
    for _ in range(3):
        send(client, session.id, message("Unheard."), cancel())
        until_status(client, session.id, "idle")
        send(client, session.id, message("The weather?"))
        until_status(client, session.id, "requires_action")
    send(client, session.id, cancel())
    assert until_status(client, session.id, "idle").required_actions == []
    send(client, session.id, message("The weather?"))
    (call,) = until_status(client, session.id, "requires_action").required_actions
    send(client, session.id, message("Heard."))
    send(client, session.id, tool_result(call))
    until_status(client, session.id, "idle")
    assert user_texts(client, session.id)[-1] == "Heard."


def test_a_cancel_that_took_a_result_along_leaves_the_next_input_heard(client: OpenAI) -> None:
    session = create_waiting(client, "parallel", "both", tools=[WEATHER, CLOCK])
    for _ in range(3):
        first, _second = client.beta.agents.sessions.retrieve(session.id).required_actions
        send(client, session.id, tool_result(first), cancel())
        until_status(client, session.id, "idle")
        send(client, session.id, message("both"))
        until_status(client, session.id, "requires_action")
    send(client, session.id, cancel())
    assert until_status(client, session.id, "idle").required_actions == []
