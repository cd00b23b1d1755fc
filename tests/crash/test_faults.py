"""A server that is killed at any point of its work loses nothing it has accepted, and does nothing twice."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from .conftest import Databases
from .drive import KILLED, Drive
from .forge import Forge
from .model import Model
from .scenario import check_scenario, run_scenario

pytestmark = pytest.mark.slow

SAMPLES = 5
"""Scenarios of a short run."""
SHARDS = 16
"""Tests among which a long run spreads all points."""
SWEEPS = ("purge_deleted", "forget_")
"""What the clock does: a scenario may pass without reaching it, or reach it again and again."""


@pytest.fixture(scope="session")
def points(
    started_forge: Forge,
    started_model: Model,
    tmp_path_factory: pytest.TempPathFactory,
    databases: Databases,
) -> list[str]:
    """Every fault point that an undisturbed scenario reaches, with the number of the time."""
    home = tmp_path_factory.mktemp("points")
    started_model.renew()
    log = home / "reached"
    drive = Drive(started_forge, started_model, home, url=databases(), PERDURE_FAULT_LOG=str(log))
    final = run_scenario(drive)
    assert drive.stop() == 0
    check_scenario(drive, final)
    reached = Counter(log.read_text("utf-8").split())
    return [
        f"{name}#{number}"
        for name in sorted(reached)
        for number in range(1, 2 if name.startswith(SWEEPS) else reached[name] + 1)
    ]


def run_with(faults: list[str], forge: Forge, model: Model, home: Path, url: str | None) -> Drive:
    """Run the scenario with a server for each fault, and check it."""
    model.renew()
    drive = Drive(forge, model, home, faults, url=url)
    try:
        final = run_scenario(drive)
        assert drive.stop() in (0, KILLED)
        check_scenario(drive, final)
    except BaseException as error:
        error.add_note(f"faults {faults}, of which these were reached: {drive.deaths}\n{forge.stderr()}")
        forge.kill()
        raise
    return drive


def test_the_scenario_reaches_every_kind_of_point(points: list[str]) -> None:
    operations = {
        *("create_session_once", "accept_once", "claim", "open_item", "checkpoint_item", "commit_step"),
        *("abandon_step", "charge_call"),
    }
    phases = ("before-commit", "after-commit", "after-announce")
    wanted = {f"{operation}:{phase}" for operation in operations for phase in phases}
    wanted |= {"model:before-call", "model:first-output", "model:after-call"}
    assert wanted <= {point.split("#")[0] for point in points}


@pytest.mark.parametrize("sample", range(SAMPLES))
def test_kills_at_random_points(
    sample: int,
    seed: str,
    points: list[str],
    forge: Forge,
    model: Model,
    tmp_path: Path,
    databases: Databases,
) -> None:
    """Any point first; the servers behind it die early, in their recovery or soon after."""
    choice = random.Random(f"{seed} {sample}")
    early = [p for p in points if int(p.split("#")[1]) <= 2 and not p.startswith(SWEEPS)]
    faults = [choice.choice(points), choice.choice(early), choice.choice(early)]
    print(f"PERDURE_SEED={seed}: {faults}")
    run_with(faults, forge, model, tmp_path, databases())


def test_text_that_a_crash_broke_off_is_not_shown_beside_its_repetition(
    forge: Forge, model: Model, tmp_path: Path, databases: Databases
) -> None:
    fault = "checkpoint_item:after-commit"
    assert run_with([fault], forge, model, tmp_path, databases()).deaths == [fault]


@pytest.mark.long
@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_kill_at_every_point(
    shard: int,
    seed: str,
    points: list[str],
    forge: Forge,
    model: Model,
    tmp_path: Path,
    databases: Databases,
) -> None:
    """Every point, some of them followed by a kill of the server that recovers."""
    choice = random.Random(f"{seed} {shard}")
    early = [point for point in points if point.endswith("#1")]
    for point in points[shard::SHARDS]:
        faults = [point, choice.choice(early)] if choice.random() < 0.5 else [point]
        drive = run_with(faults, forge, model, tmp_path / point.replace(":", "-"), databases())
        print(f"PERDURE_SEED={seed}: {faults}, reached {drive.deaths}")
        certain = point.endswith("#1") and not point.startswith(SWEEPS)
        assert drive.deaths[:1] == [point] or not certain, f"{point} was not reached"
