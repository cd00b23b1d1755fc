"""Workers that die or stand still while they make room in a history, and input that arrives meanwhile."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.crash.drive import DEADLINE
from tests.crash.saga import LOOKUPS, SHORT, SagaModel, check_saga, message, result, run_saga
from tests.crash.scenario import until_idle
from tests.crash.test_compaction_faults import KINDS, POINTS

from .conftest import MakeCluster
from .drive import ClusterDrive
from .installation import Cluster
from .saga import await_call, begin_beside, calls_of, make_saga, take_turn, under_way
from .test_zombies import check_awakening, wake_after

pytestmark = pytest.mark.slow

STILL = (
    pytest.param("compaction:before-call#1", False, id="before a summary"),
    pytest.param("compaction:before-call#1", True, id="before a summary beside the turn"),
)
SAMPLES = 1
"""Sagas of a short run, of each kind."""
SHARDS = 8
"""Tests among which a long run spreads all points."""
LONG_LEASE = 60.0

Make = Callable[..., Cluster]


@pytest.fixture(scope="session")
def started_saga() -> Iterator[SagaModel]:
    with SagaModel() as model:
        yield model


@pytest.fixture
def saga(started_saga: SagaModel) -> Iterator[SagaModel]:
    yield started_saga
    started_saga.let_go()


@pytest.fixture
def make(make_cluster: MakeCluster, saga: SagaModel, tmp_path: Path) -> Make:
    """Makes a cluster with two workers whose model has a small window."""

    def go(*, lease: float | None = None) -> Cluster:
        return make_saga(make_cluster, saga, tmp_path / "saga", lease=lease)

    return go


def kill_at(faults: list[str], cluster: Cluster, *, beside: bool, both: bool) -> ClusterDrive:
    """Run the saga with these faults of the first worker; `both`: beside a second worker."""
    drive = ClusterDrive(cluster, [], faults)
    try:
        if both:
            cluster.workers[1].start()
        final = run_saga(drive, beside=beside)
        drive.finish()
        check_saga(drive, final)
    except BaseException as error:
        error.add_note(f"of the faults, these were reached: {drive.deaths}\n{cluster.logged()}")
        raise
    return drive


@KINDS
@pytest.mark.parametrize("sample", range(SAMPLES))
def test_workers_die_inside_of_compactions(sample: int, seed: str, make: Make, beside: bool) -> None:
    choice = random.Random(f"{seed} {sample} {beside}")
    faults = [f"{choice.choice(POINTS)}#{choice.randint(1, 2)}", choice.choice(POINTS)]
    print(f"PERDURE_SEED={seed}: {faults}")
    assert kill_at(faults, make(), beside=beside, both=False).deaths[:1] == faults[:1]


def test_a_long_session_moves_between_two_workers(make: Make, seed: str) -> None:
    """Whoever is first takes each turn; the summaries of the other one are of no use, and counted."""
    choice = random.Random(seed)
    kill_at([choice.choice(POINTS), choice.choice(POINTS)], make(), beside=True, both=True)


@pytest.mark.long
@KINDS
@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_worker_dies_at_every_point_of_a_compaction(
    shard: int, seed: str, make: Make, beside: bool
) -> None:
    choice = random.Random(f"{seed} {shard} {beside}")
    points = [f"{point}#{number}" for point in POINTS for number in (1, 2)]
    for point in points[shard::SHARDS]:
        faults = [point, choice.choice(points)] if choice.random() < 0.7 else [point]
        drive = kill_at(faults, make(), beside=beside, both=False)
        print(f"PERDURE_SEED={seed}: {faults}, reached {drive.deaths}")
        assert drive.deaths[:1] == [point], f"{point} was not reached"
        kill_at(faults, make(), beside=beside, both=True)


def stand_still_at(point: str, cluster: Cluster, *, beside: bool) -> None:
    """The first worker stops at the point, the second one goes on, and the first one wakes up."""
    drive = ClusterDrive(cluster, [], [f"{point}=stop"])
    stopped: list[str] = []

    def succeed() -> None:
        cluster.workers[0].forge.wait_stopped()
        stopped.append(point)
        drive.deaths.append(point)
        cluster.workers[1].start()

    succeeding = threading.Thread(target=succeed, daemon=True)
    succeeding.start()
    try:
        final = run_saga(drive, beside=beside)
        succeeding.join(DEADLINE)
        assert stopped == [point], "the point was not reached"
        check_awakening(drive)
        wake_after(drive)
        check_saga(drive, final)
    except BaseException as error:
        error.add_note(cluster.logged())
        raise


@pytest.mark.parametrize(("point", "beside"), STILL)
def test_a_worker_that_stood_still_in_a_compaction_does_nothing_late(
    point: str, beside: bool, make: Make
) -> None:
    stand_still_at(point, make(), beside=beside)


@pytest.mark.long
@KINDS
@pytest.mark.parametrize("point", POINTS)
def test_a_worker_that_stood_still_anywhere_in_a_compaction_does_nothing_late(
    point: str, make: Make, beside: bool
) -> None:
    for number in (1, 2):
        stand_still_at(f"{point}#{number}", make(), beside=beside)


def test_what_arrives_while_a_summary_is_written_is_not_lost_with_its_worker(
    make: Make, saga: SagaModel
) -> None:
    """A result and a message come in, the worker dies, and another one goes on with all of it."""
    cluster = make()
    drive = ClusterDrive(cluster)
    number = begin_beside(drive, saga) + 1
    while number not in LOOKUPS:
        take_turn(drive, number, SHORT)
        number += 1
    drive.say(message(number, SHORT))
    action = await_call(drive)
    assert under_way(drive) == 1
    drive.tended = False
    drive.deaths.append("the worker, with a summary under way")
    cluster.workers[0].kill()
    drive.answer(action, result(number, SHORT))
    drive.say(message(number + 1, SHORT))
    saga.steered.add(number)
    saga.let_go()
    cluster.workers[1].start()
    until_idle(drive, number)
    assert calls_of(drive, "compaction")["interrupted"] == 1
    for more in range(number + 2, number + 6):
        final = take_turn(drive, more, steered=1)
    drive.finish()
    check_saga(drive, final, turns=number + 5)


def test_results_and_messages_that_arrive_during_a_summary_follow_it(make: Make, saga: SagaModel) -> None:
    """Two workers are there for the turns that come while one of them waits for the summary."""
    cluster = make()
    drive = ClusterDrive(cluster)
    number = begin_beside(drive, saga) + 1
    cluster.workers[1].start()
    while number not in LOOKUPS:
        take_turn(drive, number, SHORT)
        number += 1
    drive.say(message(number, SHORT))
    action = await_call(drive)
    drive.say(message(number + 1, SHORT))
    saga.steered.add(number)
    drive.answer(action, result(number, SHORT))
    until_idle(drive, number)
    saga.let_go()
    for more in range(number + 2, number + 6):
        final = take_turn(drive, more, steered=1)
    drive.finish()
    check_saga(drive, final, turns=number + 5)


def test_a_summary_of_a_worker_that_the_session_has_left_is_counted_once(make: Make, saga: SagaModel) -> None:
    """Its session is taken over in good order; the summary is listed as broken off until it ends."""
    cluster = make(lease=LONG_LEASE)
    first, second = cluster.workers
    drive = ClusterDrive(cluster)
    number = begin_beside(drive, saga) + 1
    second.start()
    first.pause()
    take_turn(drive, number, SHORT)
    drive.wait_for(lambda: calls_of(drive, "compaction")["interrupted"] == 1, "the summary is not counted")
    first.resume()
    saga.let_go()
    drive.wait_for(lambda: not calls_of(drive, "compaction")["interrupted"], "the summary is not amended")
    for more in range(number + 1, number + 5):
        final = take_turn(drive, more)
    drive.wait_for(lambda: under_way(drive) == 0, "a summary has not ended")
    final = drive.look()
    drive.finish()
    check_saga(drive, final, turns=number + 4)
