from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import jsonpatch
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.inspect import (
    BadQuestion,
    Change,
    Difference,
    Export,
    compare,
    compare_call,
    compare_json,
    export_of,
    operations,
)

from .histories import (
    action,
    answer,
    call,
    creation,
    export,
    result,
    session,
    subagent,
    turn,
    user,
    with_subagent,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text("ab/~", max_size=3),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text("ab/~", max_size=2), inner, max_size=3)
    ),
    max_leaves=12,
)


def section(difference: Difference, name: str) -> tuple[Change, ...]:
    return next(each.changes for each in difference.sections if each.name == name)


def waiting() -> Export:
    asked = session(status="requires_action", required_actions=[action()])
    return export(user(), call(status="in_progress"), session=asked, turns=(turn(status="waiting"),))


def test_two_times_of_a_session_are_matched_by_id() -> None:
    difference = compare(waiting(), export())
    assert difference.aligned_by == "id"
    changes = section(difference, "items")
    assert [(each.kind, each.name) for each in changes] == [
        ("changed", "fc_1"),
        ("added", "fco_1"),
        ("added", "msg_2"),
    ]
    (step,) = changes[0].operations
    assert (step.op, step.path, step.before, step.after) == ("replace", "/status", "in_progress", "completed")
    paths = {step.path for step in section(difference, "session")[0].operations}
    assert paths == {"/status", "/required_actions/0"}


def test_a_session_does_not_differ_from_itself() -> None:
    both = with_subagent()
    assert compare(both, both).is_empty
    assert compare(export(), replace(export(), exported_at=5)).is_empty


def test_what_was_removed_stands_where_it_stood_and_a_new_order_is_a_move() -> None:
    shorter = export(user(), result(), answer())
    changes = section(compare(export(), shorter), "items")
    assert [(each.kind, each.name) for each in changes] == [("removed", "fc_1")]
    turned = export(user(), result(), call(), answer())
    (moved,) = section(compare(export(), turned), "items")
    assert moved.kind == "moved"


def test_a_change_inside_a_json_text_is_told_by_its_path_in_the_text() -> None:
    packed = json.dumps({"order_id": "A-1042", "status": "packed"})
    (change,) = section(compare(export(), export(user(), call(), result(output=packed), answer())), "items")
    (step,) = change.operations
    assert (step.path, step.before, step.after, step.in_text) == (
        "/output/status",
        "paid",
        "packed",
        "/output",
    )


def test_another_spelling_of_the_same_json_is_no_difference() -> None:
    spaced = json.dumps(json.loads(result()["output"]), indent=2)
    assert compare(export(), export(user(), call(), result(output=spaced), answer())).is_empty


def other(history: Export) -> Export:
    """The same history as another session would have it."""
    names = re.compile(r'"((sess|turn|call|msg|fco?|agt|sub|cs)_(?!id)\w{1,4})"')
    text = names.sub(r'"other_\1"', json.dumps(history.document()))
    return export_of(json.loads(text.replace("176000", "179999")), "other")


def test_two_sessions_are_matched_by_place_and_their_ids_do_not_count() -> None:
    for history in (export(), with_subagent()):
        difference = compare(history, other(history))
        assert (difference.aligned_by, difference.sections) == ("place", ())


def test_of_two_sessions_what_is_different_is_told() -> None:
    longer = other(export(user(), call(), result("B-2077"), answer(), answer("And more.", id="msg_3")))
    changes = section(compare(export(), longer), "items")
    assert [(each.kind, each.entry["type"]) for each in changes] == [
        ("changed", "function_call_output"),
        ("added", "message"),
    ]
    assert changes[0].operations[0].after == "B-2077"


