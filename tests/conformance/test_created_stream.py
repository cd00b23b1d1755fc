"""`sessions.create(stream=True)`: events, results, tools, structured output."""

from __future__ import annotations

from typing import Any

import pytest
from openai import OpenAI
from openai.lib.beta.agents import (
    AgentOutputParseError,
    AgentTurnResultError,
    function_tool,
    pydantic_function_tool,
)
from pydantic import BaseModel

from .conftest import Gate
from .inputs import CLOCK, NONE, WEATHER, cancel, tool_result
from .sessions import answers, items, kinds, turns
from .watch import until_status


class Reading(BaseModel):
    city: str
    degrees: int


def stream(client: OpenAI, model: str, text: str = "Hello.", *, tools: Any = (), **options: Any) -> Any:
    return client.beta.agents.sessions.create(
        agent={"model": model, "tools": list(tools)}, environment=NONE, input=text, stream=True, **options
    )


def outputs(client: OpenAI, session_id: str) -> list[Any]:
    return [item for item in items(client, session_id) if item.type == "function_call_output"]


def test_the_final_result_holds_the_answer_and_the_turn(client: OpenAI) -> None:
    result = stream(client, "greeter").get_final_result()
    assert result.output_text == "Hello from the greeter."
    assert result.turn.status == "completed"
    assert result.turn == client.beta.agents.sessions.turns.retrieve(
        result.turn_id, session_id=result.session_id
    )
    assert client.beta.agents.sessions.retrieve(result.session_id).status == "idle"


def test_the_stream_ends_by_itself_after_idle(client: OpenAI) -> None:
    types = [event.type for event in stream(client, "greeter")]
    assert types[0] == "agent.session.created"
    assert types[-2:] == ["agent.session.turn.completed", "agent.session.idle"]


def test_events_can_be_read_before_the_result(client: OpenAI) -> None:
    with stream(client, "greeter").with_result_collection() as events:
        deltas = [event.delta for event in events if event.type == "agent.session.turn.output_text.delta"]
        assert "".join(deltas) == "Hello from the greeter."
        assert events.get_final_result().output_text == "Hello from the greeter."


def test_structured_output_is_parsed(client: OpenAI) -> None:
    result = stream(client, "structured", output_type=Reading).get_final_result()
    assert result.output_parsed == Reading(city="Oslo", degrees=7)


def test_the_session_shows_the_output_schema(client: OpenAI) -> None:
    result = stream(client, "structured", output_type=Reading).get_final_result()
    text = client.beta.agents.sessions.retrieve(result.session_id).agent.text.to_dict()
    assert text["format"]["type"] == "json_schema"
    assert set(text["format"]["schema"]["properties"]) == {"city", "degrees"}


def test_an_answer_that_never_matches_the_schema_fails_the_turn(client: OpenAI) -> None:
    with pytest.raises(AgentTurnResultError) as failure:
        stream(client, "unparsable", output_type=Reading).get_final_result()
    assert failure.value.reason == "failed"
    assert failure.value.turn is not None
    assert failure.value.turn.error is not None
    assert failure.value.turn.error.code == "server_error"
    session = client.beta.agents.sessions.retrieve(str(failure.value.session_id))
    assert session.status == "idle"


def test_an_answer_that_matches_only_the_second_time_counts_once(client: OpenAI) -> None:
    result = stream(client, "repaired", output_type=Reading).get_final_result()
    assert result.output_parsed == Reading(city="Oslo", degrees=7)
    assert result.output_text == answers(client, result.session_id)[-1]


def test_structured_text_is_the_same_in_all_its_events(client: OpenAI) -> None:
    events = list(stream(client, "structured", output_type=Reading))
    prefix = "agent.session.turn."
    deltas = "".join(event.delta for event in events if event.type == f"{prefix}output_text.delta")
    (done,) = [event.text for event in events if event.type == f"{prefix}output_text.done"]
    (item,) = [event.item for event in events if event.type == f"{prefix}item.done"]
    assert deltas == done == item.content[0].text


