"""`sessions.stream`: one turn of an idle session, subscribed before the input is sent."""

from __future__ import annotations

from typing import Any

import pytest
from openai import OpenAI
from openai.lib.beta.agents import AgentToolError, AgentTurnResultError
from pydantic import BaseModel
from tests.server import ServerProcess

from .conftest import Gate
from .inputs import WEATHER, user_message
from .rawhttp import EventSocket, is_comment, plain_headers
from .sessions import answers, create, create_idle, create_waiting, turns, user_texts


def test_two_turns_one_after_the_other(client: OpenAI) -> None:
    session = create_idle(client, "echo", "First.")
    for text in ("Second.", "Third."):
        with client.beta.agents.sessions.stream(session.id, input=text) as stream:
            result = stream.get_final_result()
        assert result.output_text == f"You said: {text}"
        assert result.session_id == session.id
    assert [turn.status for turn in turns(client, session.id)] == ["completed"] * 3
    assert answers(client, session.id) == ["You said: First.", "You said: Second.", "You said: Third."]


def test_the_next_stream_may_follow_at_once(client: OpenAI) -> None:
    session = create_idle(client)
    for number in range(20):
        with client.beta.agents.sessions.stream(session.id, input=f"Message {number}.") as stream:
            assert stream.get_final_result().output_text == f"You said: Message {number}."


def test_a_busy_session_is_refused_before_anything_is_sent(client: OpenAI, gate: Gate) -> None:
    running = create(client, "held", gate.text)
    waiting = create_waiting(client)
    for session in (running, waiting):
        with (
            pytest.raises(ValueError, match="idle session"),
            client.beta.agents.sessions.stream(session.id, input="Hello?"),
        ):
            pass
        assert "Hello?" not in user_texts(client, session.id)


def test_events_of_exactly_one_turn_are_yielded(client: OpenAI) -> None:
    session = create_idle(client)
    with client.beta.agents.sessions.stream(session.id, input="Again.") as stream:
        events = list(stream)
    assert events[-1].type == "agent.session.idle"
    created = [event for event in events if event.type == "agent.session.turn.created"]
    assert len(created) == 1
    assert {event.turn_id for event in events if getattr(event, "turn_id", None)} == {created[0].turn_id}


def test_results_can_be_collected_while_events_are_read(client: OpenAI) -> None:
    session = create_idle(client)
    with client.beta.agents.sessions.stream(session.id, input="Again.") as stream:
        types = [event.type for event in stream.with_result_collection()]
        assert "agent.session.turn.item.done" in types
        assert stream.get_final_result().output_text == "You said: Again."


def test_handlers_answer_calls(client: OpenAI) -> None:
    session = create_idle(client, "weather", "Hello.", tools=[WEATHER])
    with client.beta.agents.sessions.stream(
        session.id,
        input="The weather?",
        tool_handlers={"weather": lambda arguments: f"fine in {arguments['city']}"},
    ) as stream:
        assert stream.get_final_result().output_text == "It is fine in Oslo."


def test_a_failing_handler_is_reported_to_the_observer_only(client: OpenAI) -> None:
    session = create_idle(client, "weather", "Hello.", tools=[WEATHER])
    errors: list[AgentToolError] = []

    def weather(arguments: dict[str, Any]) -> str:
        raise RuntimeError("out of order")

    with client.beta.agents.sessions.stream(
        session.id, input="The weather?", tool_handlers={"weather": weather}, on_tool_error=errors.append
    ) as stream:
        assert stream.get_final_result().output_text == "It failed: Tool handler failed."
    (error,) = errors
    assert (error.tool_name, error.session_id, error.stage) == ("weather", session.id, "execution")
    assert error.turn_id == turns(client, session.id)[1].id


def test_a_handler_may_take_longer_than_several_keep_alives(client: OpenAI, server: ServerProcess) -> None:
    session = create_idle(client, "weather", tools=[WEATHER])

    def weather(arguments: dict[str, Any]) -> str:
        target = f"/v1/agents/sessions/{session.id}/events"
        with EventSocket(server.address, "GET", target, plain_headers(server.api_key)) as other:
            keep_alives = (frame for frame in other.frames() if is_comment(frame))
            for _ in range(3):
                next(keep_alives)
        return "7 °C"

    with client.beta.agents.sessions.stream(
        session.id, input="The weather?", tool_handlers={"weather": weather}
    ) as stream:
        assert stream.get_final_result().output_text == "It is 7 °C."


def test_structured_output_of_the_session_is_parsed(client: OpenAI) -> None:
    class Reading(BaseModel):
        city: str
        degrees: int

    schema = {
        "type": "object",
        "properties": {"city": {"type": "string"}, "degrees": {"type": "integer"}},
        "required": ["city", "degrees"],
        "additionalProperties": False,
    }
    session = create_idle(client, "structured", text={"format": {"type": "json_schema", "schema": schema}})
    with client.beta.agents.sessions.stream(session.id, input="The reading?", output_type=Reading) as stream:
        assert stream.get_final_result().output_parsed == Reading(city="Oslo", degrees=7)


def test_several_messages_of_one_input_are_one_turn(client: OpenAI) -> None:
    session = create_idle(client)
    with client.beta.agents.sessions.stream(
        session.id, input=[user_message("One."), user_message("Two.")]
    ) as stream:
        stream.until_done()
    assert user_texts(client, session.id) == ["Hello.", "One.", "Two."]
    assert len(turns(client, session.id)) == 2


def test_a_failed_turn_leaves_the_session_ready_for_the_next_stream(client: OpenAI) -> None:
    session = create_idle(client, "faulty", "Hello.")
    with (
        client.beta.agents.sessions.stream(session.id, input="Please fail.") as stream,
        pytest.raises(AgentTurnResultError) as failure,
    ):
        stream.get_final_result()
    assert failure.value.reason == "failed"
    with client.beta.agents.sessions.stream(session.id, input="Better now?") as stream:
        assert stream.get_final_result().output_text == "You said: Better now?"


def test_the_same_key_sends_its_input_once(client: OpenAI) -> None:
    session = create_idle(client)
    with client.beta.agents.sessions.stream(session.id, input="Once.", idempotency_key="key-1") as stream:
        assert stream.get_final_result().output_text == "You said: Once."
    client.beta.agents.sessions.events.create(
        session.id,
        events=[{"type": "agent.session.input.message", "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "Once."}]}]}],
        idempotency_key="key-1",
    )  # fmt: skip
    assert user_texts(client, session.id) == ["Hello.", "Once."]
