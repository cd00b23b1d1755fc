"""Drift between ledger, journal, items and required actions is told as data."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from perdure.sdk.ledger import LedgerRecord
from perdure.sdk.reconcile import KINDS, Drift, SessionFacts, reconcile

LEDGER: dict[str, Any] = {
    "session_id": "sess_1",
    "order_id": "A-1042",
    "last_turn_id": "turn_1",
    "last_call_id": "call_1",
    "awaiting": None,
    "compact_checkpoint": None,
}


def said(text: str, turn: str = "turn_1") -> dict[str, Any]:
    content = [{"type": "input_text", "text": text}]
    return {"id": f"m_{turn}", "type": "message", "role": "user", "turn_id": turn, "content": content}


def asked(call: str = "call_1", turn: str = "turn_1") -> dict[str, Any]:
    arguments = '{"order_id":"A-1042"}'
    return {
        "id": f"fc_{call}", "type": "function_call", "turn_id": turn, "call_id": call,
        "name": "lookup_order", "arguments": arguments, "status": "completed",
    }  # fmt: skip


def answered(call: str = "call_1", output: str = "paid", item: str = "fco_1", **more: Any) -> dict[str, Any]:
    return {
        "id": item, "type": "function_call_output", "turn_id": "turn_1", "call_id": call,
        "status": "completed", "output": output, "error": None, **more,
    }  # fmt: skip


def action(call: str = "call_1") -> dict[str, Any]:
    return {
        "type": "function_call", "turn_id": "turn_1", "call_id": call, "name": "lookup_order",
        "arguments": {"order_id": "A-1042"},
    }  # fmt: skip


def entry(call: str = "call_1", **more: Any) -> dict[str, Any]:
    return {
        "turn_id": "turn_1", "call_id": call, "name": "lookup_order", "arguments": {}, "state": "finished",
        "attempts": 1, "started_us": 1, "finished_us": 2, "success": True, "output": "paid", "error": None,
        "submitted_us": 3, **more,
    }  # fmt: skip


def open_entry(state: str, call: str = "call_1") -> dict[str, Any]:
    return {
        "turn_id": "turn_1", "call_id": call, "name": "lookup_order", "arguments": {}, "state": state,
        "attempts": 1, "started_us": 1, "owner": "process 1 on host",
    }  # fmt: skip


def facts(*items: dict[str, Any], owed: tuple[dict[str, Any], ...] = (), **agent: Any) -> SessionFacts:
    session = {"id": "sess_1", "required_actions": list(owed), "agent": agent}
    return SessionFacts(session, [said("Where is A-1042?"), *items])


def kinds(found: list[Drift]) -> list[str]:
    assert all(drift.severity == KINDS[drift.kind][0] for drift in found)
    assert json.loads(json.dumps([drift.document() for drift in found]))[: len(found)] is not None
    return [drift.kind for drift in found]


SOUND = facts(asked(), answered())
RECORD = LedgerRecord(
    "ledger_1", "sess_1", 1, {"order_id": "A-1042"}, "turn_1", "call_1", pinned=("order_id",)
)  # fmt: skip


def pinned(order_id: str) -> SessionFacts:
    """The same with a pinned fact of the server."""
    return replace(SOUND, session={**SOUND.session, "metadata": {"perdure.pin.order_id": order_id}})


def test_where_everything_agrees_nothing_is_told() -> None:
    assert reconcile(SOUND, LEDGER, [entry()]) == []
    assert reconcile(SOUND) == []
    waiting = {**LEDGER, "awaiting": "tool_result"}
    assert reconcile(facts(asked(), owed=(action(),)), waiting, [open_entry("running")]) == []


@pytest.mark.parametrize(
    ("found", "ledger", "calls", "kind"),
    [
        (facts(asked(), answered(), answered(item="fco_2")), LEDGER, [entry()], "answered_twice"),
        (facts(answered()), LEDGER, [entry()], "result_without_call"),
        (facts(asked(), answered(output="lost")), LEDGER, [entry()], "result_differs"),
        (facts(asked(), answered(status="failed")), LEDGER, [entry()], "result_differs"),
        (facts(asked(), owed=(action(),)), LEDGER, [entry(submitted_us=None)], "not_submitted"),
        (facts(asked()), LEDGER, [entry(submitted_us=None)], "not_submitted"),
        (facts(asked(), owed=(action(),)), LEDGER, [entry()], "submitted_but_owed"),
        (facts(asked()), LEDGER, [entry()], "submitted_without_item"),
        (facts(asked(), owed=(action(),)), LEDGER, [], "owed_without_entry"),
        (facts(asked(), owed=(action(),)), LEDGER, [open_entry("unknown")], "outcome_unknown"),
        (facts(asked()), LEDGER, [open_entry("running")], "running_not_owed"),
        (SOUND, LEDGER, [entry(late={"success": True})], "late_result"),
        (SOUND, {**LEDGER, "session_id": "sess_2"}, [entry()], "ledger_of_other_session"),
        (SOUND, {**LEDGER, "last_call_id": "call_7"}, [entry()], "ledger_unknown_call"),
        (SOUND, {**LEDGER, "awaiting": "tool_result"}, [entry()], "awaiting_nothing"),
        (SOUND, {**LEDGER, "order_id": "A-1043"}, [entry()], "id_not_in_context"),
        (SOUND, {**LEDGER, "order_id": "A-104"}, [entry()], "id_not_in_context"),
        (SOUND, {**LEDGER, "compact_checkpoint": "after_turn_1"}, [entry()], "id_not_in_context"),
        (SOUND, RECORD, [entry()], "pin_differs"),
        (pinned("A-1043"), RECORD, [entry()], "pin_differs"),
        (pinned("A-1042"), replace(RECORD, value={"order_id": None}), [entry()], "pin_differs"),
    ],
)
def test_each_drift_is_told_alone(
    found: SessionFacts, ledger: dict[str, Any] | LedgerRecord, calls: list[dict[str, Any]], kind: str
) -> None:
    assert kinds(reconcile(found, ledger, calls, keeps_pins=True)) == [kind]


def test_every_kind_is_tested_above() -> None:
    mark = test_each_drift_is_told_alone.pytestmark[0]  # type: ignore[attr-defined]
    assert {case[3] for case in mark.args[1]} == set(KINDS)


def test_a_refused_or_redacted_result_is_no_drift() -> None:
    refused = entry(submitted_us=None, refused="the turn has ended")
    assert reconcile(facts(asked()), LEDGER, [refused]) == []
    assert reconcile(SOUND, LEDGER, [entry(output="***", redacted=True)]) == []


def test_an_id_in_instructions_or_after_the_checkpoint_is_seen() -> None:
    compacted = {**LEDGER, "compact_checkpoint": "after_turn_1"}
    again = facts(asked(), answered(), said("A-1042, please.", "turn_2"))
    assert reconcile(again, compacted, [entry()]) == []
    told = facts(asked(), answered(), instructions="Care for A-1042.")
    assert reconcile(told, compacted, [entry()]) == []


def test_pinned_fields_are_looked_for_whatever_their_name() -> None:
    record = LedgerRecord(
        "ledger_1", "sess_1", 1, {"amount": 129, "note": "n"}, "turn_1", "call_1", pinned=("amount",)
    )
    (drift,) = reconcile(SOUND, record, [entry()])
    assert (drift.kind, drift.field) == ("id_not_in_context", "amount")


def test_a_pinned_fact_is_seen_whatever_was_compacted() -> None:
    compacted = replace(RECORD, compact_checkpoint="after_turn_1")
    assert reconcile(pinned("A-1042"), compacted, [entry()], keeps_pins=True) == []
    assert kinds(reconcile(SOUND, compacted, [entry()])) == ["id_not_in_context"]


def test_where_no_facts_are_kept_none_is_missed() -> None:
    assert reconcile(SOUND, RECORD, [entry()]) == []


def test_an_approval_can_be_awaited() -> None:
    waiting = {**LEDGER, "awaiting": "approval"}
    approval = {"type": "mcp_approval_request", "turn_id": "turn_1", "request_id": "r"}
    assert reconcile(facts(asked(), answered(), owed=(approval,)), waiting, [entry()]) == []


def test_an_export_can_be_read() -> None:
    document = {"object": "perdure.export", "session": SOUND.session, "items": list(SOUND.items)}
    assert reconcile(SessionFacts.of_export(document), LEDGER, [entry()]) == []
