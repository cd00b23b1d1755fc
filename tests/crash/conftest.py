from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator

import pytest
from tests.postgres import PostgresServer

from .forge import Forge, Foundry
from .model import Model

SEED = os.environ.get("PERDURE_SEED") or str(random.SystemRandom().randrange(1 << 30))
"""The seed of every choice here; `PERDURE_SEED` repeats a run."""


def pytest_report_header() -> str:
    return f"crash tests: PERDURE_SEED={SEED}"


@pytest.fixture(scope="session")
def seed() -> str:
    return SEED


Databases = Callable[[], str | None]


@pytest.fixture(scope="session", params=["sqlite", "postgres"])
def databases(request: pytest.FixtureRequest) -> Iterator[Databases]:
    """Makes the URL of an empty database of each kind; None stands for a file in the data directory."""
    if request.param == "sqlite":
        yield lambda: None
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    made: list[str] = []

    def make() -> str:
        made.append(server.create_database())
        return made[-1]

    yield make
    for url in made:
        server.drop_database(url)


@pytest.fixture(scope="session")
def started_forge() -> Iterator[Forge]:
    with Foundry() as foundry:
        yield foundry.forge()


@pytest.fixture
def forge(started_forge: Forge) -> Iterator[Forge]:
    """Starts the servers of a test, and ends the last one."""
    yield started_forge
    started_forge.kill()


@pytest.fixture(scope="session")
def started_model() -> Iterator[Model]:
    with Model() as model:
        yield model


@pytest.fixture
def model(started_model: Model) -> Model:
    """A strict provider that outlives the servers of the test."""
    started_model.renew()
    return started_model
