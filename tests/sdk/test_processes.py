"""Applications that die around a call, and several that answer for one session: each call has one effect."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.process import GuardedProcess
from tests.server import ServerProcess

from perdure import Agent, Sessions, ToolContext, tool
from perdure.sdk.ledger import LEDGER_METADATA

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]

BEFORE_EFFECT = ["journal:before-begin", "journal:after-begin", "tool:before-run"]
AFTER_EFFECT = [
    "tool:after-run",
    "journal:before-finish",
    "journal:finish-before-commit",
    "journal:after-finish",
    "pins:before-update",
    "pins:after-update",
    "result:before-submit",
    "result:after-submit",
    "journal:after-submitted",
]
UNKNOWN = [
    "journal:after-begin",
    "tool:before-run",
    "tool:after-run",
    "journal:before-finish",
    "journal:finish-before-commit",
]
SHIPMENTS = {"type": "object", "properties": {"shipped": {"type": "integer"}}, "required": ["shipped"]}
SHIPPED = "perdure.pin.shipped"
AROUND_THE_LEDGER = ["ledger:after-create", "ledger:before-bind", "ledger:after-bind"]


class Application(GuardedProcess):
    """One process of the application."""

    def __init__(self, server: ServerProcess, place: Path, *command: str, fault: str | None = None) -> None:
        super().__init__("the application", place / f"log-{fault}")
        self._server = server
        self._place = place
        self._arguments = command
        self._fault = fault

    def _command(self) -> Sequence[str]:
        where = [self._server.url, self._server.api_key, str(self._place / "journal.db"), str(self._place)]
        return [sys.executable, "-m", "tests.sdk.application", *where, *self._arguments]

    def _environment(self) -> dict[str, str]:
        faults = {} if self._fault is None else {"PERDURE_FAULT": f"{self._fault}=kill"}
        return {**os.environ, **faults}

    def _options(self) -> dict[str, object]:
        return {"cwd": ROOT}

    def _is_ready(self, line: str | None) -> bool:
        assert line is not None or self._fault is not None, self.stderr()
        return True

    def word(self, name: str) -> str | None:
        """What a printed line says behind its first word."""
        return next((line.split(" ", 1)[1] for line in self.printed if line.startswith(f"{name} ")), None)

    def answer(self) -> str:
        """Waits for the end; returns the answer."""
        assert self.wait() == 0, self.stderr()
        answer = self.word("answer")
        assert answer is not None, self.printed
        return answer


def effects(place: Path) -> list[str]:
    path = place / "effects"
    return path.read_text().splitlines() if path.exists() else []


async def begin(server: ServerProcess, place: Path, text: str) -> str:
    """A session that waits for the application; returns its id."""

    def ship(name: str, context: ToolContext) -> str:
        """Ship it."""
        raise AssertionError("this process answers nothing")

    name = "slow" if text == "three" else "work"
    shipper = Agent(name="shipper", model="caller", tools=[tool(ship, name=name)])
    async with Sessions(
        base_url=server.url, api_key=server.api_key, journal=place / "journal.db"
    ) as sessions:
        session = sessions.start(shipper, ledger={"shipped": 0}, ledger_type=SHIPMENTS, pinned=("shipped",))
        return await session.create(text)


@pytest.mark.parametrize(
    ("point", "asks"),
    [(point, False) for point in (*BEFORE_EFFECT, *AFTER_EFFECT)] + [(point, True) for point in UNKNOWN],
    ids=lambda value: value if isinstance(value, str) else ("told", "asked")[value],
)
async def test_killed_around_a_call_the_turn_ends_and_the_effect_happens_once(
    server: ServerProcess, tmp_path: Path, point: str, asks: bool
) -> None:
    if asks:
        (tmp_path / "asks").touch()
    session_id = await begin(server, tmp_path, "work")
    killed = Application(server, tmp_path, "resume", session_id, fault=point)
    with killed:
        assert killed.wait() == -signal.SIGKILL
    before = effects(tmp_path)
    assert len(before) == (1 if point in AFTER_EFFECT else 0)
    with Application(server, tmp_path, "resume", session_id) as resumed:
        answer = resumed.answer()
    if point in UNKNOWN and not asks:
        assert answer.startswith("It failed: [outcome_unknown] work was started at ")
        assert effects(tmp_path) == before
    else:
        assert answer == "It is one."
        assert len(effects(tmp_path)) == 1
    await agrees(server, tmp_path, session_id)


@pytest.mark.parametrize("point", AROUND_THE_LEDGER)
async def test_killed_around_the_creation_the_ledger_is_found_again(
    server: ServerProcess, tmp_path: Path, point: str
) -> None:
    with Application(server, tmp_path, "start", "work", fault=point) as killed:
        assert killed.wait() == -signal.SIGKILL
    async with Sessions(
        base_url=server.url, api_key=server.api_key, journal=tmp_path / "journal.db"
    ) as sessions:
        journal = await sessions.journal()
        pending = await journal.run(journal.journal.ledgers.pending)
        if point == "ledger:after-create":
            # No request has left: the ledger waits alone, and can be thrown away.
            assert [record.session_id for record in pending] == [None]
            return
        key = pending[0].key if pending else None
        found = [
            session
            async for session in sessions.resource.list(limit=20)
            if LEDGER_METADATA in session.metadata and key in (None, session.metadata[LEDGER_METADATA])
        ]
    with Application(server, tmp_path, "resume", found[0].id) as resumed:
        assert resumed.answer() == "It is one."
    await agrees(server, tmp_path, found[0].id, shipped=1)


@pytest.mark.parametrize(
    ("point", "fact"),
    [
        ("journal:after-finish", "0"),
        ("pins:before-update", "0"),
        ("pins:after-update", "1"),
        ("result:before-submit", "1"),
    ],
)
@pytest.mark.parametrize("way", ["resume", "reconcile"])
async def test_killed_before_the_facts_followed_the_ledger_they_are_put_right(
    server: ServerProcess, tmp_path: Path, point: str, fact: str, way: str
) -> None:
    session_id = await begin(server, tmp_path, "work")
    with Application(server, tmp_path, "resume", session_id, fault=point) as killed:
        assert killed.wait() == -signal.SIGKILL
    async with Sessions(
        base_url=server.url, api_key=server.api_key, journal=tmp_path / "journal.db"
    ) as sessions:
        session = sessions.attach(session_id, Agent(name="shipper", model="caller"))
        record = await session.ledger()
        assert record is not None
        assert record.value == {"shipped": 1}
        left = await session.retrieve()
        # The result is not submitted yet, so no model has seen it beside an older fact.
        assert left.status == "requires_action"
        assert left.metadata[SHIPPED] == fact
        if way == "reconcile":
            found = [drift.kind for drift in await session.reconcile()]
            assert found == ["not_submitted", *(["pin_differs"] if fact == "0" else [])]
            assert (await session.retrieve()).metadata == {**left.metadata, SHIPPED: "1"}
            assert [drift.kind for drift in await session.reconcile()] == ["not_submitted"]
        with Application(server, tmp_path, "resume", session_id) as resumed:
            assert resumed.answer() == "It is one."
        assert (await session.retrieve()).metadata == {**left.metadata, SHIPPED: "1"}
    await agrees(server, tmp_path, session_id, shipped=1)


async def test_two_processes_that_resume_one_session_run_each_call_once(
    server: ServerProcess, tmp_path: Path
) -> None:
    for name in ("three", "hold"):
        (tmp_path / name).touch()
    session_id = await begin(server, tmp_path, "three")
    with (
        Application(server, tmp_path, "resume", session_id) as first,
        Application(server, tmp_path, "resume", session_id) as second,
    ):
        # Both have met all three calls before any of them ends.
        for application in (first, second):
            while sum(line.startswith("started") for line in application.printed) < 3:
                assert application.is_running, application.stderr()
                await asyncio.sleep(0.05)
        (tmp_path / "go").touch()
        answers = {first.answer(), second.answer()}
    assert len(answers) == 1
    assert len(effects(tmp_path)) == len(set(effects(tmp_path))) == 3
    await agrees(server, tmp_path, session_id, shipped=3)


async def agrees(server: ServerProcess, place: Path, session_id: str, shipped: int | None = None) -> None:
    """Items, journal and ledger say the same."""
    async with Sessions(
        base_url=server.url, api_key=server.api_key, journal=place / "journal.db"
    ) as sessions:
        session = sessions.attach(session_id, Agent(name="shipper", model="caller"))
        assert (await session.retrieve()).required_actions == []
        problems = [drift for drift in await session.reconcile() if drift.severity == "problem"]
        assert problems == []
        record = await session.ledger()
        assert record is not None
        assert record.session_id == session_id
        assert record.awaiting is None
        if shipped is not None:
            assert record.value == {"shipped": shipped}
