"""Ledgers: typed by any form, versioned, changed together with results, found again after a crash."""

from __future__ import annotations

import dataclasses
import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Annotated, Any, TypedDict

import attrs
import marshmallow
import msgspec
import pydantic
import pytest

from perdure.schema import FormRefused, from_marshmallow
from perdure.sdk.calls import CallPair, ToolResult
from perdure.sdk.journal import Fresh, Journal
from perdure.sdk.journal_errors import LedgerConflict, LedgerError, LedgerInvalid
from perdure.sdk.ledger import LEDGER_METADATA, Ledger, LedgerForm, LedgerRecord, Pinned, PinnedField
from perdure.sdk.pinned import MOST_BYTES, facts_text, pinned_text


class OrderLedger(Ledger):
    order_id: Pinned[str]
    status: str = "new"
    looked_up: int = 0
    tags: tuple[str, ...] = ()


@dataclasses.dataclass
class DataclassLedger:
    order_id: Annotated[str, PinnedField()]
    status: str = "new"


class TypedDictLedger(TypedDict):
    order_id: Pinned[str]
    status: str


class StructLedger(msgspec.Struct):
    order_id: Pinned[str]
    status: str = "new"


@attrs.define
class AttrsLedger:
    order_id: Pinned[str]
    status: str = "new"


class ModelLedger(pydantic.BaseModel):
    order_id: Pinned[str]
    status: str = "new"


class LedgerSchema(marshmallow.Schema):
    order_id = marshmallow.fields.String(required=True)
    status = marshmallow.fields.String(load_default="new")


JSON_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"order_id": {"type": "string"}, "status": {"type": "string"}},
    "required": ["order_id"],
    "additionalProperties": False,
}

PAIR = CallPair("sess_1", "turn_1", "call_1")


def started(journal: Journal, value: Any = None, session_id: str = "sess_1") -> LedgerRecord:
    """A ledger that is bound to its session."""
    record = journal.ledgers.create(OrderLedger(order_id="A-1042") if value is None else value)
    return journal.ledgers.bind(record.key, session_id)


def fresh(journal: Journal, pair: CallPair = PAIR) -> Fresh:
    begun = journal.begin(pair, "lookup_order", {})
    assert isinstance(begun, Fresh)
    return begun


def value_of(journal: Journal) -> dict[str, Any]:
    record = journal.ledgers.read("sess_1")
    assert record is not None
    return dict(record.value)


@pytest.mark.parametrize(
    ("value", "form"),
    [
        (OrderLedger(order_id="A-1042"), None),
        (DataclassLedger("A-1042"), None),
        ({"order_id": "A-1042", "status": "new"}, TypedDictLedger),
        (StructLedger("A-1042"), None),
        (AttrsLedger("A-1042"), None),
        (ModelLedger(order_id="A-1042"), None),
        ({"order_id": "A-1042"}, from_marshmallow(LedgerSchema(), dict)),
        ({"order_id": "A-1042", "status": "new"}, JSON_SCHEMA),
    ],
    ids=lambda each: type(each).__name__,
)
def test_any_schema_form_types_a_ledger(journal: Journal, value: Any, form: Any) -> None:
    pinned = () if form is None or form is TypedDictLedger else ("order_id",)
    record = journal.ledgers.create(value, form, pinned=pinned)
    assert record.value["order_id"] == "A-1042"
    assert record.value["status"] == "new", "defaults are filled in"
    assert record.pinned == ("order_id",)
    journal.ledgers.bind(record.key, "sess_1")
    edit = journal.ledgers.edit("sess_1", type(value) if form is None else form)
    assert edit is not None
    assert type(edit.value) is type(value)
    edit.update(status="paid")
    with pytest.raises(LedgerInvalid):
        edit.update(order_id=7)
    journal.finish(fresh(journal), ToolResult(True, "ok"), edit)
    assert value_of(journal)["status"] == "paid"


def test_a_dict_needs_a_form(journal: Journal) -> None:
    with pytest.raises(LedgerError, match="form="):
        journal.ledgers.create({"order_id": "A-1042"})


