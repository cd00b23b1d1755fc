from __future__ import annotations

import json
from typing import Any

import pytest

from perdure.inspect import BadQuestion, find_path
from perdure.inspect.jsontext import expand

from .histories import action, call, export, result, session, turn, with_subagent


def test_a_hit_has_its_item_its_turn_and_a_normalised_path() -> None:
    document = export(ledger={"order_id": "A-1042"}).document()
    hits = [hit for hit in find_path("$..order_id", document) if isinstance(hit.value, str)]
    assert [(hit.path, hit.value, hit.inside) for hit in hits] == [
        ("$['items'][1]['arguments']['order_id']", "A-1042", None),
        ("$['items'][2]['output']['order_id']", "A-1042", "$['items'][2]['output']"),
        ("$['ledger']['order_id']", "A-1042", None),
    ]
    assert [(hit.type, hit.item_id, hit.turn_id, hit.call_id) for hit in hits] == [
        ("function_call", "fc_1", "turn_1", "call_3c91"),
        ("function_call_output", "fco_1", "turn_1", "call_3c91"),
        (None, None, None, None),
    ]


def test_arguments_may_be_a_json_text_and_texts_may_hold_texts() -> None:
    inner = json.dumps({"body": json.dumps([{"order_id": "A-1042"}])})
    document = export(call(arguments=inner)).document()
    (hit,) = find_path("$.items..order_id", document)
    assert hit.path == "$['items'][0]['arguments']['body'][0]['order_id']"
    assert hit.inside == "$['items'][0]['arguments']['body']"
    assert hit.item_id == "fc_1"


def test_a_text_itself_is_found_as_it_is() -> None:
    output = result()["output"]
    (hit,) = find_path("$.items[2].output", export().document())
    assert (hit.value, hit.inside) == (output, None)
    (hit,) = find_path(f"$.items[?@.output == {json.dumps(output)}]", export().document())
    assert hit.value == export().items[2]


def test_a_filter_may_look_into_a_text_and_the_hit_is_the_item_as_it_is() -> None:
    (hit,) = find_path("$.items[?@.output.status == 'paid']", export().document())
    assert hit.value == export().items[2]
    assert hit.item_id == "fco_1"


def test_turns_and_required_actions_are_owners_too() -> None:
    asked = session(required_actions=[action()])
    document = export(session=asked, turns=(turn(error={"code": "server_error"}),)).document()
    (hit,) = find_path("$..code", document)
    assert (hit.type, hit.item_id, hit.turn_id) == ("agent.session.turn", "turn_1", "turn_1")
    (hit,) = find_path("$.session.required_actions[0].arguments.order_id", document)
    assert (hit.type, hit.turn_id, hit.call_id) == ("function_call", "turn_1", "call_3c91")


def test_items_of_subagents_are_found() -> None:
    document = with_subagent(of_subagent=(call(id="fc_9", turn_id="turn_9"),)).document()
    hits = find_path("$.subagents..order_id", document)
    assert [(hit.item_id, hit.turn_id) for hit in hits] == [("fc_9", "turn_9")]


@pytest.mark.parametrize(
    ("path", "written"),
    [
        ("$.a", "$['a']"),
        ("$['it\\'s']", "$['it\\'s']"),
        ("$['\\u000b']", "$['\\u000b']"),
        ("$['ä']", "$['ä']"),
    ],
)
def test_paths_are_normalised(path: str, written: str) -> None:
    (hit,) = find_path(path, {"a": 1, "it's": 1, "\x0b": 1, "ä": 1})
    assert hit.path == written
    assert find_path(hit.path, {"a": 1, "it's": 1, "\x0b": 1, "ä": 1}) == [hit]


@pytest.mark.parametrize(
    "expression", ["order_id", "$..[", "$.a[", "", "$.a ?", "$[?unknown(@.a)]", "$" + "(" * 5000]
)
def test_an_expression_that_is_none_is_said_to_be_none(expression: str) -> None:
    with pytest.raises(BadQuestion):
        find_path(expression, {})


def test_texts_are_opened_only_as_deep_as_can_be_followed() -> None:
    value: Any = "end"
    for _ in range(60):
        value = json.dumps([value]) if len(json.dumps(value)) < 2000 else [value]
    deep: Any = {"order_id": 1}
    for _ in range(90):
        deep = [deep]
    assert [hit.value for hit in find_path("$..order_id", {"a": json.dumps(deep), "b": deep})] == [1, 1]
    assert expand("[" * 5000 + "]" * 5000).texts == frozenset()
    assert find_path("$..x", {"a": "[" * 90 + json.dumps(json.dumps([{"x": 1}] * 3)) + "]" * 90})
