"""Nodes and workers that are killed at any point of their work, and a database that is."""

from __future__ import annotations

import random
import threading
from collections import Counter
from pathlib import Path

import pytest
from tests.crash.scenario import check_scenario, run_scenario
from tests.crash.test_faults import SWEEPS
from tests.postgres import PostgresServer

from .conftest import MakeCluster
from .drive import ClusterDrive
from .held import begin_held, check_held
from .installation import Part
from .story import StoryModel

pytestmark = pytest.mark.slow

SAMPLES = 2
"""Scenarios of a short run."""
SHARDS = 16
"""Tests among which a long run spreads all points."""
NODE_OPERATIONS = {"create_session_once", "accept_once"}
WORKER_OPERATIONS = {"claim", "open_item", "checkpoint_item", "commit_step", "abandon_step"}
CALLS = {"model:before-call", "model:first-output", "model:after-call"}
PHASES = ("before-commit", "after-commit", "after-announce")
Points = tuple[list[str], list[str]]
"""Those of a node and those of a worker."""


def finish(drive: ClusterDrive) -> None:
    """Run the scenario and check it."""
    try:
        final = run_scenario(drive)
        drive.finish()
        check_scenario(drive, final)
    except BaseException as error:
        error.add_note(f"of the faults, these were reached: {drive.deaths}\n{drive.cluster.logged()}")
        raise


def read_points(log: Path) -> list[str]:
    """Every fault point that a process reached, with the number of the time."""
    reached = Counter(log.read_text("utf-8").split())
    return [
        f"{name}#{number}"
        for name in sorted(reached)
        for number in range(1, 2 if name.startswith(SWEEPS) else min(reached[name], 8) + 1)
    ]


@pytest.fixture(scope="session")
def found() -> dict[str, Points]:
    return {}


@pytest.fixture
def points(found: dict[str, Points], make_cluster: MakeCluster, tmp_path: Path) -> Points:
    """The points that an undisturbed scenario reaches."""
    if "points" not in found:
        logs = (tmp_path / "node.points", tmp_path / "worker.points")
        cluster = make_cluster(workers=1)
        finish(ClusterDrive(cluster, node_log=str(logs[0]), worker_log=str(logs[1])))
        found["points"] = (read_points(logs[0]), read_points(logs[1]))
    return found["points"]


def test_nodes_and_workers_reach_their_own_points(points: Points) -> None:
    node, worker = ({point.split("#")[0] for point in part} for part in points)
    assert {f"{name}:{phase}" for name in NODE_OPERATIONS for phase in PHASES} <= node
    assert {f"{name}:{phase}" for name in WORKER_OPERATIONS for phase in PHASES} | CALLS <= worker
    assert not {point.split(":")[0] for point in node} & WORKER_OPERATIONS
    assert not {point.split(":")[0] for point in worker} & NODE_OPERATIONS
    assert not node & CALLS


@pytest.mark.parametrize("sample", range(SAMPLES))
def test_nodes_and_workers_die_at_random_points(
    sample: int, seed: str, points: Points, make_cluster: MakeCluster
) -> None:
    choice = random.Random(f"{seed} {sample}")
    node, worker = (choice.sample(part, 2) for part in points)
    print(f"PERDURE_SEED={seed}: node {node}, worker {worker}")
    drive = ClusterDrive(make_cluster(workers=1), node, worker)
    finish(drive)
    print(f"reached: {drive.deaths}")


def run_with_outage(drive: ClusterDrive, part: Part, server: PostgresServer) -> None:
    """Run the scenario; when the fault stops the process, the database dies under it."""
    failed: list[BaseException] = []

    def strike() -> None:
        try:
            part.forge.wait_stopped()
            drive.deaths.append("the database")
            server.kill()
            part.resume()
            drive.cluster.bring_back(server)
        except BaseException as error:  # noqa: BLE001 - told by the test's own thread
            failed.append(error)

    drive.expect_outage()
    striking = threading.Thread(target=strike, daemon=True)
    striking.start()
    finish(drive)
    striking.join(0)
    assert failed == []
    assert "the database" in drive.deaths, "the point was not reached"


def outage_at(point: str, *, of_node: bool, make_cluster: MakeCluster, server: PostgresServer) -> None:
    cluster = make_cluster(server, workers=1)
    fault = [f"{point}=stop"]
    drive = ClusterDrive(cluster, fault if of_node else [], [] if of_node else fault)
    run_with_outage(drive, cluster.nodes[0] if of_node else cluster.workers[0], server)
    print(f"{point}: {drive.refused} requests were refused")


@pytest.mark.parametrize("of_node", [True, False], ids=["node", "worker"])
def test_the_database_dies_under_a_transaction(
    of_node: bool, seed: str, points: Points, make_cluster: MakeCluster, durable_postgres: PostgresServer
) -> None:
    """At a random point of a node or worker, which finds it gone and goes on when it is back."""
    choice = random.Random(f"{seed} {of_node}")
    certain = [point for point in points[not of_node] if not point.startswith((*SWEEPS, "_"))]
    point = choice.choice(certain)
    print(f"PERDURE_SEED={seed}: {point}")
    outage_at(point, of_node=of_node, make_cluster=make_cluster, server=durable_postgres)


def test_a_worker_that_misses_the_database_for_longer_than_its_lease_lets_go(
    make_cluster: MakeCluster, durable_postgres: PostgresServer, model: StoryModel
) -> None:
    """It breaks off its model call, though the model would have gone on; afterwards the step is repeated."""
    cluster = make_cluster(durable_postgres, workers=1)
    drive = begin_held(cluster)
    drive.expect_outage()
    (calling,) = model.provider.requests
    durable_postgres.kill()
    cluster.workers[0].wait_logged("silent for too long")
    drive.wait_for(calling.left.is_set, "the model call goes on")
    cluster.bring_back(durable_postgres)
    drive.until(lambda _: len(model.provider.requests) == 2)
    model.hold.release()
    check_held(drive, requests=3)


@pytest.mark.long
@pytest.mark.parametrize("shard", range(SHARDS))
def test_the_database_dies_at_every_point(
    shard: int, points: Points, make_cluster: MakeCluster, durable_postgres: PostgresServer
) -> None:
    for of_node, part in ((True, points[0]), (False, points[1])):
        for point in [p for p in part if p.endswith("#1") and not p.startswith((*SWEEPS, "_"))][
            shard::SHARDS
        ]:
            print(point)
            outage_at(point, of_node=of_node, make_cluster=make_cluster, server=durable_postgres)


@pytest.mark.long
@pytest.mark.parametrize("shard", range(SHARDS))
def test_a_kill_at_every_point(shard: int, seed: str, points: Points, make_cluster: MakeCluster) -> None:
    """Every point of a node and of a worker, some of them followed by a kill of what recovers."""
    choice = random.Random(f"{seed} {shard}")
    for of_node, part in ((True, points[0]), (False, points[1])):
        early = [point for point in part if point.endswith("#1")]
        for point in part[shard::SHARDS]:
            faults = [point, choice.choice(early)] if choice.random() < 0.5 else [point]
            print(f"PERDURE_SEED={seed}: {faults}")
            drive = ClusterDrive(
                make_cluster(workers=1), faults if of_node else [], [] if of_node else faults
            )
            finish(drive)
            certain = point.endswith("#1") and not point.startswith(SWEEPS)
            assert drive.deaths[:1] == [point] or not certain, f"{point} was not reached"
