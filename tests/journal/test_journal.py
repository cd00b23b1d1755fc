"""The life of a call in the journal: begun, ended, submitted; seen by this process and by others."""

from __future__ import annotations

import asyncio
import json
import stat
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from perdure.sdk.calls import CallPair, ToolResult
from perdure.sdk.errors import DefinitionRefused
from perdure.sdk.journal import Finished, Fresh, Journal, Running, Unknown
from perdure.sdk.journal_database import default_location
from perdure.sdk.journal_errors import JournalError, JournalUnavailable, NotJson
from perdure.sdk.run_once import Retry, check_policy, deliver, run_once

OpenJournal = Callable[..., Journal]
PAID = ToolResult(True, '{"paid":true}')


def begun_fresh(journal: Journal, pair: CallPair) -> Fresh:
    begun = journal.begin(pair, "pay", {"amount": 5})
    assert isinstance(begun, Fresh)
    return begun


def test_a_call_is_fresh_once_and_finished_from_then_on(journal: Journal, pair: CallPair) -> None:
    fresh = begun_fresh(journal, pair)
    journal.finish(fresh, PAID)
    again = journal.begin(pair, "pay", {"amount": 5})
    assert again == Finished(pair, "pay", PAID)


def test_a_result_is_there_for_another_process_unchanged(open_journal: OpenJournal, pair: CallPair) -> None:
    strange = "nul \x00, half \ud83d, line \u2028, é, \N{SNOWMAN}" + '"\\'
    one, other = open_journal(), open_journal()
    one.finish(begun_fresh(one, pair), ToolResult(True, strange))
    found = other.begin(pair, "pay", {})
    assert isinstance(found, Finished)
    assert found.result.output == strange
    assert json.dumps(found.result.event("t", "c")) == json.dumps(ToolResult(True, strange).event("t", "c"))


