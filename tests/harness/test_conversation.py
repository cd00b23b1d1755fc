"""What the model is shown: always paired, whatever ended a turn."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.harness.histories import NATIVE, History

from perdure.harness.checks import InvalidHistory, check_request
from perdure.harness.conversation import NOT_EXECUTED
from perdure.models.messages import (
    AssistantMessage,
    Entry,
    FunctionCall,
    FunctionResult,
    ModelRequest,
    Reasoning,
    ServerNote,
    TextPart,
    UserMessage,
)


def test_results_stand_behind_their_step_in_the_order_of_the_calls() -> None:
    history = History()
    history.user("both")
    history.calls("c1", 0)
    history.calls("c2", 0)
    history.result("c2", "second")
    history.result("c1", "first")
    history.user("and a third thing")
    kinds = [getattr(entry, "call_id", type(entry).__name__) for entry in history.entries()]
    assert kinds == ["UserMessage", "c1", "c2", "c1", "c2", "UserMessage"]


def test_a_call_without_a_result_is_closed_for_the_model() -> None:
    history = History()
    history.user("both")
    history.calls("c1", 0)
    history.calls("c2", 0, status="incomplete")
    history.result("c1", "first")
    history.user("hello", turn="t2")
    assert FunctionResult("c2", NOT_EXECUTED, failed=True) in history.entries()


def test_a_late_result_is_a_labelled_note_and_never_a_second_output() -> None:
    history = History()
    history.user("start it")
    history.calls("c1", 0, private={"async": True})
    history.says("Started.", 1)
    history.result("c1", "42", turn="t2", private={"late": True})
    entries = history.entries()
    assert [type(entry) for entry in entries].count(FunctionResult) == 1
    note = entries[-1]
    assert isinstance(note, ServerNote)
    assert [part.text for part in note.content if isinstance(part, TextPart)][-1] == "42"


def test_reasoning_goes_only_to_its_producer_and_only_with_what_followed() -> None:
    history = History()
    history.user("think")
    history.says("done", 0, private={"reasoning": [{"summary": ["s"], "native": NATIVE}], "native": NATIVE})
    assert any(isinstance(entry, Reasoning) for entry in history.entries())
    for other in ({"provider": "q"}, {"model": "n"}):
        entries = history.entries(**other)
        assert not any(isinstance(entry, Reasoning) for entry in entries)
        assert entries[-1] == AssistantMessage("done")


def test_a_step_that_broke_off_is_shown_only_where_nothing_replaced_it() -> None:
    history = History()
    history.user("hi")
    history.says("half of", 0, status="incomplete")
    history.says("whole", 1)
    history.user("next", turn="t2")
    history.says("cancelled half", 0, turn="t2", status="incomplete")
    texts = [entry.text for entry in history.entries() if isinstance(entry, AssistantMessage)]
    assert texts == ["whole", "cancelled half"]
    running = [entry.text for entry in history.entries(running="t2") if isinstance(entry, AssistantMessage)]
    assert running == ["whole"]


def test_a_huge_result_is_shown_with_head_tail_and_size() -> None:
    history = History()
    history.user("logs")
    history.calls("c1", 0)
    history.result("c1", "a" * 5000 + "z" * 5000)
    result = history.entries()[-1]
    assert isinstance(result, FunctionResult)
    assert isinstance(result.content, str)
    assert result.content.startswith("a" * 100)
    assert result.content.endswith("z" * 100)
    assert "10,000 bytes" in result.content
    assert len(result.content) < 1200


STEPS = st.lists(
    st.tuples(
        st.booleans(),  # a message first
        st.integers(0, 3),  # calls
        st.lists(st.integers(0, 2), max_size=3),  # which of them were answered, in this order
        st.booleans(),  # reasoning attached
        st.booleans(),  # broke off
    ),
    max_size=6,
)


@given(turns=st.lists(STEPS, max_size=5), provider=st.sampled_from(["p", "q"]))
def test_every_history_is_valid_for_every_provider(turns: list[Any], provider: str) -> None:
    history = History()
    for number, steps in enumerate(turns):
        turn = f"t{number}"
        history.user("u", turn)
        for step, (says, calls, answered, thought, broken) in enumerate(steps):
            private = {"reasoning": [{"summary": [], "native": NATIVE}]} if thought else None
            if broken:
                history.says("half", step, turn=turn, status="incomplete")
                continue
            if says:
                history.says("text", step, turn=turn, private=private)
            names = [f"{turn}-{step}-{call}" for call in range(calls)]
            for name in names:
                history.calls(name, step, turn=turn, private=private, status="incomplete")
            for index in dict.fromkeys(answered):
                if index < calls:
                    history.result(names[index], "r", turn=turn)
    history.user("last", "end")
    entries = history.entries(running="end", provider=provider)
    check_request(ModelRequest(model="m", instructions="", entries=entries))


@pytest.mark.parametrize(
    "entries",
    [
        (FunctionResult("c", "r"),),
        (FunctionCall("c", "f", "{}"),),
        (FunctionCall("c", "f", "{}"), UserMessage((TextPart("u"),)), FunctionResult("c", "r")),
        (FunctionCall("c", "f", "{}"), FunctionResult("c", "r"), FunctionResult("c", "r")),
        (
            FunctionCall("c", "f", "{}"),
            FunctionCall("d", "f", "{}"),
            FunctionResult("c", "r"),
            AssistantMessage("a"),
            FunctionResult("d", "r"),
        ),
        (FunctionCall("c", "f", "{}"), FunctionCall("c", "f", "{}"), FunctionResult("c", "r")),
        (Reasoning((), None),),  # type: ignore[arg-type]
        (Reasoning((), None), UserMessage((TextPart("u"),))),  # type: ignore[arg-type]
    ],
)
def test_the_checker_refuses_what_a_provider_would_refuse(entries: tuple[Entry, ...]) -> None:
    with pytest.raises(InvalidHistory):
        check_request(ModelRequest(model="m", instructions="", entries=entries))
