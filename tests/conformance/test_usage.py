from __future__ import annotations

from openai import OpenAI

from .inputs import WEATHER, tool_result
from .sessions import create_idle, create_waiting, turns
from .watch import until_status

ONE_ANSWER = {
    "input_tokens": 100,
    "input_tokens_details": {"cached_tokens": 40},
    "output_tokens": 20,
    "output_tokens_details": {"reasoning_tokens": 5},
    "total_tokens": 120,
}


def test_tokens_are_counted_by_turn_and_summed_by_session(client: OpenAI) -> None:
    session = create_idle(client, "greeter")
    with client.beta.agents.sessions.stream(session.id, input="Again.") as stream:
        events = list(stream)
    completed = next(event for event in events if event.type == "agent.session.turn.completed")
    assert completed.usage is not None
    assert completed.usage.to_dict() == ONE_ANSWER
    for turn in turns(client, session.id):
        assert turn.usage is not None
        assert turn.usage.to_dict() == ONE_ANSWER
    total = client.beta.agents.sessions.retrieve(session.id).usage
    assert total is not None
    assert total.to_dict() == {
        "input_tokens": 200,
        "input_tokens_details": {"cached_tokens": 80},
        "output_tokens": 40,
        "output_tokens_details": {"reasoning_tokens": 10},
        "total_tokens": 240,
    }


def test_all_model_calls_of_a_turn_count(client: OpenAI) -> None:
    session = create_waiting(client, "counted", tools=[WEATHER])
    (call,) = session.required_actions
    client.beta.agents.sessions.events.create(session.id, events=[tool_result(call)])
    until_status(client, session.id, "idle")
    (turn,) = turns(client, session.id)
    assert turn.usage is not None
    assert (turn.usage.input_tokens, turn.usage.output_tokens, turn.usage.total_tokens) == (30, 3, 33)


def test_what_the_provider_does_not_tell_is_null_and_not_zero(client: OpenAI) -> None:
    session = create_idle(client, "silent-about-usage")
    (turn,) = turns(client, session.id)
    assert turn.status == "completed"
    assert turn.usage is None
    assert client.beta.agents.sessions.retrieve(session.id).usage is None


def test_a_sum_with_an_unknown_part_is_unknown(client: OpenAI) -> None:
    session = create_idle(client, "greeter")
    client.beta.agents.sessions.update(session.id, agent={"model": "silent-about-usage"})
    with client.beta.agents.sessions.stream(session.id, input="And now?") as stream:
        stream.until_done()
    assert [turn.usage is None for turn in turns(client, session.id)] == [False, True]
    assert client.beta.agents.sessions.retrieve(session.id).usage is None
