"""`--journal`: the tool journal beside the session it is of."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Perdure
from tests.inspect.histories import action, call, export, result, session, turn, user

from perdure.inspect import Export
from perdure.sdk.calls import CallPair, ToolResult
from perdure.sdk.journal import Fresh, Journal
from perdure.sdk.ledger import Ledger

PAIR = CallPair("sess_8f21", "turn_1", "call_3c91")
OUTPUT = result()["output"]


class OrderLedger(Ledger):
    order_id: str


def file_of(perdure: Perdure, content: Export) -> Path:
    file = perdure.home / "session.json"
    file.write_text(json.dumps(content.document()), encoding="utf-8")
    return file


def journal_of(perdure: Perdure, output: str, *, submitted: bool) -> Path:
    place = perdure.home / "journal.db"
    with Journal.open(place) as journal:
        journal.ledgers.bind(journal.ledgers.create(OrderLedger(order_id="A-1042")).key, PAIR.session_id)
        fresh = journal.begin(PAIR, "lookup_order", {"order_id": "A-1042"})
        assert isinstance(fresh, Fresh)
        journal.finish(fresh, ToolResult(True, output))
        if submitted:
            journal.submitted(PAIR)
    return place


def test_a_journal_that_agrees_adds_nothing(perdure: Perdure) -> None:
    file, journal = file_of(perdure, export()), journal_of(perdure, OUTPUT, submitted=True)
    told = perdure("chain", file, "--journal", journal).stdout
    assert "Nothing is out of place." in told


def test_a_result_that_differs_is_told(perdure: Perdure) -> None:
    file, journal = file_of(perdure, export()), journal_of(perdure, '{"status":"lost"}', submitted=True)
    told = perdure("chain", file, "--check", "--journal", journal, status=1).stdout
    assert "result_differs" in told


def test_a_result_that_waits_to_be_submitted_is_told(perdure: Perdure) -> None:
    asked = session(status="requires_action", required_actions=[action()])
    waiting = export(user(), call(status="in_progress"), session=asked, turns=(turn(status="waiting"),))
    file, journal = file_of(perdure, waiting), journal_of(perdure, OUTPUT, submitted=False)
    document = json.loads(perdure("chain", file, "--json", "--journal", journal).stdout)
    (drift,) = [each for each in document["sessions"][0]["findings"] if each["kind"] == "not_submitted"]
    assert drift["call_id"] == PAIR.call_id


def test_an_export_takes_calls_and_ledger_in(perdure: Perdure) -> None:
    file, journal = file_of(perdure, export()), journal_of(perdure, OUTPUT, submitted=True)
    document = json.loads(perdure("export", file, "--journal", journal).stdout)
    assert document["ledger"]["order_id"] == "A-1042"
    assert [call["call_id"] for call in document["journal"]] == [PAIR.call_id]
    masked = perdure("export", file, "--journal", journal, "--redact", "order_id").stdout
    assert "A-1042" not in json.dumps(json.loads(masked)["journal"])
    assert "A-1042" not in json.dumps(json.loads(masked)["ledger"])


@pytest.mark.parametrize("place", ["nowhere.db", "mysql://db/x"])
def test_what_is_no_journal_is_said(perdure: Perdure, place: str) -> None:
    file = file_of(perdure, export())
    assert "ournal" in perdure("chain", file, "--journal", place, status=2).stderr
