"""What an event says is already so for whoever asks on receiving it."""

from __future__ import annotations

from openai import OpenAI

from .inputs import CLOCK, NONE, WEATHER, message, tool_result
from .sessions import create_idle, kinds

TURN = "agent.session.turn."


def test_a_done_item_is_listed_when_it_is_announced(client: OpenAI) -> None:
    sessions = client.beta.agents.sessions
    session = create_idle(client)
    with sessions.events.stream(session.id) as stream:
        seen = 0
        for event in stream:
            if event.type == f"{TURN}item.done":
                newest = sessions.items.list(session.id, order="desc", limit=1).data[0]
                assert newest.to_dict() == event.item.to_dict()
                seen += 1
            elif event.type == "agent.session.idle":
                if seen == 30:
                    break
                sessions.events.create(session.id, events=[message(f"Message {seen}.")])
    assert seen == 30


def test_added_items_and_calls_are_listed_when_they_are_announced(client: OpenAI) -> None:
    sessions = client.beta.agents.sessions
    events = sessions.create(
        agent={"model": "parallel", "tools": [WEATHER, CLOCK]}, environment=NONE, input="both", stream=True
    )
    added: list[str] = []
    asked = 0
    for event in events:
        if event.type == f"{TURN}item.added":
            added.append(event.item.type)
            listed = {item.id: item for item in sessions.items.list(event.session_id, limit=100)}
            assert event.item.id in listed
            if event.item.type == "function_call":
                actions = sessions.retrieve(event.session_id).required_actions
                assert event.item.call_id in [action.call_id for action in actions]
        elif event.type == "agent.session.requires_action":
            asked += 1
            assert sessions.retrieve(event.session.id) == event.session
            # One at a time: the next event must not be outdated by our own results.
            sessions.events.create(event.session.id, events=[tool_result(event.session.required_actions[0])])
    assert asked == 2
    assert (added.count("function_call"), added.count("function_call_output")) == (2, 2)


def test_the_session_and_the_turn_are_in_the_state_that_is_announced(client: OpenAI) -> None:
    sessions = client.beta.agents.sessions
    checked = 0
    for _ in range(10):
        for event in sessions.create(agent={"model": "echo"}, environment=NONE, input="Hello.", stream=True):
            if event.type == "agent.session.created":
                assert sessions.retrieve(event.session.id).id == event.session.id
                first = sessions.items.list(event.session.id, order="asc", limit=1).data
                assert kinds(list(first)) == ["user"]
            elif event.type == f"{TURN}created":
                assert sessions.turns.retrieve(event.turn_id, session_id=event.session_id).id == event.turn_id
            elif event.type == f"{TURN}completed":
                assert sessions.turns.retrieve(event.turn_id, session_id=event.session_id) == event.turn
            elif event.type == "agent.session.idle":
                assert sessions.retrieve(event.session.id) == event.session
                checked += 1
    assert checked == 10
