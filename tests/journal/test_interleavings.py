"""Random interleavings: no call that may not be repeated runs twice, and no recorded result is lost."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from perdure.sdk.calls import CallPair, ToolResult
from perdure.sdk.journal import Finished, Fresh, Journal, Running, Unknown
from perdure.sdk.journal_errors import JournalError
from perdure.sdk.ledger import Ledger
from perdure.sdk.run_once import unknown_result

CALLS = [CallPair("s", "t", name) for name in "abc"]
PROCESSES = range(3)

calls = st.sampled_from(CALLS)
processes = st.sampled_from(PROCESSES)


class Counted(Ledger):
    ended: int = 0


class Interleavings(RuleBasedStateMachine):
    """Three processes and three calls. A process may die at any time, and another takes its place."""

    @initialize()
    def start(self) -> None:
        self.home = tempfile.TemporaryDirectory()
        self.journals = [self.open() for _ in PROCESSES]
        record = self.journals[0].ledgers.create(Counted())
        self.journals[0].ledgers.bind(record.key, "s")
        # What each process holds of each call, and whether its function has been started there.
        self.held: dict[tuple[int, CallPair], Fresh] = {}
        self.started: set[tuple[int, CallPair]] = set()
        self.effects: Counter[CallPair] = Counter()
        self.results: dict[CallPair, ToolResult] = {}
        self.counted = 0

    def open(self) -> Journal:
        return Journal.open(Path(self.home.name) / "journal.db")

    def holders(self, pair: CallPair) -> list[int]:
        return [process for process, held in self.held if held == pair]

    @rule(process=processes, pair=calls)
    def begin(self, process: int, pair: CallPair) -> None:
        match self.journals[process].begin(pair, "tool", {}):
            case Fresh() as fresh:
                assert self.holders(pair) == [], "two processes may run it"
                assert pair not in self.results
                assert self.effects[pair] == 0
                self.held[process, pair] = fresh
            case Finished(result=result):
                assert result == self.results[pair]
            case Running(is_ours=is_ours):
                assert is_ours == ((process, pair) in self.held)
                assert self.holders(pair) != []
            case Unknown() as unknown:
                assert self.holders(pair) == []
                assert pair not in self.results
                self.give_up_on(process, unknown)

    def give_up_on(self, process: int, unknown: Unknown) -> None:
        claimed = self.journals[process].claim(unknown)
        assert isinstance(claimed, Fresh)
        told = unknown_result(unknown)
        self.results[unknown.pair] = self.journals[process].finish(claimed, told).result

    @precondition(lambda self: self.held.keys() - self.started)
    @rule(data=st.data())
    def run_function(self, data: st.DataObject) -> None:
        process, pair = data.draw(st.sampled_from(sorted(self.held.keys() - self.started, key=str)))
        self.started.add((process, pair))
        self.effects[pair] += 1

    @precondition(lambda self: self.started)
    @rule(data=st.data(), succeeds=st.booleans())
    def finish(self, data: st.DataObject, succeeds: bool) -> None:
        process, pair = data.draw(st.sampled_from(sorted(self.started, key=str)))
        journal = self.journals[process]
        edit = journal.ledgers.edit("s", Counted)
        assert edit is not None
        edit.update(lambda ledger: {"ended": ledger.ended + 1})
        result = ToolResult(succeeds, pair.call_id if succeeds else None, None if succeeds else "no")
        assert journal.finish(self.held.pop((process, pair)), result, edit).result == result
        self.started.discard((process, pair))
        self.results[pair] = result
        self.counted += succeeds

    @precondition(lambda self: self.results)
    @rule(process=processes, data=st.data())
    def submit(self, process: int, data: st.DataObject) -> None:
        self.journals[process].submitted(data.draw(st.sampled_from(sorted(self.results, key=str))))

    @precondition(lambda self: self.held.keys() - self.started)
    @rule(data=st.data())
    def withdraw(self, data: st.DataObject) -> None:
        process, pair = data.draw(st.sampled_from(sorted(self.held.keys() - self.started, key=str)))
        self.journals[process].withdraw(self.held.pop((process, pair)))

    @rule(process=processes)
    def die(self, process: int) -> None:
        # The kernel closes the file and with it the lock; nothing is written.
        self.journals[process].close()
        self.journals[process] = self.open()
        for held in [each for each in self.held if each[0] == process]:
            del self.held[held]
            self.started.discard(held)

    @invariant()
    def no_call_has_two_effects(self) -> None:
        assert all(count == 1 for count in self.effects.values())

    @invariant()
    def results_and_ledger_agree(self) -> None:
        told = {call["call_id"]: call for call in self.journals[0].calls("s")}
        for pair, result in self.results.items():
            call = told[pair.call_id]
            assert (call["success"], call["output"], call["error"]) == (
                result.success,
                result.output,
                result.error,
            )
        ledger = self.journals[0].ledgers.read("s")
        assert ledger is not None
        assert ledger.value["ended"] == self.counted

    def teardown(self) -> None:
        for journal in self.journals:
            journal.close()
        self.home.cleanup()


TestInterleavings = Interleavings.TestCase
TestInterleavings.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


WORKER = """
import asyncio, os, random, sys
from perdure.sdk.calls import CallPair, ToolResult
from perdure.sdk.journal import Journal
from perdure.sdk.ledger import Ledger
from perdure.sdk.run_once import deliver, run_once

