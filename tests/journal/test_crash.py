"""The application is killed at each point around a call; another process goes on with the session's id."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from openai import OpenAI
from tests.journal.application import MODEL, ORDER, SCRIPT
from tests.server import ServerProcess, scripted_config

from perdure.sdk.journal import Journal
from perdure.sdk.ledger import LEDGER_METADATA
from perdure.sdk.reconcile import read_session, reconcile
from perdure.sdk.run_once import OUTCOME_UNKNOWN

pytestmark = pytest.mark.slow

DEADLINE = 120
BEFORE = ("ledger:before-bind", "ledger:after-bind", "journal:before-begin")
UNCERTAIN = (
    "journal:after-begin", "tool:before-run", "effect:before", "effect:after", "tool:after-run",
    "journal:before-finish", "journal:finish-before-commit",
)  # fmt: skip
CERTAIN = ("journal:after-finish", "result:before-submit", "result:after-submit", "journal:after-submitted")
WITHOUT_EFFECT = ("journal:after-begin", "tool:before-run", "effect:before")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    home = tmp_path_factory.mktemp("server")
    with ServerProcess(scripted_config(home, {MODEL: SCRIPT}), home / "data") as process:
        yield process


class Forge:
    """Runs applications in processes of their own, forked from one that has made the imports."""

    def __init__(self) -> None:
        environ = {name: value for name, value in os.environ.items() if not name.startswith("PERDURE_")}
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("application.py"))],
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, fault: str | None, words: list[str]) -> tuple[int, str]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([fault, *words]) + "\n")
        self._process.stdin.flush()
        status, printed = json.loads(self._process.stdout.readline())
        return status, printed

    def close(self) -> None:
        self._process.communicate(timeout=DEADLINE)


@pytest.fixture(scope="module")
def forges() -> Iterator[list[Forge]]:
    made = [Forge(), Forge()]
    yield made
    for forge in made:
        forge.close()


@pytest.fixture
def make(server: ServerProcess, forges: list[Forge], tmp_path: Path) -> Callable[..., Applications]:
    """Makes applications over a new journal, in a file unless another is given."""

    def with_policy(policy: str, journal: str | None = None) -> Applications:
        return Applications(server, forges, tmp_path, journal or str(tmp_path / "journal.db"), policy)

    return with_policy


class Applications:
    """Processes of one application, one after the other, over one journal."""

    def __init__(
        self, server: ServerProcess, forges: list[Forge], home: Path, journal: str, policy: str
    ) -> None:
        self.server = server
        self.forges = forges
        self.journal = journal
        self.effects = home / "effects"
        self.policy = policy
        self.client = OpenAI(base_url=server.base_url, api_key=server.api_key)

    def run(self, mode: str, *known: str, fault: str | None = None, forge: int = 0) -> tuple[int, str]:
        """Run a process to its end; returns its status and what it printed."""
        place = [self.server.base_url, self.server.api_key, self.journal, str(self.effects), self.policy]
        status, printed = self.forges[forge].run(fault, [mode, *place, *known])
        assert status in (0, -signal.SIGKILL), "the application failed; see its standard error"
        return status, printed

    def find(self) -> str:
        """The session of the journal's one ledger, known to it or named by the session's metadata."""
        with Journal.open_read_only(self.journal) as journal:
            (record,) = journal.ledgers.records()
        for session in self.client.beta.agents.sessions.list(order="desc"):
            if session.id == record.session_id or session.metadata.get(LEDGER_METADATA) == record.key:
                return session.id
        raise AssertionError("no session names the ledger")

    def check(self, session_id: str, *, effects: int, charged: bool) -> None:
        """What is true of every session that has come to rest."""
        session = self.client.beta.agents.sessions.retrieve(session_id)
        assert (session.status, session.required_actions) == ("idle", [])
        (turn,) = self.client.beta.agents.sessions.turns.list(session_id)
        assert turn.status == "completed", turn.error
        lines = self.effects.read_text().split() if self.effects.exists() else []
        assert len(lines) == effects
        facts = read_session(self.client, session_id)
        with Journal.open_read_only(self.journal) as journal:
            ledger, (call,) = journal.ledgers.read(session_id), journal.calls(session_id)
            assert ledger is not None
            assert reconcile(facts, ledger, journal.calls(session_id)) == []
        assert call["submitted_us"] is not None
        assert ledger.value == {"order_id": ORDER, "status": "charged" if charged else "new"}
        assert (ledger.last_call_id, ledger.awaiting) == (call["call_id"], None)
        (result,) = [item for item in facts.items if item["type"] == "function_call_output"]
        if charged:
            assert result["output"] == call["output"] == f'{{"order_id":"{ORDER}"}}'
        else:
            assert result["error"] == call["error"]
            assert OUTCOME_UNKNOWN in call["error"]

    def crash_and_go_on(self, point: str) -> str:
        """The session's id, after one process died at the point and another ended the work."""
        status, printed = self.run("start", fault=point)
        assert status == -signal.SIGKILL, f"{point} was not reached"
        session_id = printed or self.find()
        assert self.run("resume", session_id) == (0, "")
        return session_id


@pytest.mark.parametrize("point", [*BEFORE, *UNCERTAIN, *CERTAIN])
def test_the_effect_happens_once_if_the_tool_can_look_it_up(
    point: str, make: Callable[..., Applications]
) -> None:
    applications = make("look up")
    applications.check(applications.crash_and_go_on(point), effects=1, charged=True)


@pytest.mark.parametrize("point", UNCERTAIN)
def test_an_uncertain_effect_is_said_and_never_repeated(
    point: str, make: Callable[..., Applications]
) -> None:
    applications = make("fail")
    session_id = applications.crash_and_go_on(point)
    applications.check(session_id, effects=0 if point in WITHOUT_EFFECT else 1, charged=False)


@pytest.mark.parametrize("point", ["effect:after", "result:after-submit"])
def test_the_same_with_a_journal_in_postgresql(
    point: str, make: Callable[..., Applications], postgres_url: str
) -> None:
    applications = make("look up", postgres_url)
    applications.check(applications.crash_and_go_on(point), effects=1, charged=True)


def test_processes_that_die_one_after_the_other_get_there(make: Callable[..., Applications]) -> None:
    applications = make("look up")
    _, session_id = applications.run("start", fault="effect:after")
    for point in ("journal:before-finish", "journal:after-finish", "result:before-submit"):
        status, _ = applications.run("resume", session_id, fault=point)
        assert status == -signal.SIGKILL, f"{point} was not reached"
    assert applications.run("resume", session_id) == (0, "")
    applications.check(session_id, effects=1, charged=True)


def test_two_processes_that_resume_at_once_run_the_call_once(make: Callable[..., Applications]) -> None:
    applications = make("look up")
    _, session_id = applications.run("start", fault="journal:before-begin")
    with ThreadPoolExecutor(2) as threads:
        ended = list(threads.map(lambda forge: applications.run("resume", session_id, forge=forge), range(2)))
    assert ended == [(0, ""), (0, "")]
    applications.check(session_id, effects=1, charged=True)


def test_a_ledger_whose_session_never_came_to_be_stays_pending(make: Callable[..., Applications]) -> None:
    applications = make("fail")
    status, printed = applications.run("start", fault="ledger:after-create")
    assert (status, printed) == (-signal.SIGKILL, "")
    with pytest.raises(AssertionError, match="no session names the ledger"):
        applications.find()
    with Journal.open(applications.journal) as journal:
        (record,) = journal.ledgers.pending()
        journal.ledgers.discard(record.key)
