"""Sessions with subagents on two workers, of which one dies or stands still at any moment."""

from __future__ import annotations

import random
from functools import cached_property
from pathlib import Path

import httpx2
import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule, run_state_machine_as_test
from sqlalchemy import Engine
from tests.machine.alone import TIMEOUT
from tests.machine.families import FamilyMachine, patience, slots
from tests.machine.family import MODEL
from tests.machine.family_rows import rows_engine
from tests.machine.family_script import SCRIPT, settings_text
from tests.server import scripted_config

from .conftest import MakeCluster
from .installation import Cluster, Part

pytestmark = pytest.mark.slow

LEASE = 1.5
STRIKES = 3
"""Workers that die or stand still in one example."""


class Crowd:
    """A cluster, as the machine knows the place where its sessions run. `still` is a stopped worker."""

    def __init__(self, cluster: Cluster, gates: Path) -> None:
        self.cluster = cluster
        self.gates = gates
        self.still: Part | None = None

    @cached_property
    def engine(self) -> Engine:
        assert self.cluster.storage.url is not None
        return rows_engine(self.cluster.storage.url)

    @property
    def pids(self) -> set[int]:
        working = [part for part in self.cluster.workers if part is not self.still]
        return {part.forge.pid for part in working if part.forge.is_running}

    def client(self) -> httpx2.Client:
        (node,) = self.cluster.nodes
        headers = {"Authorization": f"Bearer {node.api_key}", "OpenAI-Beta": "agents=v1"}
        return httpx2.Client(base_url=node.base_url, headers=headers, timeout=TIMEOUT)

    def start(self) -> None:
        self.cluster.start()

    def kill(self) -> None:
        self.cluster.kill()
        self.still = None

    def terminate(self) -> int:
        """End every process; the exit status of all of them."""
        self.wake()
        self.cluster.stop()
        return 0

    def stderr(self) -> str:
        return self.cluster.logged()

    def pause(self, worker: Part) -> None:
        worker.pause()
        self.still = worker

    def wake(self) -> None:
        """Let the worker go on that stands still."""
        if self.still is not None:
            self.still.resume()
            self.still = None

    def close(self) -> None:
        self.engine.dispose()


class CrowdMachine(FamilyMachine):
    """Its workers die and stand still as well."""

    place: Crowd
    strikes = 0

    @property
    def workers(self) -> list[Part]:
        return self.place.cluster.workers

    def owner(self, slot: int) -> Part:
        """The worker that runs a session, or any."""
        rows = self.family(slot).look()
        pids = {worker["pid"] for worker in rows.workers if worker["id"] == rows.session["owner"]}
        return next((part for part in self.workers if part.forge.pid in pids), self.workers[0])

    @precondition(lambda self: self.strikes < STRIKES and self.place.still is None)
    @rule(slot=slots, still=st.booleans(), settle=patience)
    def strike(self, slot: int, still: bool, settle: bool) -> None:
        self.broken = True
        self.strikes += 1
        worker = self.owner(slot)
        for family in self.living:
            family.log.append(f"{worker.name} {'stands still' if still else 'is killed'}")
        if still:
            self.place.pause(worker)
        else:
            worker.kill()
            self.done(False, *self.living)
            self.broken = True
            worker.start()
        self.done(settle, *self.living)

    @precondition(lambda self: self.place.still is not None)
    @rule(settle=patience)
    def wake(self, settle: bool) -> None:
        self.broken = True
        self.place.wake()
        for family in self.living:
            family.log.append("worker wakes up")
        self.done(settle, *self.living)

    def teardown(self) -> None:
        self.place.wake()
        super().teardown()


def test_sessions_with_subagents_live_by_the_rules_while_workers_die(
    make_cluster: MakeCluster, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    given = request.config.getoption("--hypothesis-seed")
    chosen = random.SystemRandom().getrandbits(32) if given in (None, "random") else int(given)
    long = request.config.getoption("--long")
    print(f"reproduce with --hypothesis-seed={chosen}" + (" --long" if long else ""))
    (tmp_path / "gates").mkdir()
    config = scripted_config(tmp_path, {MODEL: SCRIPT}, settings_text(f"lease = {LEASE}"))
    crowd = Crowd(make_cluster(nodes=1, workers=2, config=config), tmp_path / "gates")
    crowd.start()

    @seed(chosen)
    class Machine(CrowdMachine):
        place = crowd

    try:
        run_state_machine_as_test(
            Machine,
            settings=settings(
                max_examples=60 if long else 2,
                stateful_step_count=30 if long else 12,
                deadline=None,
                database=None,
                report_multiple_bugs=False,
                suppress_health_check=list(HealthCheck),
                phases=(Phase.generate,),
                print_blob=False,
            ),
        )
        assert "Traceback" not in crowd.stderr(), crowd.stderr()
        crowd.cluster.stop()
    finally:
        crowd.close()
