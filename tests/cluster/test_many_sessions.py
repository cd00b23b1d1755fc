"""Many sessions on two nodes and two workers whose processes die at random."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

import pytest
from tests.postgres import PostgresServer

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


async def kill_node(choice: random.Random, cluster: Cluster) -> str:
    """Kill one of the nodes and start it again."""
    victim = choice.choice(cluster.nodes)
    await asyncio.to_thread(victim.kill)
    await asyncio.to_thread(victim.start)
    return victim.name


def killer_of(server: PostgresServer) -> Blow:
    """Kills the database, and starts it again when every node has said that it is not ready."""

    async def kill_database(choice: random.Random, cluster: Cluster) -> str:
        await asyncio.to_thread(server.kill)
        await asyncio.to_thread(cluster.bring_back, server)
        return "the database"

    return kill_database


async def strike(
    cluster: Cluster, model: StoryModel, choice: random.Random, blows: list[Blow], steps: int
) -> list[str]:
    """Deal the blows at random moments of the first `steps` model calls."""
    struck = []
    moments = sorted(choice.sample(range(steps), len(blows)))
    for moment, blow in zip(moments, blows, strict=True):
        await model.asked(moment)
        struck.append(f"{moment}: {await blow(choice, cluster)}")
    return struck


async def run_through(
    cluster: Cluster,
    model: StoryModel,
    seed: str,
    *,
    guests: int,
    trips: int,
    blows: list[Blow],
    share: float = 0.9,
    repeated: bool = True,
) -> Party:
    """Let clients travel while the blows fall, and check everything.

    share: the part of all model calls during which blows may fall.
    repeated: whether the blows may break model calls off.
    """
    party = Party.gather(cluster, guests)
    steps = guests * trips * STEPS
    striking = asyncio.create_task(strike(cluster, model, random.Random(seed), blows, int(steps * share)))
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
    again = len(model.provider.requests) - steps
    print(f"PERDURE_SEED={seed}: {struck}; {again} model calls were made again")
    await party.check(trips, repeated=repeated)
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
    party = await run_through(cluster, model, seed, guests=10, trips=2, blows=[kill_workers] * 3)
    assert party.refused == []
    cluster.stop()


async def test_sessions_finish_though_the_database_is_killed(
    make_cluster: MakeCluster, model: StoryModel, seed: str, durable_postgres: PostgresServer
) -> None:
    """Clients are told 503 meanwhile; every process comes back by itself."""

    kill_database = killer_of(durable_postgres)
    cluster = make_cluster(durable_postgres)
    cluster.start()
    before = [part.forge.pid for part in cluster.parts]
    party = await run_through(cluster, model, seed, guests=20, trips=2, blows=[kill_database] * 2)
    # Whether a guest asks anything in so short a time is luck; every node was asked each time.
    assert set(party.refused) <= {503}
    assert [part.forge.pid for part in cluster.parts] == before
    assert all(part.forge.poll() is None for part in cluster.parts)
    cluster.stop()


@pytest.mark.long
@pytest.mark.parametrize("part", range(3))
@pytest.mark.parametrize("bus", ["notify", "nats"])
async def test_sessions_finish_whatever_dies(
    bus: str,
    part: int,
    make_cluster: MakeCluster,
    model: StoryModel,
    seed: str,
    durable_postgres: PostgresServer,
    request: pytest.FixtureRequest,
) -> None:
    """Workers and nodes die at random, and once the database does."""

    kill_database = killer_of(durable_postgres)
    top = f'bus = "{request.getfixturevalue("nats_url")}"' if bus == "nats" else ""
    cluster = make_cluster(durable_postgres, top=top)
    cluster.start()
    blows = [kill_workers] * 20 + [kill_node] * 5 + [kill_database]
    seed = f"{seed} {part}"
    random.Random(seed).shuffle(blows)
    party = await run_through(cluster, model, seed, guests=50, trips=6, blows=blows)
    assert set(party.refused) <= {503}
    cluster.stop()
