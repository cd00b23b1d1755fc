"""Processes that are told to stop while sessions run: no turn is lost, no finished step made again."""

from __future__ import annotations

import asyncio
import random
import signal

import pytest

from .conftest import MakeCluster
from .held import begin_held, check_held
from .installation import Cluster
from .story import StoryModel
from .test_many_sessions import run_through

pytestmark = pytest.mark.slow


async def restart_all(choice: random.Random, cluster: Cluster) -> str:
    """Stop and start each process once, in a random order."""
    for part in choice.sample(cluster.parts, len(cluster.parts)):
        await asyncio.to_thread(part.stop)
        await asyncio.to_thread(part.start)
    return "all restarted"


async def test_a_rolling_restart_repeats_nothing(
    make_cluster: MakeCluster, model: StoryModel, seed: str
) -> None:
    cluster = make_cluster()
    cluster.start()
    party = await run_through(
        cluster, model, seed, guests=20, trips=2, blows=[restart_all], share=0.2, repeated=False
    )
    assert set(party.refused) <= {503}
    cluster.stop()


def test_a_step_that_ends_while_its_worker_stops_is_not_repeated(
    make_cluster: MakeCluster, model: StoryModel
) -> None:
    """The next step is another worker's, and it takes it at once."""
    cluster = make_cluster()
    drive = begin_held(cluster)
    drive.tended = False
    cluster.workers[1].start()
    cluster.workers[0].forge.send_signal(signal.SIGTERM)
    cluster.workers[0].wait_logged("draining")
    assert cluster.workers[0].forge.poll() is None
    model.hold.release()
    assert cluster.workers[0].forge.wait() == 0
    check_held(drive, requests=2)


def test_a_step_that_outlasts_the_drain_is_repeated_by_another_worker(
    make_cluster: MakeCluster, model: StoryModel
) -> None:
    cluster = make_cluster(drain=0.5)
    drive = begin_held(cluster)
    drive.tended = False
    cluster.workers[1].start()
    cluster.workers[0].stop()
    drive.until(lambda _: len(model.provider.requests) == 2)
    model.hold.release()
    check_held(drive, requests=3)
