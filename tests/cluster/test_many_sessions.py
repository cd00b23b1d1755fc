"""Many sessions on two nodes and two workers whose processes die at random."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest

from .conftest import MakeCluster
from .installation import Cluster
from .story import STEPS, StoryModel
from .travellers import Party

pytestmark = pytest.mark.slow

WITHIN = 240.0

Blow = Callable[[random.Random, Cluster], Awaitable[str]]


async def kill_workers(choice: random.Random, cluster: Cluster) -> str:
    """Kill one of the workers, sometimes both, and start them again."""
    both = choice.random() < 0.2
    victims = cluster.workers if both else [choice.choice(cluster.workers)]
    for victim in victims:
        await asyncio.to_thread(victim.kill)
    await asyncio.to_thread(cluster.start, *victims)
    return "+".join(victim.name for victim in victims)


async def strike(
    cluster: Cluster, model: StoryModel, choice: random.Random, blows: list[Blow], steps: int
) -> list[str]:
    """Deal the blows at random moments of the next `steps` model calls."""
    struck = []
    moments = sorted(choice.sample(range(steps * 9 // 10), len(blows)))
    for moment, blow in zip(moments, blows, strict=True):
        await model.asked(moment)
        struck.append(f"{moment}: {await blow(choice, cluster)}")
    return struck


async def run_through(
    cluster: Cluster, model: StoryModel, seed: str, *, guests: int, trips: int, blows: list[Blow]
) -> Party:
    """Let clients travel while the blows fall, and check everything."""
    party = Party.gather(cluster, guests)
    steps = guests * trips * STEPS
    striking = asyncio.create_task(strike(cluster, model, random.Random(seed), blows, steps))
    travelling = asyncio.create_task(party.travel(trips, within=WITHIN))
    try:
        await asyncio.wait({striking, travelling}, return_when=asyncio.FIRST_EXCEPTION)
        for task in (striking, travelling):
            if task.done():
                task.result()
        await travelling
        struck = await striking
    except BaseException as error:
        error.add_note(cluster.logged())
        raise
    finally:
        for task in (striking, travelling):
            task.cancel()
        await asyncio.gather(striking, travelling, return_exceptions=True)
    repeated = len(model.provider.requests) - steps
    print(f"PERDURE_SEED={seed}: {struck}; {repeated} model calls were made again")
    await party.check(trips)
    assert "Traceback" not in cluster.logged(), cluster.logged()
    return party


async def test_sessions_finish_while_workers_are_killed(
    make_cluster: MakeCluster, model: StoryModel, seed: str
) -> None:
    cluster = make_cluster()
    cluster.start()
    party = await run_through(cluster, model, seed, guests=50, trips=2, blows=[kill_workers] * 6)
    assert party.refused == []
    cluster.stop()


async def test_sessions_finish_over_nats_while_workers_are_killed(
    make_cluster: MakeCluster, model: StoryModel, seed: str, nats_url: str
) -> None:
    cluster = make_cluster(top=f'bus = "{nats_url}"')
    cluster.start()
    party = await run_through(cluster, model, seed, guests=12, trips=2, blows=[kill_workers] * 3)
    assert party.refused == []
    cluster.stop()
