"""What a provider tells of an answer that never ends is kept: its input, and what a cut answer used."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.models.wires import WIRES, Wire, collect, finish_of, told
from tests.providers.answers import Failure, Text, Usage, answer
from tests.providers.server import FakeProvider

from perdure.models.messages import Model

USED = Usage(input=50, output=10, cached=20, reasoning=3)


@pytest.fixture(params=WIRES)
def wire(request: pytest.FixtureRequest) -> Wire:
    return WIRES[request.param]


@pytest.fixture
async def provider(wire: Wire) -> AsyncIterator[FakeProvider]:
    async with wire.provider() as provider:
        yield provider


@pytest.fixture
async def model(wire: Wire, provider: FakeProvider) -> AsyncIterator[Model]:
    model = wire.model(provider.settings())
    yield model
    await model.close()


async def test_a_truncated_answer_tells_what_it_used(provider: FakeProvider, model: Model) -> None:
    provider.queue(answer(Text("Too long"), usage=USED, end="max_output_tokens"))
    usage = (await told(model))[-1].usage
    assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (50, 10, 60)
    assert usage.input_tokens_details.cached_tokens == 20


async def test_an_answer_that_breaks_off_tells_no_more_than_it_knows(
    provider: FakeProvider, model: Model
) -> None:
    provider.queue(answer(Text("Half"), usage=USED, failure=Failure("server_error")))
    for each in await told(model):
        assert each.usage.input_tokens == 50
        assert each.usage.output_tokens <= 10


async def test_the_end_tells_the_same_again(provider: FakeProvider, model: Model) -> None:
    provider.queue(answer(Text("Hello."), usage=USED))
    usage = finish_of(await collect(model)).usage
    assert usage is not None
    assert (usage.input_tokens, usage.output_tokens) == (50, 10)
