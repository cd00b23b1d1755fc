from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest
from tests.models.script_requests import LOOKUP_ORDER, answer, as_history, demo, play, request, result, user

from perdure.models.messages import CallDone, Entry, FunctionCall, MessageDone, TextDelta
from perdure.models.scripted import ScriptedModel

SHIPPED = {"order_id": "A-1042", "status": "shipped", "total": 129.9}
RESOLUTION = {
    "type": "object",
    "properties": {
        "order_id": {"type": "string", "pattern": r"^[A-Z]-\d{4}$"},
        "status": {"$ref": "#/$defs/Status"},
        "message": {"type": "string"},
        "refund": {"anyOf": [{"type": "number", "minimum": 0}, {"type": "null"}]},
    },
    "required": ["order_id", "status", "message", "refund"],
    "additionalProperties": False,
    "$defs": {"Status": {"type": "string", "enum": ["open", "shipped"]}},
}


@pytest.fixture
def model() -> ScriptedModel:
    return demo()


async def step(model: ScriptedModel, history: list[Entry], **options: Any) -> list[Entry]:
    """One model call; its outputs as entries, added to the history."""
    events = await play(model, request(*history, tools=(LOOKUP_ORDER,), **options))
    outputs = as_history(events, prefix=f"call_{len(history)}")
    history += outputs
    return outputs


def the_call(outputs: list[Entry]) -> FunctionCall:
    (found,) = (entry for entry in outputs if isinstance(entry, FunctionCall))
    return found


async def test_an_order_is_looked_up_and_its_status_told(model: ScriptedModel) -> None:
    history: list[Entry] = [user("Where is my order A-1042?")]
    asked = the_call(await step(model, history))
    assert (asked.name, json.loads(asked.arguments)) == ("lookup_order", {"order_id": "A-1042"})
    history.append(result(asked.call_id, SHIPPED))
    (said,) = await step(model, history)
    assert "order A-1042" in said.text  # type: ignore[union-attr]
    assert "shipped" in said.text  # type: ignore[union-attr]


async def test_the_call_comes_after_commentary_and_the_end_is_final(model: ScriptedModel) -> None:
    history: list[Entry] = [user("A-1042")]
    events = await play(model, request(*history, tools=(LOOKUP_ORDER,)))
    done = [event for event in events if isinstance(event, MessageDone | CallDone)]
    assert isinstance(done[0], MessageDone)
    assert done[0].phase == "commentary"
    assert isinstance(done[1], CallDone)
    history += as_history(events)
    history.append(result(the_call(history[1:]).call_id, SHIPPED))
    events = await play(model, request(*history, tools=(LOOKUP_ORDER,)))
    assert [event.phase for event in events if isinstance(event, MessageDone)] == ["final_answer"]


@pytest.mark.parametrize(
    ("text", "wrong", "right"),
    [
        ("Show me a bad argument", "A1042", "A-1042"),
        ("Look up B-2077 with a malformed argument", "B2077", "B-2077"),
    ],
)
async def test_a_bad_argument_is_made_and_repaired(
    model: ScriptedModel, text: str, wrong: str, right: str
) -> None:
    history: list[Entry] = [user(text)]
    first = the_call(await step(model, history))
    assert json.loads(first.arguments) == {"order_id": wrong}
    history.append(result(first.call_id, "order_id: does not match the pattern", failed=True))
    second = the_call(await step(model, history))
    assert json.loads(second.arguments) == {"order_id": right}
    history.append(result(second.call_id, SHIPPED | {"order_id": right}))
    (said,) = await step(model, history)
    assert right in said.text  # type: ignore[union-attr]


async def test_a_lookup_that_keeps_failing_ends_the_turn(model: ScriptedModel) -> None:
    history: list[Entry] = [user("bad argument please")]
    for _ in range(2):
        asked = the_call(await step(model, history))
        history.append(result(asked.call_id, "The warehouse is closed.", failed=True))
    (said,) = await step(model, history)
    assert "The warehouse is closed." in said.text  # type: ignore[union-attr]


async def test_a_second_turn_looks_up_again(model: ScriptedModel) -> None:
    history: list[Entry] = [user("A-1042")]
    asked = the_call(await step(model, history))
    history.append(result(asked.call_id, SHIPPED))
    await step(model, history)
    history.append(user("And B-2077?"))
    assert json.loads(the_call(await step(model, history)).arguments) == {"order_id": "B-2077"}


async def test_without_the_tool_it_says_what_is_missing(model: ScriptedModel) -> None:
    assert "no tool named lookup_order" in await answer(model, request(user("Where is A-1042?")))


async def test_anything_else_is_answered_with_an_introduction_in_deltas(model: ScriptedModel) -> None:
    events = await play(model, request(user("Hello")))
    assert sum(isinstance(event, TextDelta) for event in events) > 3
    text = await answer(model, request(user("Hello")))
    assert "scripted model" in text
    assert "[[provider]]" in text


async def test_structured_output_satisfies_the_schema_with_values_of_the_result(model: ScriptedModel) -> None:
    history: list[Entry] = [user("Where is A-1042?")]
    asked = the_call(await step(model, history, output_schema=RESOLUTION))
    history.append(result(asked.call_id, SHIPPED))
    (said,) = await step(model, history, output_schema=RESOLUTION)
    value = json.loads(said.text)  # type: ignore[union-attr]
    assert value == {
        "order_id": "A-1042",
        "status": "shipped",
        "message": "The order is shipped.",
        "refund": 0,
    }


async def test_structured_output_needs_no_result(model: ScriptedModel) -> None:
    value = json.loads(await answer(model, request(user("Hello"), output_schema=RESOLUTION)))
    assert jsonschema_rs.is_valid(RESOLUTION, value)
