"""A message to a busy session joins the running turn at its next step, or becomes the next turn."""

from __future__ import annotations

from typing import Any

from openai import OpenAI

from .conftest import Gate
from .inputs import CLOCK, WEATHER, message, tool_result
from .sessions import answers, create, create_waiting, items, kinds, turns, user_texts
from .watch import Watcher, until, until_status


def send(client: OpenAI, session_id: str, *events: Any) -> None:
    client.beta.agents.sessions.events.create(session_id, events=list(events))


def test_a_message_while_a_call_is_pending_joins_the_turn_after_its_result(client: OpenAI) -> None:
    session = create_waiting(client, "steered")
    (call,) = session.required_actions
    send(client, session.id, message("Tokyo instead."))
    seen = client.beta.agents.sessions.retrieve(session.id)
    assert (seen.status, seen.required_actions) == ("requires_action", [call])
    assert len(turns(client, session.id)) == 1
    send(client, session.id, tool_result(call))
    until_status(client, session.id, "idle")
    saved = items(client, session.id)
    assert kinds(saved) == ["user", "function_call", "function_call_output", "user", "assistant"]
    assert answers(client, session.id) == ["Changed course: Tokyo instead."]
    assert {item.turn_id for item in saved} == {call.turn_id}
    assert len(turns(client, session.id)) == 1


def test_messages_while_waiting_stay_apart_and_in_order(client: OpenAI) -> None:
    session = create_waiting(client, "parallel", "both", tools=[WEATHER, CLOCK])
    first, second = session.required_actions
    send(client, session.id, message("One more thing."))
    send(client, session.id, tool_result(first))
    send(client, session.id, message("And another.", "And a third."))
    send(client, session.id, tool_result(second))
    until_status(client, session.id, "idle")
    saved = items(client, session.id)
    assert kinds(saved) == [
        "user",
        "function_call",
        "function_call",
        "function_call_output",
        "function_call_output",
        "user",
        "user",
        "user",
        "assistant",
    ]
    assert user_texts(client, session.id)[1:] == ["One more thing.", "And another.", "And a third."]
    assert len(turns(client, session.id)) == 1


def test_a_steering_message_makes_no_new_turn_on_the_stream(client: OpenAI) -> None:
    session = create_waiting(client, "steered")
    (call,) = session.required_actions
    with Watcher(client, session.id) as watcher:
        watcher.wait("agent.session.requires_action")
        send(client, session.id, message("Tokyo instead."), tool_result(call))
        watcher.wait("agent.session.idle")
    assert "agent.session.turn.created" not in watcher.types
    (added,) = [
        event
        for event in watcher.events
        if event.type == "agent.session.turn.item.added" and kinds([event.item]) == ["user"]
        and event.item.content[0].text == "Tokyo instead."
    ]  # fmt: skip
    assert added.turn_id == call.turn_id
    assert added.output_index is None


def test_a_message_during_the_only_generation_becomes_the_next_turn_without_idle(
    client: OpenAI, gate: Gate
) -> None:
    session = create(client, "gated", gate.text)
    with Watcher(client, session.id) as watcher:
        watcher.wait("agent.session.turn.output_text.delta")
        send(client, session.id, message("And you?"))
        assert user_texts(client, session.id) == [gate.text]
        assert len(turns(client, session.id)) == 1
        gate.release()
        watcher.wait("agent.session.idle")
        types = watcher.types
    assert types.count("agent.session.turn.created") == 1
    completed = types.index("agent.session.turn.completed")
    assert types[completed + 1] == "agent.session.turn.created"
    assert types.count("agent.session.idle") == 1
    assert types[-1] == "agent.session.idle"
    saved = items(client, session.id)
    assert kinds(saved) == ["user", "assistant", "user", "assistant"]
    assert answers(client, session.id) == ["Before, after.", "You said: And you?"]
    first, second = turns(client, session.id)
    assert [item.turn_id for item in saved] == [first.id, first.id, second.id, second.id]


def test_several_messages_behind_one_generation_are_merged_into_one_turn(client: OpenAI, gate: Gate) -> None:
    session = create(client, "gated", gate.text)
    with Watcher(client, session.id) as watcher:
        watcher.wait("agent.session.turn.output_text.delta")
        for text in ("One.", "Two.", "Three."):
            send(client, session.id, message(text))
        gate.release()
        watcher.wait("agent.session.idle")
    assert user_texts(client, session.id) == [gate.text, "One.", "Two.", "Three."]
    _, second = turns(client, session.id)
    own = [item for item in items(client, session.id) if item.turn_id == second.id]
    assert kinds(own) == ["user", "user", "user", "assistant"]


def test_a_message_before_the_first_word_becomes_the_next_turn(client: OpenAI, gate: Gate) -> None:
    session = create(client, "held", gate.text)
    until(lambda: turns(client, session.id)[0].status, lambda status: status == "in_progress")
    send(client, session.id, message("And you?"))
    gate.release()
    until_status(client, session.id, "idle")
    assert answers(client, session.id) == ["Released.", "You said: And you?"]


def test_the_creation_stream_goes_on_to_the_idle_behind_the_queued_turn(client: OpenAI, gate: Gate) -> None:
    events = client.beta.agents.sessions.create(
        agent={"model": "gated"}, environment={"type": "none"}, input=gate.text, stream=True
    )
    types = []
    for event in events:
        types.append(event.type)
        if event.type == "agent.session.turn.output_text.delta" and not gate.path.exists():
            send(client, event.session_id, message("And you?"))
            gate.release()
    assert types.count("agent.session.turn.completed") == 2
    assert types.count("agent.session.idle") == 1
    assert types[-1] == "agent.session.idle"


def test_a_message_right_behind_the_end_of_a_turn_is_never_lost(client: OpenAI) -> None:
    session = create(client, "echo")
    until_status(client, session.id, "idle")
    texts = [f"Message {number}." for number in range(20)]
    with Watcher(client, session.id) as watcher:
        for text in texts:
            before = len(watcher.events)
            send(client, session.id, message(text))
            watcher.wait("agent.session.turn.completed", after=before)
    until_status(client, session.id, "idle")
    assert user_texts(client, session.id) == ["Hello.", *texts]
    assert answers(client, session.id) == [f"You said: {text}" for text in ["Hello.", *texts]]