def test_content_parts_come_back_as_they_were(journal: Journal, pair: CallPair) -> None:
    parts = [{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": "data:,"}]
    journal.finish(begun_fresh(journal, pair), ToolResult(True, parts))
    found = journal.look(pair)
    assert isinstance(found, Finished)
    assert found.result.output == parts


def test_a_call_that_runs_is_running_for_everybody(open_journal: OpenJournal, pair: CallPair) -> None:
    one, other = open_journal(), open_journal()
    begun_fresh(one, pair)
    match one.begin(pair, "pay", {}), other.begin(pair, "pay", {}):
        case Running(is_ours=True), Running(is_ours=False, by=by):
            assert "process" in by
        case seen:
            pytest.fail(f"seen as {seen}")


def test_a_call_of_a_closed_journal_is_unknown(open_journal: OpenJournal, pair: CallPair) -> None:
    one, other = open_journal(), open_journal()
    begun_fresh(one, pair)
    one.close()
    found = other.begin(pair, "pay", {})
    assert isinstance(found, Unknown)
    assert (found.arguments, found.attempts) == ({"amount": 5}, 1)


def test_a_call_that_was_given_up_is_unknown_here_too(journal: Journal, pair: CallPair) -> None:
    journal.abandon(begun_fresh(journal, pair))
    assert isinstance(journal.begin(pair, "pay", {}), Unknown)
    assert [call["state"] for call in journal.calls("sess_1")] == ["unknown"]


def test_a_call_that_was_withdrawn_is_fresh_again(journal: Journal, pair: CallPair) -> None:
    journal.withdraw(begun_fresh(journal, pair))
    assert isinstance(journal.begin(pair, "pay", {}), Fresh)


def test_withdrawing_a_second_try_does_not_forget_the_first(journal: Journal, pair: CallPair) -> None:
    journal.abandon(begun_fresh(journal, pair))
    unknown = journal.begin(pair, "pay", {})
    assert isinstance(unknown, Unknown)
    second = journal.claim(unknown)
    assert isinstance(second, Fresh)
    assert second.attempts == 2
    journal.withdraw(second)
    assert isinstance(journal.begin(pair, "pay", {}), Unknown)


def test_only_one_claims_an_unknown_call(open_journal: OpenJournal, pair: CallPair) -> None:
    one, other = open_journal(), open_journal()
    one.abandon(begun_fresh(one, pair))
    seen = [journal.begin(pair, "pay", {}) for journal in (one, other)]
    assert isinstance(seen[0], Unknown)
    assert isinstance(seen[1], Unknown)
    claimed = [one.claim(seen[0]), other.claim(seen[1])]
    assert [type(each) for each in claimed] == [Fresh, Running]


def test_who_was_taken_for_dead_gets_the_result_that_stands(
    open_journal: OpenJournal, pair: CallPair
) -> None:
    one, other = open_journal(), open_journal()
    slow = begun_fresh(one, pair)
    one.abandon(slow)  # as a lease that has run out
    unknown = other.begin(pair, "pay", {})
    assert isinstance(unknown, Unknown)
    taken = other.claim(unknown)
    assert isinstance(taken, Fresh)
    with pytest.raises(JournalError, match="taken over"):
        one.finish(slow, PAID)
    other.finish(taken, ToolResult(False, error="unknown"))
    assert one.finish(slow, PAID).result == ToolResult(False, error="unknown")
    (call,) = other.calls("sess_1")
    assert call["late"] == asdict(PAID), "what the function brought is not lost"


def test_ending_a_call_twice_keeps_the_first_end(journal: Journal, pair: CallPair) -> None:
    fresh = begun_fresh(journal, pair)
    journal.finish(fresh, PAID)
    assert journal.finish(fresh, ToolResult(True, "another")).result == PAID


def test_of_many_threads_one_is_to_run_the_call(open_journal: OpenJournal, pair: CallPair) -> None:
    journals = [open_journal() for _ in range(3)]
    start = threading.Barrier(9)

    def begin(number: int) -> object:
        start.wait()
        return journals[number % 3].begin(pair, "pay", {})

    with ThreadPoolExecutor(9) as threads:
        kinds = [type(each) for each in threads.map(begin, range(9))]
    assert kinds.count(Fresh) == 1
    assert kinds.count(Running) == 8


def test_the_same_call_id_in_another_turn_is_another_call(journal: Journal, pair: CallPair) -> None:
    begun_fresh(journal, pair)
    begun_fresh(journal, CallPair("sess_1", "turn_2", "call_1"))
    begun_fresh(journal, CallPair("sess_2", "turn_1", "call_1"))


def test_arguments_that_are_no_json_start_nothing(journal: Journal, pair: CallPair) -> None:
    with pytest.raises(NotJson, match="the arguments"):
        journal.begin(pair, "pay", {"amount": float("nan")})
    with pytest.raises(NotJson):
        journal.begin(pair, "pay", {"amount": object()})
    assert journal.calls("sess_1") == []


def test_calls_are_told_as_plain_data(journal: Journal, pair: CallPair) -> None:
    fresh = begun_fresh(journal, pair)
    (running,) = journal.calls("sess_1")
    assert running["state"] == "running"
    assert not {"output", "error", "success"} & running.keys(), "a call without an end has no result"
    journal.finish(fresh, PAID)
    journal.submitted(pair)
    (call,) = journal.calls("sess_1")
    assert json.loads(json.dumps(call)) == call
    assert (call["name"], call["arguments"], call["success"]) == ("pay", {"amount": 5}, True)
    assert call["submitted_us"] >= call["finished_us"] >= call["started_us"]


# ---- secrets and cleaning up


def mask(kind: str, tool: str, value: Any) -> Any:
    return {"masked": kind, "tool": tool}


def test_arguments_are_masked_before_they_are_recorded(open_journal: OpenJournal, pair: CallPair) -> None:
    journal = open_journal(redact=mask)
    journal.begin(pair, "pay", {"card": "4711"})
    assert journal.calls("sess_1")[0]["arguments"] == {"masked": "arguments", "tool": "pay"}


async def test_results_are_masked_when_their_turn_has_ended(
    open_journal: OpenJournal, pair: CallPair
) -> None:
    journal = open_journal(redact=mask)
    journal.finish(begun_fresh(journal, pair), PAID)
    journal.turn_ended("sess_1", "turn_other")
    assert journal.begin(pair, "pay", {}) == Finished(pair, "pay", PAID)
    journal.turn_ended("sess_1", "turn_1")
    found = journal.begin(pair, "pay", {})
    assert isinstance(found, Finished)
    assert "paid" not in str(journal.calls("sess_1"))
    with pytest.raises(JournalError, match="redacted"):
        await deliver(journal.aio, found, pytest.fail)


def test_the_end_of_a_turn_settles_what_a_crash_left_open(journal: Journal) -> None:
    taken, lost, later = (CallPair("s", turn, name) for turn, name in ("ta", "tb", "uc"))
    for each in (taken, lost, later):
        journal.finish(begun_fresh(journal, each), PAID)
    journal.turn_ended("s", "t", answered=["a"])
    by_name = {call["call_id"]: call for call in journal.calls("s")}
    assert by_name["a"]["submitted_us"] is not None
    assert "turn ended" in by_name["b"]["refused"]
    assert by_name["c"]["submitted_us"] is None
    assert "refused" not in by_name["c"]


def test_a_result_that_was_taken_after_all_counts_as_taken(journal: Journal, pair: CallPair) -> None:
    journal.finish(begun_fresh(journal, pair), PAID)
    journal.turn_ended(pair.session_id, pair.turn_id)
    journal.submitted(pair)
    (call,) = journal.calls(pair.session_id)
    assert call["submitted_us"] is not None
    assert "refused" not in call


def test_cleaning_up_keeps_what_may_be_needed(journal: Journal) -> None:
    ended = [CallPair("s", "t", name) for name in ("submitted", "refused", "waiting")]
    for each in ended:
        journal.finish(begun_fresh(journal, each), PAID)
    journal.submitted(ended[0])
    journal.refused(ended[1], "the turn has ended")
    begun_fresh(journal, CallPair("s", "t", "running"))
    assert journal.cleanup(timedelta(days=1)).calls == 0
    assert journal.cleanup(timedelta(0)).calls == 2
    assert [call["call_id"] for call in journal.calls("s")] == ["waiting", "running"]
    assert journal.cleanup(timedelta(0), unsubmitted=True).calls == 1
    assert [call["call_id"] for call in journal.calls("s")] == ["running"]


# ---- opening


def test_a_journal_of_a_newer_release_is_refused(location: str, journal: Journal) -> None:
    url = location.replace("postgresql://", "postgresql+psycopg://")
    engine = create_engine(url if "://" in url else f"sqlite:///{url}")
    with engine.begin() as connection:
        connection.execute(text("UPDATE perdure_journal SET version = 7"))
    engine.dispose()
    with pytest.raises(JournalError, match=r"version 7.*Upgrade perdure"):
        Journal.open(location)
    with pytest.raises(JournalError, match="version 7"):
        Journal.open_read_only(location)


def test_many_open_a_new_journal_at_once(location: str) -> None:
    start = threading.Barrier(6)

    def open_one(_: int) -> Journal:
        start.wait()
        return Journal.open(location)

    with ThreadPoolExecutor(6) as threads:
        journals = list(threads.map(open_one, range(6)))
    begun_fresh(journals[0], CallPair("s", "t", "c"))
    for journal in journals:
        assert len(journal.calls("s")) == 1
        journal.close()


def test_where_the_journal_is_by_default(tmp_path: Path) -> None:
    named = {"PERDURE_JOURNAL": "postgresql://db/app", "XDG_DATA_HOME": "/data"}
    assert default_location(named) == "postgresql://db/app"
    assert default_location({"XDG_DATA_HOME": "/data"}) == "/data/perdure/journal.db"
    assert default_location({"XDG_DATA_HOME": "relative"}).endswith(".local/share/perdure/journal.db")


def test_only_its_owner_can_read_a_journal(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "journal.db"
    with Journal.open(path) as journal:
        begun_fresh(journal, CallPair("s", "t", "c"))
        made = [path, *path.parent.iterdir(), *path.with_name("journal.db.owners").iterdir()]
        assert [each for each in made if stat.S_IMODE(each.stat().st_mode) & 0o077] == []


@pytest.mark.parametrize(
    ("location", "told"),
    [
        ("sqlite://", "in memory"),
        ("mysql://root@db/x", "'mysql' are not supported"),
        ("not a url://", "no database URL"),
        ("/proc/none/journal.db", "cannot be opened"),
    ],
)
def test_a_location_that_holds_no_journal_is_refused(location: str, told: str) -> None:
    with pytest.raises(JournalError, match=told):
        Journal.open(location)


def test_reading_makes_nothing(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="There is no journal"):
        Journal.open_read_only(tmp_path / "journal.db")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "other.db").touch()
    with pytest.raises(JournalError, match="holds no journal"):
        Journal.open_read_only(tmp_path / "other.db")


def test_a_journal_that_cannot_be_written_says_so(tmp_path: Path, pair: CallPair) -> None:
    path = tmp_path / "journal.db"
    with Journal.open(path) as journal:
        engine = create_engine(f"sqlite:///{path}")
        with engine.begin() as connection:
            connection.execute(text("DROP TABLE perdure_calls"))
        engine.dispose()
        with pytest.raises(JournalUnavailable, match="no such table"):
            journal.begin(pair, "pay", {})


# ---- run_once


async def test_a_function_runs_once_for_all_who_ask(open_journal: OpenJournal, pair: CallPair) -> None:
    journals = [open_journal() for _ in range(2)]
    runs = []
    running, release = asyncio.Event(), asyncio.Event()

    async def run(fresh: Fresh) -> ToolResult:
        runs.append(fresh.attempts)
        running.set()
        await release.wait()
        return PAID

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(run_once(journal.aio, pair, "pay", {}, run)) for journal in journals * 3]
        await running.wait()
        release.set()
    assert runs == [1]
    assert {task.result().result.output for task in tasks} == {PAID.output}


async def test_an_unknown_outcome_is_said_and_not_tried_again(journal: Journal, pair: CallPair) -> None:
    journal.abandon(begun_fresh(journal, pair))
    found = await run_once(journal.aio, pair, "pay", {}, never_run)
    assert found.result.success is False
    assert (found.result.error or "").startswith("[outcome_unknown] pay was started at 20")
    assert (await run_once(journal.aio, pair, "pay", {}, never_run)).result == found.result


async def never_run(_: Fresh) -> ToolResult:
    pytest.fail("the function ran")


async def test_an_idempotent_function_may_run_again(journal: Journal, pair: CallPair) -> None:
    journal.abandon(begun_fresh(journal, pair))
    tries = []

    async def run(fresh: Fresh) -> ToolResult:
        tries.append(fresh.attempts)
        return PAID

    found = await run_once(journal.aio, pair, "pay", {}, run, on_unknown="retry", idempotent=True)
    assert (found.result, tries) == (PAID, [2])


async def test_a_function_can_find_out_what_happened(journal: Journal, pair: CallPair) -> None:
    journal.abandon(begun_fresh(journal, pair))
    asked = []

    async def look_up(unknown: Unknown) -> ToolResult:
        asked.append(unknown.arguments)
        return PAID

    found = await run_once(journal.aio, pair, "pay", {}, never_run, on_unknown=look_up)
    assert (found.result, asked) == (PAID, [{"amount": 5}])


async def test_a_function_can_find_out_that_nothing_happened(journal: Journal, pair: CallPair) -> None:
    journal.abandon(begun_fresh(journal, pair))

    async def run(_: Fresh) -> ToolResult:
        return PAID

    found = await run_once(journal.aio, pair, "pay", {}, run, on_unknown=lambda _: Retry())
    assert found.result == PAID


async def test_who_cannot_find_out_leaves_the_call_unknown(journal: Journal, pair: CallPair) -> None:
    journal.abandon(begun_fresh(journal, pair))

    def look_up(_: Unknown) -> ToolResult:
        raise ConnectionError("the shop is down")

    with pytest.raises(ConnectionError):
        await run_once(journal.aio, pair, "pay", {}, never_run, on_unknown=look_up)
    assert isinstance(journal.look(pair), Unknown)
    with pytest.raises(JournalError, match="returned str"):
        await run_once(journal.aio, pair, "pay", {}, never_run, on_unknown=lambda _: "paid")  # type: ignore[arg-type,return-value]
    assert isinstance(journal.look(pair), Unknown)


def test_retrying_needs_an_idempotent_tool() -> None:
    with pytest.raises(DefinitionRefused, match="idempotent=True"):
        check_policy("retry", idempotent=False)
    check_policy("retry", idempotent=True)
    with pytest.raises(DefinitionRefused, match="not 'again'"):
        check_policy("again", idempotent=True)  # type: ignore[arg-type]


async def test_an_exception_fails_the_call_without_its_text(journal: Journal, pair: CallPair) -> None:
    async def run(_: Fresh) -> ToolResult:
        raise RuntimeError("password hunter2")

    found = await run_once(journal.aio, pair, "pay", {}, run)
    assert found.result == ToolResult(False, error="pay failed.")


async def test_an_output_that_is_no_json_fails_the_call(journal: Journal, pair: CallPair) -> None:
    async def run(_: Fresh) -> ToolResult:
        return ToolResult(True, [{"type": "input_text", "text": object()}])

    found = await run_once(journal.aio, pair, "pay", {}, run)
    assert found.result.error == "pay has run, but its output has no JSON form."


async def test_a_cancelled_function_has_an_unknown_outcome(journal: Journal, pair: CallPair) -> None:
    started = asyncio.Event()

    async def run(_: Fresh) -> ToolResult:
        started.set()
        await asyncio.Event().wait()
        return PAID

    task = asyncio.create_task(run_once(journal.aio, pair, "pay", {}, run))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert isinstance(journal.look(pair), Unknown)


async def test_a_cancelled_beginning_is_none(
    journal: Journal, pair: CallPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, release = threading.Event(), threading.Event()
    write = journal._database.write

    def slowly(operation: Any) -> Any:
        found = write(operation)
        entered.set()
        assert release.wait(30)
        return found

    monkeypatch.setattr(journal._database, "write", slowly)
    task = asyncio.create_task(run_once(journal.aio, pair, "pay", {}, never_run))
    await asyncio.to_thread(entered.wait, 30)
    task.cancel()
    await asyncio.sleep(0)
    release.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert journal.look(pair) is None, "nobody would ever end it"


async def test_a_result_is_submitted_only_after_the_server_took_it(journal: Journal, pair: CallPair) -> None:
    finished = journal.finish(begun_fresh(journal, pair), PAID)

    async def refuse(_: dict[str, Any]) -> None:
        raise ConnectionError

    with pytest.raises(ConnectionError):
        await deliver(journal.aio, finished, refuse)
    assert journal.begin(pair, "pay", {}) == finished
    sent = []

    async def take(event: dict[str, Any]) -> None:
        sent.append(event)

    await deliver(journal.aio, finished, take)
    assert sent == [PAID.event("turn_1", "call_1")]
    assert journal.begin(pair, "pay", {}) == Finished(pair, "pay", PAID, is_submitted=True)