def test_text_without_an_output_type_is_not_parsed(client: OpenAI) -> None:
    result = stream(client, "unparsable").get_final_result()
    assert result.output_parsed is None
    with pytest.raises(AgentOutputParseError):
        result.parse(Reading)


def test_a_handler_answers_its_tool(client: OpenAI) -> None:
    asked: list[Any] = []

    def weather(arguments: dict[str, Any]) -> str:
        asked.append(arguments)
        return "7 °C"

    result = stream(
        client, "weather", "The weather?", tools=[WEATHER], tool_handlers={"weather": weather}
    ).get_final_result()
    assert result.output_text == "It is 7 °C."
    assert asked == [{"city": "Oslo"}]
    assert kinds(items(client, result.session_id)) == [
        "user",
        "function_call",
        "function_call_output",
        "assistant",
    ]
    call, output = items(client, result.session_id)[1:3]
    assert (call.name, call.arguments, call.status) == ("weather", {"city": "Oslo"}, "completed")
    assert (output.call_id, output.status, output.output, output.error) == (
        call.call_id,
        "completed",
        "7 °C",
        None,
    )
    assert len(turns(client, result.session_id)) == 1


def test_a_failing_handler_fails_the_call_and_not_the_turn(client: OpenAI) -> None:
    def weather(arguments: dict[str, Any]) -> str:
        raise RuntimeError("password=CANARY")

    result = stream(
        client, "weather", "The weather?", tools=[WEATHER], tool_handlers={"weather": weather}
    ).get_final_result()
    assert result.output_text == "It failed: Tool handler failed."
    saved = items(client, result.session_id)
    assert (saved[1].status, saved[2].status) == ("failed", "failed")
    assert (saved[2].output, saved[2].error) == (None, "Tool handler failed.")
    assert "CANARY" not in str(saved)


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        ({"degrees": 7}, '{"degrees":7}'),
        (None, None),
        ("", ""),
        ([], []),
        (
            [
                {"type": "input_text", "text": "7 °C"},
                {"type": "input_image", "image_url": "https://example.com/a.png"},
            ],
            [
                {"type": "input_text", "text": "7 °C"},
                {"type": "input_image", "image_url": "https://example.com/a.png"},
            ],
        ),
    ],
    ids=["mapping", "none", "empty text", "no parts", "parts"],
)
def test_whatever_a_handler_may_return_is_stored_as_sent(client: OpenAI, value: Any, stored: Any) -> None:
    result = stream(
        client, "parallel", "both", tools=[WEATHER, CLOCK],
        tool_handlers={"weather": lambda _: value, "clock": lambda _: "noon"},
    ).get_final_result()  # fmt: skip
    assert result.output_text == "Both are in."
    output = outputs(client, result.session_id)[0].to_dict(exclude_none=False)
    assert output["output"] == stored
    assert output["error"] is None


def test_two_calls_of_one_step_are_both_answered(client: OpenAI) -> None:
    order: list[str] = []
    handlers = {
        "weather": lambda _: order.append("weather") or "7 °C",
        "clock": lambda _: order.append("clock") or "noon",
    }
    result = stream(
        client, "parallel", "both", tools=[WEATHER, CLOCK], tool_handlers=handlers
    ).get_final_result()
    assert result.output_text == "Both are in."
    assert order == ["weather", "clock"]
    saved = items(client, result.session_id)
    assert kinds(saved)[:3] == ["user", "function_call", "function_call"]
    assert kinds(saved)[3:] == ["function_call_output", "function_call_output", "assistant"]
    assert len({saved[1].call_id, saved[2].call_id}) == 2


