"""Readers on any node of a fleet get one gapless stream, whatever the network between nodes does."""

from __future__ import annotations

import asyncio
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from .readers import Heard, check, follow
from .story import Story
from .timeless import run
from .world import Network, Node, Rows, Weather

WEATHERS = st.sampled_from(
    [
        Weather(),
        Weather(slowest=0.2),
        Weather(lost=0.3, doubled=0.3, slowest=0.1),
        Weather(lost=0.9, slowest=0.05),
        Weather(lost=1.0),
    ]
)


async def _play(seed: int, weather: Weather, scenes: int, *, cut: bool = False) -> None:
    random = Random(seed)
    network, rows = Network(random, weather), Rows(random)
    nodes = [Node(network, rows) for _ in range(3)]
    for node in nodes:
        await node.exchange.start()
    story = Story(random, nodes)
    heard: list[tuple[Node, list[Heard]]] = []
    readers: list[asyncio.Task[None]] = []

    async def read_sometimes() -> None:
        while True:
            node = random.choice(nodes)
            mine: list[Heard] = []
            heard.append((node, mine))
            readers.append(asyncio.create_task(follow(node, story, mine)))
            await asyncio.sleep(random.uniform(0, 0.5))

    async def cut_sometimes() -> None:
        while cut:
            await asyncio.sleep(random.uniform(0, 1))
            network.cut()
            await asyncio.sleep(random.uniform(0, 3))
            network.mend()

    others = [asyncio.create_task(read_sometimes()), asyncio.create_task(cut_sometimes())]
    await story.tell(scenes)
    for task in others:
        task.cancel()
    await asyncio.sleep(5)
    for node in nodes:
        await node.stop()
    await asyncio.gather(*readers)
    for node, mine in heard:
        for each in mine:
            check(each, story, node)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), weather=WEATHERS, scenes=st.integers(1, 12))
def test_every_reader_gets_the_whole_session_in_order(seed: int, weather: Weather, scenes: int) -> None:
    run(_play(seed, weather, scenes))


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32), weather=WEATHERS, scenes=st.integers(4, 12))
def test_a_bus_that_comes_and_goes_leaves_no_gap(seed: int, weather: Weather, scenes: int) -> None:
    run(_play(seed, weather, scenes, cut=True))
