"""Sessions with subagents live at random, and what their rows say is never in conflict."""

from __future__ import annotations

import random
from functools import cached_property
from pathlib import Path

import httpx2
import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test
from sqlalchemy import Engine
from tests.server import ServerProcess, scripted_config

from .families import FamilyMachine
from .family import MODEL
from .family_rows import rows_engine
from .family_script import SCRIPT, settings_text

pytestmark = pytest.mark.slow

TIMEOUT = 30.0


class Alone:
    """One server on SQLite, as the machine knows it."""

    def __init__(self, home: Path) -> None:
        self.gates = home / "gates"
        self.gates.mkdir(parents=True)
        config = scripted_config(home, {MODEL: SCRIPT}, settings_text())
        self._data = home / "data"
        self._server = ServerProcess(config, self._data)

    @cached_property
    def engine(self) -> Engine:
        return rows_engine(str(self._data / "perdure.db"))

    @property
    def pids(self) -> set[int]:
        return {self._server.pid} if self._server.is_running else set()

    def client(self) -> httpx2.Client:
        headers = {"Authorization": f"Bearer {self._server.api_key}", "OpenAI-Beta": "agents=v1"}
        return httpx2.Client(base_url=self._server.base_url, headers=headers, timeout=TIMEOUT)

    def start(self) -> None:
        self._server.start()

    def kill(self) -> None:
        self._server.kill()

    def terminate(self) -> int:
        return self._server.terminate()

    def stderr(self) -> str:
        return self._server.stderr()

    def close(self) -> None:
        self._server.__exit__(None, None, None)
        self.engine.dispose()


def test_sessions_with_subagents_live_by_the_rules(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    given = request.config.getoption("--hypothesis-seed")
    chosen = random.SystemRandom().getrandbits(32) if given in (None, "random") else int(given)
    long = request.config.getoption("--long")
    print(f"reproduce with --hypothesis-seed={chosen}" + (" --long" if long else ""))
    alone = Alone(tmp_path)
    alone.start()

    @seed(chosen)
    class Machine(FamilyMachine):
        place = alone

    try:
        run_state_machine_as_test(
            Machine,
            settings=settings(
                max_examples=120 if long else 8,
                stateful_step_count=40 if long else 14,
                deadline=None,
                database=None,
                report_multiple_bugs=False,
                suppress_health_check=list(HealthCheck),
                phases=(Phase.generate, Phase.shrink) if long else (Phase.generate,),
                print_blob=False,
            ),
        )
        assert "Traceback" not in alone.stderr(), alone.stderr()
    finally:
        alone.close()
