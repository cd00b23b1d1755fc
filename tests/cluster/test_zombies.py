"""A worker that stands still, is taken for dead, and wakes up: it writes, says and asks nothing late."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest
from tests.crash.drive import DEADLINE
from tests.crash.model import MODEL
from tests.crash.scenario import check_scenario, kind_of, run_scenario, until_idle
from tests.crash.witness import text_of

from .conftest import MakeCluster
from .drive import ClusterDrive
from .installation import Cluster
from .story import TOOLS

pytestmark = pytest.mark.slow

POINTS = (
    "commit_step:before-commit#2",  # holds the session's row
    "commit_step:after-commit#2",  # has still to say what it wrote
    "model:first-output#3",  # reads an answer
)
MORE_POINTS = (
    *("claim:before-commit#1", "claim:after-commit#1", "claim:after-announce#3", "model:before-call#2"),
    *("model:after-call#2", "open_item:before-commit#3", "open_item:after-commit#3"),
    *("open_item:after-announce#2", "checkpoint_item:before-commit#1", "checkpoint_item:after-commit#1"),
    *("commit_step:before-commit#1", "commit_step:after-commit#4", "commit_step:after-announce#3"),
    *("abandon_step:before-commit#1", "abandon_step:after-commit#1"),
)
GREETING = "Good morning."
MOMENTS = 1
"""Random moments of a short run."""


def check_awakening(drive: ClusterDrive) -> None:
    """Wake the first worker up when the second one has done all: nothing of it comes late."""
    zombie, successor = drive.cluster.workers
    provider = drive.model.provider
    successor.stop()
    told, rows, asked = drive.told, drive.rows(), len(provider.requests)
    zombie.resume()
    greet(drive.cluster)
    status = zombie.forge.stop()
    assert status == 0, drive.cluster.logged()
    new = provider.requests[asked:]
    assert len(new) == 1, "the woken worker asked for what was done"
    assert GREETING in str(new[0].body["input"])
    del provider.requests[asked:]
    assert drive.rows() == rows, "the woken worker wrote something"
    assert drive.told == told, "the woken worker said something"


def greet(cluster: Cluster) -> None:
    """A session that only the woken worker can run."""
    with cluster.nodes[0].client() as client:
        agent: Any = {"model": MODEL}
        created = client.beta.agents.sessions.create(
            agent=agent, environment={"type": "none"}, input=GREETING, stream=True
        )
        types = [event.type for event in created]
    assert types[-1] == "agent.session.idle", types


def wake_after(drive: ClusterDrive) -> None:
    """Stop everything when the session has been checked; the processes that run end cleanly."""
    drive.finish()
    assert "Traceback" not in drive.cluster.logged(), drive.cluster.logged()


def run_past(point: str, make_cluster: MakeCluster) -> None:
    """The first worker stops at the point, and the second one goes on with the scenario."""
    cluster = make_cluster()
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
        final = run_scenario(drive)
        succeeding.join(DEADLINE)
        assert stopped == [point], "the point was not reached"
        check_awakening(drive)
        wake_after(drive)
        check_scenario(drive, final, others=1)
    except BaseException as error:
        error.add_note(cluster.logged())
        raise


@pytest.mark.parametrize("point", POINTS)
def test_a_worker_that_stood_still_at_a_point_does_nothing_late(
    point: str, make_cluster: MakeCluster
) -> None:
    run_past(point, make_cluster)


@pytest.mark.long
@pytest.mark.parametrize("point", MORE_POINTS)
def test_a_worker_that_stood_still_anywhere_does_nothing_late(point: str, make_cluster: MakeCluster) -> None:
    run_past(point, make_cluster)


@pytest.mark.parametrize(
    "moment", [pytest.param(n, marks=pytest.mark.long if n >= MOMENTS else ()) for n in range(12)]
)
def test_a_worker_that_stood_still_in_mid_stream_does_nothing_late(
    moment: int, seed: str, make_cluster: MakeCluster
) -> None:
    choice = random.Random(f"{seed} {moment}")
    cluster = make_cluster()
    drive = ClusterDrive(cluster)
    try:
        drive.create("Tell a story.", model=MODEL, tools=TOOLS)
        events = choice.randrange(8, 60)
        drive.until(lambda _: len(drive.told) >= events)
        cluster.workers[0].pause()
        before = drive.told
        drive.deaths.append("the worker stood still")
        cluster.workers[1].start()
        drive.until(lambda seen: len([i for i in seen.items if kind_of(i) == "assistant"]) == 2)
        drive.until(lambda seen: len(text_of(seen.items[-1])) > 20)
        drive.send({"type": "agent.session.input.cancel"})
        final = until_idle(drive, 1)
        print(f"PERDURE_SEED={seed}: stopped after {len(before)} events")
        check_awakening(drive)
        wake_after(drive)
        drive.witness.check(final)
    except BaseException as error:
        error.add_note(cluster.logged())
        raise