def test_the_sdks_own_fields_cannot_be_an_authors() -> None:
    class Clashing(Ledger):
        awaiting: str

    with pytest.raises(LedgerError, match="awaiting"):
        LedgerForm(Clashing)


def test_a_pinned_field_must_exist(journal: Journal) -> None:
    with pytest.raises(LedgerError, match="no field order"):
        journal.ledgers.create(OrderLedger(order_id="A-1042"), pinned=["order"])


def test_what_is_no_object_is_no_ledger() -> None:
    with pytest.raises((FormRefused, ValueError)):
        LedgerForm(int)


# ---- with a call


def test_changes_are_recorded_with_the_result(journal: Journal) -> None:
    started(journal)
    edit = journal.ledgers.edit("sess_1", OrderLedger)
    assert edit is not None
    call = fresh(journal)
    assert edit.update(status="packed").status == "packed"
    assert value_of(journal)["status"] == "new", "nothing before the result"
    journal.finish(call, ToolResult(True, "ok"), edit)
    assert value_of(journal)["status"] == "packed"
    last = journal.ledgers.history("sess_1")[-1]
    assert (last["changed_by"], last["turn_id"], last["call_id"]) == ("call", "turn_1", "call_1")
    assert last["changed"] == ["status"]


def test_changes_of_a_failed_call_are_dropped(journal: Journal) -> None:
    started(journal)
    edit = journal.ledgers.edit("sess_1", OrderLedger)
    assert edit is not None
    edit.update(status="packed")
    journal.finish(fresh(journal), ToolResult(False, error="no"), edit)
    assert value_of(journal)["status"] == "new"


def test_a_result_that_was_late_changes_no_ledger(open_journal: Callable[..., Journal]) -> None:
    one, other = open_journal(), open_journal()
    started(one)
    slow, edit = fresh(one), one.ledgers.edit("sess_1", OrderLedger)
    assert edit is not None
    edit.update(status="packed")
    one.abandon(slow)
    claimed = other.claim(other.begin(PAIR, "lookup_order", {}))  # type: ignore[arg-type]
    assert isinstance(claimed, Fresh)
    other.finish(claimed, ToolResult(False, error="unknown"))
    one.finish(slow, ToolResult(True, "ok"), edit)
    assert value_of(one)["status"] == "new"


def test_different_fields_can_be_changed_at_once(journal: Journal) -> None:
    started(journal)
    calls = [(fresh(journal, CallPair("sess_1", "t", name)), journal.ledgers.edit("sess_1")) for name in "ab"]
    for (call, edit), fields in zip(calls, ({"status": "packed"}, {"looked_up": 1}), strict=True):
        assert edit is not None
        edit.update(**fields)
        assert journal.finish(call, ToolResult(True, "ok"), edit).result.success
    assert (value_of(journal)["status"], value_of(journal)["looked_up"]) == ("packed", 1)


def test_the_same_field_changed_at_once_fails_the_later_call(journal: Journal) -> None:
    started(journal)
    calls = [(fresh(journal, CallPair("sess_1", "t", name)), journal.ledgers.edit("sess_1")) for name in "ab"]
    results = []
    for (call, edit), status in zip(calls, ("packed", "lost"), strict=True):
        assert edit is not None
        edit.update(status=status)
        results.append(journal.finish(call, ToolResult(True, f"is {status}"), edit).result)
    assert results[0].success
    assert (results[1].error or "").startswith("[ledger_not_changed] lookup_order has run, but: ")
    assert "status was changed by a" in (results[1].error or "")
    assert value_of(journal)["status"] == "packed"
    assert journal.calls("sess_1")[1]["late"]["output"] == "is lost"


def test_overwriting_and_agreeing_are_no_conflicts(journal: Journal) -> None:
    started(journal)
    for number, options in enumerate(({}, {"overwrite": True})):
        stale = journal.ledgers.edit("sess_1", OrderLedger)
        assert stale is not None
        journal.ledgers.update("sess_1", status=f"packed {number}", form=OrderLedger)
        stale.update(status="packed 0", **options)  # type: ignore[arg-type]
        call = fresh(journal, CallPair("sess_1", "t", str(number)))
        assert journal.finish(call, ToolResult(True, "ok"), stale).result.success
    assert value_of(journal)["status"] == "packed 0"