def test_function_tools_bring_their_own_schema(client: OpenAI) -> None:
    @function_tool
    def weather(city: str, unit: str = "C") -> str:
        """The weather in a city."""
        return f"7 °{unit} in {city}"

    result = stream(
        client, "weather", "The weather?", tools=[weather.definition], tool_handlers={weather.name: weather}
    ).get_final_result()
    assert result.output_text == "It is 7 °C in Oslo."


def test_pydantic_tools_bring_their_own_schema(client: OpenAI) -> None:
    class Weather(BaseModel):
        """The weather in a city."""

        city: str
        days: list[int] = []

    tool = pydantic_function_tool(
        Weather, handler=lambda query: Reading(city=query.city, degrees=7), name="weather"
    )
    result = stream(
        client, "weather", "The weather?", tools=[tool.definition], tool_handlers={tool.name: tool}
    ).get_final_result()
    assert result.output_text == 'It is {"city":"Oslo","degrees":7}.'


def test_a_tool_without_a_handler_is_left_to_the_application(client: OpenAI) -> None:
    with pytest.raises(AgentTurnResultError) as pending:
        stream(
            client, "parallel", "both", tools=[WEATHER, CLOCK], tool_handlers={"clock": lambda _: "noon"}
        ).get_final_result()
    assert pending.value.reason == "requires_action"
    session_id = str(pending.value.session_id)
    for call in client.beta.agents.sessions.retrieve(session_id).required_actions:
        client.beta.agents.sessions.events.create(session_id, events=[tool_result(call)])
    until_status(client, session_id, "idle")
    assert answers(client, session_id) == ["Both are in."]


def test_the_stream_stays_open_over_a_call_answered_elsewhere(client: OpenAI) -> None:
    types = []
    for event in stream(client, "weather", "The weather?", tools=[WEATHER]):
        types.append(event.type)
        if event.type == "agent.session.requires_action":
            (call,) = event.session.required_actions
            client.beta.agents.sessions.events.create(event.session.id, events=[tool_result(call)])
    assert types[-2:] == ["agent.session.turn.completed", "agent.session.idle"]
    assert types.count("agent.session.idle") == 1


def test_commentary_is_no_part_of_the_result(client: OpenAI) -> None:
    result = stream(
        client, "commenting", tools=[WEATHER], tool_handlers={"weather": lambda _: "7 °C"}
    ).get_final_result()
    assert result.output_text == "It is 7 °C."
    saved = items(client, result.session_id)
    assert kinds(saved) == ["user", "assistant", "function_call", "function_call_output", "assistant"]
    assert (saved[1].phase, saved[4].phase) == ("commentary", "final_answer")


def test_a_failed_turn_is_told_as_such(client: OpenAI) -> None:
    with pytest.raises(AgentTurnResultError) as failure:
        stream(client, "faulty", "Please fail.").get_final_result()
    assert failure.value.reason == "failed"


def test_a_cancelled_turn_is_told_as_such(client: OpenAI, gate: Gate) -> None:
    events = stream(client, "gated", gate.text).with_result_collection()
    for event in events:
        if event.type == "agent.session.turn.output_text.delta":
            client.beta.agents.sessions.events.create(event.session_id, events=[cancel()])
    with pytest.raises(AgentTurnResultError) as failure:
        events.get_final_result()
    assert failure.value.reason == "cancelled"


def test_a_client_that_goes_away_cancels_nothing(client: OpenAI, gate: Gate) -> None:
    events = stream(client, "gated", gate.text)
    for event in events:
        if event.type == "agent.session.turn.output_text.delta":
            session_id = event.session_id
            break
    events.close()
    gate.release()
    until_status(client, session_id, "idle")
    assert answers(client, session_id) == ["Before, after."]


def test_the_created_event_shows_the_session_at_work(client: OpenAI) -> None:
    with stream(client, "greeter") as events:
        created = next(iter(events))
    assert created.type == "agent.session.created"
    assert created.session.status == "in_progress"
    assert created.session.id == client.beta.agents.sessions.retrieve(created.session.id).id
