"""A dead process is told from a living one, however it died and whatever else it left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from perdure.sdk import journal_owners
from perdure.sdk.calls import CallPair, ToolResult
from perdure.sdk.journal import Fresh, Journal, Running, Unknown

PAIR = CallPair("sess_1", "turn_1", "call_1")

BEGIN = """
import sys
from perdure.sdk.calls import CallPair
from perdure.sdk.journal import Journal
journal = Journal.open(sys.argv[1])
print(type(journal.begin(CallPair("sess_1", "turn_1", "call_1"), "pay", {})).__name__, flush=True)
sys.stdin.read()
"""


@contextmanager
def another_process(location: str) -> Iterator[subprocess.Popen[str]]:
    """A process that has begun the call and runs it until it is killed or its input ends."""
    with subprocess.Popen(
        [sys.executable, "-c", BEGIN, location], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "Fresh\n"
            yield process
        finally:
            process.kill()


def until_unknown(journal: Journal) -> Unknown:
    deadline = time.monotonic() + 60
    while not isinstance(found := journal.begin(PAIR, "pay", {}), Unknown):
        assert time.monotonic() < deadline, f"still {found}"
        time.sleep(0.05)
    return found


def test_the_call_of_a_killed_process_is_unknown(
    location: str, open_journal: Callable[..., Journal], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_owners, "LEASE_SECONDS", 4.0)
    journal = open_journal()
    with another_process(location) as process:
        running = journal.begin(PAIR, "pay", {})
        assert isinstance(running, Running)
        assert str(process.pid) in running.by
        process.kill()
        process.wait()
        unknown = until_unknown(journal)
    assert isinstance(journal.claim(unknown), Fresh)


def test_the_call_of_a_process_that_ended_well_without_closing_is_unknown(tmp_path: Path) -> None:
    location = str(tmp_path / "journal.db")
    with Journal.open(location) as journal, another_process(location) as process:
        process.communicate(timeout=60)
        assert isinstance(journal.begin(PAIR, "pay", {}), Unknown)


def test_a_stopped_process_still_has_its_call(tmp_path: Path) -> None:
    location = str(tmp_path / "journal.db")
    with Journal.open(location) as journal, another_process(location) as process:
        os.kill(process.pid, signal.SIGSTOP)
        assert isinstance(journal.begin(PAIR, "pay", {}), Running)


def test_a_heart_that_stopped_counts_as_gone_after_the_lease(postgres_url: str) -> None:
    with Journal.open(postgres_url) as one, Journal.open(postgres_url) as other:
        assert isinstance(one.begin(PAIR, "pay", {}), Fresh)
        one._owner._ended.set()  # type: ignore[attr-defined]
        engine = create_engine(postgres_url.replace("postgresql://", "postgresql+psycopg://"))
        with engine.begin() as connection:
            connection.execute(text("UPDATE perdure_owners SET seen_us = seen_us - 14000000"))
        assert isinstance(other.begin(PAIR, "pay", {}), Running)
        with engine.begin() as connection:
            connection.execute(text("UPDATE perdure_owners SET seen_us = seen_us - 2000000"))
        engine.dispose()
        assert isinstance(other.begin(PAIR, "pay", {}), Unknown)


def test_a_forked_child_is_another_owner_and_leaves_the_parents_alone(tmp_path: Path) -> None:
    location = str(tmp_path / "journal.db")
    with Journal.open(location) as journal:
        assert isinstance(journal.begin(PAIR, "pay", {}), Fresh)
        child = os.fork()
        if child == 0:
            # The child of a test run must not live on, whatever happens.
            status = 1
            try:
                seen = journal.begin(PAIR, "pay", {})
                own = journal.begin(CallPair("sess_1", "turn_1", "call_2"), "pay", {})
                if isinstance(seen, Running) and not seen.is_ours and isinstance(own, Fresh):
                    status = 0
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert isinstance(journal.begin(PAIR, "pay", {}), Running)
        assert isinstance(journal.begin(CallPair("sess_1", "turn_1", "call_2"), "pay", {}), Unknown)


def test_a_child_that_outlives_its_parent_keeps_no_lock(tmp_path: Path) -> None:
    location = str(tmp_path / "journal.db")
    code = BEGIN.replace(
        "sys.stdin.read()",
        "import os\nif os.fork() == 0:\n    print('forked', flush=True)\n    sys.stdin.read()\nos._exit(0)",
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, location], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "Fresh\n"
        assert process.stdout.readline() == "forked\n", "the child has let go of what it shares"
        process.wait(60)
        with Journal.open(location) as journal:
            assert isinstance(journal.begin(PAIR, "pay", {}), Unknown)


def test_traces_of_dead_processes_are_cleaned_up(tmp_path: Path) -> None:
    from datetime import timedelta

    location = str(tmp_path / "journal.db")
    owners = tmp_path / "journal.db.owners"
    with Journal.open(location) as journal:
        with another_process(location) as process:
            process.kill()
            process.wait()
            assert len(list(owners.iterdir())) == 1
            found = until_unknown(journal)
            claimed = journal.claim(found)
            assert isinstance(claimed, Fresh)
            journal.cleanup(timedelta(0))
        assert len(list(owners.iterdir())) == 1
        assert isinstance(journal.look(PAIR), Running), "its own lock is still there"
        journal.finish(claimed, ToolResult(True, "done"))
    assert list(owners.iterdir()) == []