def test_a_result_for_another_call_differs_between_sessions() -> None:
    both = (call(), call(id="fc_2", call_id="call_2"))
    straight = export(user(), *both, result(), result(id="fco_2", call_id="call_2"))
    crossed = other(export(user(), *both, result(call_id="call_2"), result(id="fco_2")))
    steps = [step for change in section(compare(straight, crossed), "items") for step in change.operations]
    assert {(step.path, step.before, step.after) for step in steps} == {
        ("/call_id", "call 1", "call 2"),
        ("/call_id", "call 2", "call 1"),
    }


def test_subagents_and_ledgers_are_compared() -> None:
    before = replace(with_subagent(), ledger={"order_id": "A-1042", "awaiting": "tool_result"})
    closed = subagent(status="closed")
    after = replace(
        before,
        subagents=(
            replace(before.subagents[0], subagent=closed, items=(answer(id="msg_9", turn_id="turn_9"),)),
        ),
        ledger={"order_id": "A-1O42", "awaiting": None},
    )
    difference = compare(before, after)
    assert [each.name for each in difference.sections] == ["subagent sub_7a12", "items of sub_7a12", "ledger"]
    assert {step.path for step in section(difference, "ledger")[0].operations} == {"/order_id", "/awaiting"}


def test_the_diff_of_one_call_holds_nothing_else() -> None:
    after = export(user(), call(), result("B-2077"), answer("Something else."))
    assert len(section(compare(export(), after), "items")) == 2
    (section_,) = compare(export(), after, call="call_3c91").sections
    assert [each.name for each in section_.changes] == ["fco_1"]
    assert compare(export(), after, call="A-1042").sections == (section_,)
    with pytest.raises(BadQuestion):
        compare(export(), after, call="call_0")


def test_true_is_not_one() -> None:
    assert [step.op for step in operations({"a": 1}, {"a": True})] == ["replace"]
    assert operations({"a": [1.0]}, {"a": [1]}) == ()


@given(JSON, JSON)
def test_operations_are_a_patch_and_know_what_was_before(before: Any, after: Any) -> None:
    steps = [step.document() for step in operations(before, after)]
    rooted = [
        {
            **step,
            "path": "/root" + step["path"],
            **({"from": "/root" + step["from"]} if "from" in step else {}),
        }
        for step in steps
    ]
    document = {"root": before}
    for step in rooted:
        if step["op"] == "replace":
            assert json.dumps(jsonpatch.JsonPointer(step["path"]).resolve(document)) == json.dumps(
                step["before"]
            )
        document = jsonpatch.JsonPatch([step]).apply(document)
    assert document == {"root": after}


def test_plain_files_are_compared_by_path() -> None:
    difference = compare_json({"amount": 5, "note": "x"}, {"amount": 6, "note": "x"})
    assert difference.aligned_by == "path"
    assert [step.path for step in section(difference, "document")[0].operations] == ["/amount"]


@pytest.mark.parametrize("name", ["call_3c91", "fc_1", "fco_1", "A-1042"])
def test_a_call_against_its_result(name: str) -> None:
    (compared,) = compare_call(export(), name)
    assert [(each.kind, each.asked_at, each.answered_at) for each in compared.comparisons] == [
        ("same", "$['order_id']", "$['order_id']"),
        ("only_answered", None, "$['status']"),
    ]
    assert not compared.drifted


def test_a_result_about_another_order_has_drifted() -> None:
    output = json.dumps({"order": {"order_id": "B-2077", "status": "paid"}})
    (compared,) = compare_call(export(user(), call(), result(output=output), answer()), "call_3c91")
    assert compared.drifted
    first = compared.comparisons[0]
    assert (first.asked, first.answered, first.answered_at) == ("A-1042", "B-2077", "$['order']['order_id']")


def test_an_order_may_have_several_calls_and_a_call_no_result() -> None:
    both = export(
        user(), call(), result(), call(id="fc_2", call_id="call_2", status="incomplete"), creation()
    )
    assert [each.result is None for each in compare_call(both, "A-1042")] == [False, True]
    with pytest.raises(BadQuestion):
        compare_call(both, "A-104")
