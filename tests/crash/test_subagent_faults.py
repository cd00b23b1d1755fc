"""A server that is killed while agents create, await and end others: the story ends as it would have."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .conftest import Databases
from .drive import KILLED, Drive
from .errands import ErrandModel, Errands, check_errands
from .forge import Forge
from .test_faults import SWEEPS

pytestmark = pytest.mark.slow

SAMPLES = 1
"""Scenarios of a short run, on each database."""
SHARDS = 16
"""Tests among which a long run spreads all points."""
OPERATIONS = ("look", "commit_step", "abandon_step", "claim", "open_item", "checkpoint_item", "accept_once")
PHASES = ("before-commit", "after-commit", "after-announce")

Run = Callable[..., Drive]


@pytest.fixture(scope="session")
def started_errands() -> Iterator[ErrandModel]:
    with ErrandModel() as model:
        yield model


@pytest.fixture
def run(forge: Forge, started_errands: ErrandModel, databases: Databases, tmp_path: Path) -> Run:
    """Runs the errands with a server for each fault, and checks them."""
    made: list[Drive] = []

    def go(faults: list[str], log: Path | None = None) -> Drive:
        started_errands.renew()
        environ = {} if log is None else {"PERDURE_FAULT_LOG": str(log)}
        home = tmp_path / f"errands-{len(made)}"
        drive = Drive(forge, started_errands, home, faults, url=databases(), **environ)
        made.append(drive)
        errands = Errands(drive)
        try:
            final = errands.run()
            assert drive.stop() in (0, KILLED)
            check_errands(errands.look(), drive, final)
        except BaseException as error:
            error.add_note(f"faults {faults}, of which these were reached: {drive.deaths}\n{forge.stderr()}")
            forge.kill()
            raise
        finally:
            errands.close()
        return drive

    return go


@pytest.fixture(scope="session")
def known() -> dict[str, list[str]]:
    return {}


@pytest.fixture
def points(
    known: dict[str, list[str]], run: Run, tmp_path: Path, request: pytest.FixtureRequest
) -> list[str]:
    """Every fault point that undisturbed errands reach, with the number of the time."""
    database = str(request.node.callspec.params["databases"])
    if database not in known:
        log = tmp_path / "reached"
        run([], log)
        reached = Counter(log.read_text("utf-8").split())
        known[database] = [
            f"{name}#{number}"
            for name in sorted(reached)
            for number in range(1, 2 if name.startswith(SWEEPS) else reached[name] + 1)
        ]
    return known[database]


def test_kills_while_subagents_are_at_work(seed: str, points: list[str], run: Run) -> None:
    """A sample of the points; the servers behind it die early, in their recovery or soon after."""
    wanted = {f"{operation}:{phase}" for operation in OPERATIONS for phase in PHASES}
    assert wanted <= {point.split("#")[0] for point in points}
    choice = random.Random(seed)
    own = [point for point in points if point.startswith(OPERATIONS)]
    early = [point for point in own if int(point.split("#")[1]) <= 4]
    for _ in range(SAMPLES):
        faults = [choice.choice(own), choice.choice(early)]
        print(f"PERDURE_SEED={seed}: {faults}")
        run(faults)


@pytest.mark.long
@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_kill_at_every_point_while_subagents_are_at_work(
    shard: int, seed: str, points: list[str], run: Run
) -> None:
    choice = random.Random(f"{seed} {shard}")
    early = [point for point in points if int(point.split("#")[1]) <= 4 and not point.startswith(SWEEPS)]
    for point in points[shard::SHARDS]:
        faults = [point, choice.choice(early)] if choice.random() < 0.5 else [point]
        drive = run(faults)
        print(f"PERDURE_SEED={seed}: {faults}, reached {drive.deaths}")
        certain = point.endswith("#1") and not point.startswith(SWEEPS)
        assert drive.deaths[:1] == [point] or not certain, f"{point} was not reached"
