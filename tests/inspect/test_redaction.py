from __future__ import annotations

import json
from typing import Any

import pytest

from perdure.inspect import Redactor, build_chain
from perdure.inspect.jsontext import dump

from .histories import LOOKUP, action, answer, call, export, result, session, user


def test_values_are_masked_by_name_everywhere() -> None:
    asked = session(required_actions=[action()], metadata={"order_id": "A-1042"})
    history = export(session=asked, ledger={"nested": [{"order_id": "A-1042"}]}, inputs=(result(),))
    masked = Redactor(["order_id"]).export(history)
    text = dump(masked.document())
    assert "A-1042" not in text
    assert text.count("[redacted 1]") >= 6
    assert "paid" in text


def test_the_links_of_the_protocol_stay() -> None:
    masked = Redactor(["order_id", "call_id", "turn_id", "id", "status", "type"]).export(export())
    chain = build_chain(masked)
    assert [(each.state, each.call_id) for each in chain.calls()] == [("answered", "call_3c91")]
    assert "paid" not in dump(masked.document())
    assert masked.session is not None
    assert masked.session["agent"]["tools"] == [LOOKUP]


def test_a_name_of_the_protocol_is_masked_inside_of_payloads() -> None:
    history = export(user(), call(arguments={"name": "Ada Lovelace"}), result(), answer("Ada Lovelace paid."))
    masked = Redactor(["name"]).export(history)
    assert "Lovelace" not in dump(masked.document())
    assert masked.items[1]["name"] == "lookup_order"


def test_equal_values_have_equal_masks_and_others_do_not() -> None:
    redactor = Redactor(["order_id"])
    first = redactor.value({"order_id": "A-1042", "a": [{"order_id": "B-2077"}]})
    second = redactor.value({"ORDER_ID": "A-1042"})
    assert first["order_id"] == second["ORDER_ID"] != first["a"][0]["order_id"]


@pytest.mark.parametrize(
    "text",
    [
        'The tool said {"email": "ada@example.org", "ok": true} and ended.',
        '{"order": 5, "email": "ada@exam',
        '"{\\"email\\": \\"ada@example.org\\", \\"ok\\": tr',
        '{"log": "{\\"email\\": \\"ada@example.org\\"}"}',
        '{"email": {"address": "ada@example.org"}} trailing',
        '{"a": 1, "email" : ["ada@example.org", "x"]',
        "mail: 'ada@example.org'",
        'x "EMAIL":"ada@example.org" y',
    ],
)
def test_values_in_json_texts_are_masked_also_in_broken_ones(text: str) -> None:
    document = {"first": text, "known": {"email": "ada@example.org"}}
    masked = json.dumps(Redactor(["email"]).value(document))
    assert "example" not in masked
    assert "ada@" not in masked


def test_a_cut_text_is_masked_without_a_value_to_know_it_by() -> None:
    assert Redactor(["email"]).value('{"email": "ada@exam') == '{"email": "[redacted 1]'
    assert Redactor(["pin"]).value('{"pin": 1234, "a": 1') == '{"pin": "[redacted 1]", "a": 1'


@pytest.mark.parametrize("value", [1234, True, None, ["Ada"], {"first": "Ada"}])
def test_values_of_every_kind_are_masked(value: Any) -> None:
    masked = Redactor(["secret"]).value({"secret": value, "text": json.dumps({"secret": value})})
    assert str(masked["secret"]).startswith("[redacted ")
    assert json.loads(masked["text"])["secret"] == masked["secret"]


def test_short_values_are_not_hunted_in_running_text() -> None:
    masked = Redactor(["size"]).value({"size": "a", "text": "a banana"})
    assert masked == {"size": "[redacted 1]", "text": "a banana"}


def test_a_text_without_a_masked_name_stays_letter_by_letter() -> None:
    text = '{ "order_id" :  "A-1042" }'
    assert Redactor(["email"]).value({"output": text}) == {"output": text}


def test_a_masked_export_has_the_members_of_the_other_in_their_order() -> None:
    whole = export(inputs=(result(),), ledger={"order_id": "A-1042"})
    masked = Redactor(["order_id"]).export(whole)
    assert whole.session is not None
    assert masked.session is not None
    assert list(masked.session) == list(whole.session)
    assert masked.session == whole.session
    bare = export(session={"id": "sess_1", "agent": "odd"})
    assert Redactor(["order_id"]).export(bare).session == bare.session