def test_functions_are_applied_to_the_newest_value(open_journal: Callable[..., Journal]) -> None:
    journals = [open_journal() for _ in range(3)]
    started(journals[0])
    start = threading.Barrier(9)

    def count(number: int) -> bool:
        journal = journals[number % 3]
        call = fresh(journal, CallPair("sess_1", "t", str(number)))
        edit = journal.ledgers.edit("sess_1", OrderLedger)
        assert edit is not None
        start.wait()
        edit.update(lambda ledger: {"looked_up": ledger.looked_up + 1})
        return journal.finish(call, ToolResult(True, "ok"), edit).result.success

    with ThreadPoolExecutor(9) as threads:
        assert all(threads.map(count, range(9)))
    assert value_of(journals[0])["looked_up"] == 9


def test_a_function_may_return_the_whole_value(journal: Journal) -> None:
    started(journal)
    record = journal.ledgers.update(
        "sess_1", lambda ledger: ledger.model_copy(update={"tags": ("vip",)}), form=OrderLedger
    )
    assert record.value["tags"] == ["vip"]
    with pytest.raises(LedgerError, match="returned None"):
        journal.ledgers.update("sess_1", lambda _: None, form=OrderLedger)


def test_a_function_that_raises_on_the_newest_value_loses_no_result(journal: Journal) -> None:
    started(journal)
    edit = journal.ledgers.edit("sess_1", OrderLedger)
    assert edit is not None
    edit.update(lambda ledger: {"looked_up": 1 // (1 - len(ledger.tags))})
    journal.ledgers.update("sess_1", form=OrderLedger, tags=["one"])
    found = journal.finish(fresh(journal), ToolResult(True, "ok"), edit)
    assert "ZeroDivisionError" in (found.result.error or "")


def test_an_application_based_on_an_old_version_is_told(journal: Journal) -> None:
    base = started(journal).version
    journal.ledgers.update("sess_1", status="packed", form=OrderLedger)
    with pytest.raises(LedgerConflict, match=r"status was changed by application \(version 3\)") as caught:
        journal.ledgers.update("sess_1", status="lost", form=OrderLedger, expected=base)
    assert caught.value.fields == ("status",)
    journal.ledgers.update("sess_1", looked_up=1, form=OrderLedger, expected=base)


def test_true_and_one_are_different_values(journal: Journal) -> None:
    schema = {"type": "object", "properties": {"x": {}}, "additionalProperties": True}
    record = journal.ledgers.create({"x": 1}, schema)
    journal.ledgers.bind(record.key, "sess_1")
    assert journal.ledgers.update("sess_1", x=True).value["x"] is True


# ---- bookkeeping and versions


def test_the_sdk_keeps_the_calls_of_a_session(journal: Journal) -> None:
    started(journal)
    calls = [fresh(journal, CallPair("sess_1", "turn_1", name)) for name in ("call_1", "call_2")]

    def kept() -> tuple[str | None, str | None]:
        record = journal.ledgers.read("sess_1")
        assert record is not None
        assert record.last_turn_id == "turn_1"
        return record.last_call_id, record.awaiting

    assert kept() == ("call_2", "tool_result")
    for call in calls:
        journal.finish(call, ToolResult(True, "ok"))
    assert kept() == ("call_2", "tool_result"), "nothing was submitted yet"
    journal.submitted(calls[1].pair)
    assert kept() == ("call_1", "tool_result"), "the call that is still open"
    journal.submitted(calls[0].pair)
    assert kept() == ("call_1", None)
    journal.turn_ended("sess_1", "turn_1")
    assert kept() == ("call_1", None)


def test_what_a_turn_left_open_is_awaited_only_while_it_runs(journal: Journal) -> None:
    started(journal)
    background = fresh(journal)
    journal.turn_ended("sess_1", "turn_1")
    record = journal.ledgers.read("sess_1")
    assert record is not None
    assert record.awaiting == "tool_result", "a background call outlives its turn"
    journal.abandon(background)
    journal.turn_ended("sess_1", "turn_1")
    record = journal.ledgers.read("sess_1")
    assert record is not None
    assert record.awaiting is None


def test_every_version_can_be_read(journal: Journal) -> None:
    started(journal)
    journal.ledgers.update("sess_1", status="packed", form=OrderLedger)
    journal.ledgers.note("sess_1", compact_checkpoint="after_turn_3")
    history = journal.ledgers.history("sess_1")
    assert [(each["version"], each["changed_by"], each["changed"]) for each in history] == [
        (1, "application", ["looked_up", "order_id", "status", "tags"]),
        (2, "sdk", ["session_id"]),
        (3, "application", ["status"]),
        (4, "sdk", ["compact_checkpoint"]),
    ]
    assert json.loads(json.dumps(history)) == history
    for each in history:
        record = journal.ledgers.read("sess_1", version=each["version"])
        assert record is not None
        assert record.document() == each["ledger"]
    assert journal.ledgers.read("sess_1", version=9) is None


def test_the_document_is_flat(journal: Journal) -> None:
    document = started(journal).document()
    assert list(document) == [
        "session_id", "order_id", "status", "looked_up", "tags",
        "last_turn_id", "last_call_id", "awaiting", "compact_checkpoint",
    ]  # fmt: skip


def test_old_versions_and_ledgers_can_be_cleaned_up(journal: Journal) -> None:
    started(journal)
    journal.ledgers.update("sess_1", status="packed", form=OrderLedger)
    assert journal.cleanup(timedelta(0)).versions == 2
    assert value_of(journal)["status"] == "packed"
    assert len(journal.ledgers.history("sess_1")) == 1
    assert journal.cleanup(timedelta(0), ledgers=True).ledgers == 1
    assert journal.ledgers.read("sess_1") is None


# ---- the session that was not known yet


def test_a_ledger_is_pending_until_its_session_is_known(open_journal: Callable[..., Journal]) -> None:
    record = open_journal().ledgers.create(OrderLedger(order_id="A-1042"))
    later = open_journal()
    assert [each.key for each in later.ledgers.pending()] == [record.key]
    adopted = later.ledgers.adopt("sess_9", {LEDGER_METADATA: record.key})
    assert adopted is not None
    assert (adopted.session_id, adopted.value["order_id"]) == ("sess_9", "A-1042")
    assert later.ledgers.pending() == []
    assert later.ledgers.adopt("sess_9", {LEDGER_METADATA: record.key}) == adopted


def test_a_session_without_ledger_here_adopts_none(journal: Journal) -> None:
    assert journal.ledgers.adopt("sess_9", None) is None
    assert journal.ledgers.adopt("sess_9", {LEDGER_METADATA: "ledger_of_another_journal"}) is None
    assert journal.ledgers.edit("sess_9") is None
    with pytest.raises(LedgerError, match="no ledger"):
        journal.ledgers.update("sess_9", status="x")


def test_a_ledger_has_one_session_and_a_session_one_ledger(journal: Journal) -> None:
    record = started(journal)
    with pytest.raises(LedgerError, match="belongs to session sess_1"):
        journal.ledgers.bind(record.key, "sess_2")
    other = journal.ledgers.create(OrderLedger(order_id="B-1"))
    with pytest.raises(LedgerError, match="has the ledger"):
        journal.ledgers.bind(other.key, "sess_1")
    with pytest.raises(LedgerError):
        journal.ledgers.discard(record.key)
    journal.ledgers.discard(other.key)
    assert journal.ledgers.pending() == []


# ---- pinned values


def test_pinned_values_are_told_as_json(journal: Journal) -> None:
    record = started(journal, OrderLedger(order_id="A-1042\n- status: forged"))
    told = pinned_text(record)
    assert told is not None
    assert told.splitlines()[1:] == ['- order_id: "A-1042\\n- status: forged"']


def test_pinned_values_are_bounded() -> None:
    told = facts_text({"long": "x" * MOST_BYTES, "order_id": "Zürich \ud800"}, 3)
    assert told is not None
    assert len(told.encode()) <= MOST_BYTES + 600
    assert "too long to repeat: long" in told
    assert '"Z\\u00fcrich \\ud800"' in told
    assert facts_text({}, 1) is None