class Counted(Ledger):
    ended: int = 0

def effect(kind, call_id):
    descriptor = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, f"{kind} {call_id}\\n".encode())
    os.close(descriptor)

async def one(journal, name):
    pair = CallPair("s", "t", name)
    edit = journal.ledgers.edit("s", Counted)
    async def run(_):
        effect("ran", name)
        edit.update(lambda ledger: {"ended": ledger.ended + 1})
        return ToolResult(True, name)
    finished = await run_once(journal.aio, pair, "tool", {}, run, ledger=edit)
    async def send(event):
        effect("sent", f"{name}:{event['success']}")
    await deliver(journal.aio, finished, send)

async def main():
    names = [str(number) for number in range(24)]
    random.Random(sys.argv[3]).shuffle(names)
    with Journal.open(sys.argv[1]) as journal:
        async with asyncio.TaskGroup() as group:
            for name in names:
                group.create_task(one(journal, name))

asyncio.run(main())
"""

POINTS = (
    "journal:after-begin", "tool:before-run", "tool:after-run", "journal:finish-before-commit",
    "journal:after-finish", "result:before-submit", "result:after-submit", "journal:after-submitted",
)  # fmt: skip


@pytest.mark.slow
def test_processes_killed_at_random_points_run_no_call_twice(tmp_path: Path) -> None:
    chance = random.Random(os.environ.get("PERDURE_SEED", "1"))
    place = [str(tmp_path / "journal.db"), str(tmp_path / "effects")]
    with Journal.open(place[0]) as journal:
        record = journal.ledgers.create(Counted())
        journal.ledgers.bind(record.key, "s")
    deaths = 0
    for _ in range(4):
        generation = []
        for _ in range(2):
            fault = f"{chance.choice(POINTS)}#{chance.randint(1, 8)}"
            command = [sys.executable, "-c", WORKER, *place, str(chance.random())]
            generation.append(subprocess.Popen(command, env={**os.environ, "PERDURE_FAULT": fault}))
        ended = [process.wait(120) for process in generation]
        assert set(ended) <= {0, -signal.SIGKILL}
        deaths += ended.count(-signal.SIGKILL)
    assert deaths > 0
    subprocess.run([sys.executable, "-c", WORKER, *place, "last"], check=True, timeout=120)
    effects = (tmp_path / "effects").read_text().split("\n")
    ran = Counter(line.split()[1] for line in effects if line.startswith("ran"))
    assert set(ran.values()) == {1}
    sent: dict[str, set[str]] = {}
    for line in effects:
        if line.startswith("sent"):
            name, success = line.split()[1].split(":")
            sent.setdefault(name, set()).add(success)
    assert len(sent) == 24
    assert all(len(told) == 1 for told in sent.values()), "a call was answered in two ways"
    with Journal.open_read_only(place[0]) as journal:
        calls = journal.calls("s")
        assert len([call for call in calls if call["submitted_us"] is not None]) == 24
        succeeded = {call["call_id"] for call in calls if call["success"]}
        assert succeeded == {name for name, told in sent.items() if told == {"True"}}
        ledger = journal.ledgers.read("s")
        assert ledger is not None
        assert (ledger.value["ended"], ledger.awaiting) == (len(succeeded), None)


def test_a_try_that_lost_its_call_is_told(tmp_path: Path) -> None:
    with Journal.open(tmp_path / "j.db") as one, Journal.open(tmp_path / "j.db") as other:
        held = one.begin(CALLS[0], "tool", {})
        assert isinstance(held, Fresh)
        one.abandon(held)
        unknown = other.begin(CALLS[0], "tool", {})
        assert isinstance(unknown, Unknown)
        assert isinstance(other.claim(unknown), Fresh)
        with pytest.raises(JournalError, match="taken over"):
            one.finish(held, ToolResult(True, "late"))
