"""A server that is killed while it makes room in a history: nothing is lost, told twice or uncounted."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .conftest import Databases
from .drive import KILLED, Drive, write_config
from .forge import Forge
from .model import Model
from .saga import SagaModel, check_saga, run_saga, saga_table

pytestmark = pytest.mark.slow

CALL_POINTS = ("compaction:before-call", "compaction:after-call")
OPERATIONS = ("reserve_beside", "charge_beside", "record_compaction")
PHASES = ("before-commit", "after-commit", "after-announce")
POINTS = [*CALL_POINTS, *(f"{operation}:{phase}" for operation in OPERATIONS for phase in PHASES)]
SAMPLES = 2
"""Sagas of a short run, of each kind."""
SHARDS = 8
"""Tests among which a long run spreads all points."""
KINDS = pytest.mark.parametrize("beside", [False, True], ids=["while the turn waits", "beside the turn"])


@pytest.fixture(scope="session")
def started_saga() -> Iterator[SagaModel]:
    with SagaModel() as model:
        yield model


@pytest.fixture
def saga(started_saga: SagaModel) -> SagaModel:
    started_saga.renew()
    return started_saga


class SagaDrive(Drive):
    """Its servers know how small the model's window is."""

    def _configure(self, home: Path, model: Model) -> Path:
        return write_config(home, model, table=saga_table)


Run = Callable[..., SagaDrive]


@pytest.fixture
def run(forge: Forge, saga: SagaModel, databases: Databases, tmp_path: Path) -> Run:
    """Runs a saga with a server for each fault, and checks it."""
    made: list[SagaDrive] = []

    def go(faults: list[str], *, beside: bool, log: Path | None = None) -> SagaDrive:
        saga.renew()
        environ = {} if log is None else {"PERDURE_FAULT_LOG": str(log)}
        drive = SagaDrive(forge, saga, tmp_path / f"saga-{len(made)}", faults, url=databases(), **environ)
        made.append(drive)
        try:
            final = run_saga(drive, beside=beside)
            assert drive.stop() in (0, KILLED)
            check_saga(drive, final)
        except BaseException as error:
            error.add_note(f"faults {faults}, of which these were reached: {drive.deaths}\n{forge.stderr()}")
            forge.kill()
            raise
        return drive

    return go


@KINDS
def test_a_long_session_reaches_every_point_of_a_compaction(run: Run, tmp_path: Path, beside: bool) -> None:
    log = tmp_path / "reached"
    run([], beside=beside, log=log)
    reached = Counter(log.read_text("utf-8").split())
    assert {point: reached[point] for point in POINTS if reached[point] < 2} == {}


@KINDS
@pytest.mark.parametrize("sample", range(SAMPLES))
def test_kills_inside_of_compactions(sample: int, seed: str, run: Run, beside: bool) -> None:
    choice = random.Random(f"{seed} {sample} {beside}")
    first = f"{choice.choice(POINTS)}#{choice.randint(1, 2)}"
    faults = [first, choice.choice(POINTS)]
    print(f"PERDURE_SEED={seed}: {faults}")
    assert first in run(faults, beside=beside).deaths


@pytest.mark.long
@KINDS
@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_kill_at_every_point_of_a_compaction(shard: int, seed: str, run: Run, beside: bool) -> None:
    """Each of them, the first and the second time, often followed by a kill of the server that goes on."""
    choice = random.Random(f"{seed} {shard} {beside}")
    points = [f"{point}#{number}" for point in POINTS for number in (1, 2)]
    for point in points[shard::SHARDS]:
        faults = [point, choice.choice(points)] if choice.random() < 0.7 else [point]
        drive = run(faults, beside=beside)
        print(f"PERDURE_SEED={seed}: {faults}, reached {drive.deaths}")
        assert drive.deaths[:1] == [point], f"{point} was not reached"
