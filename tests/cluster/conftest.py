from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.crash.database import Storage
from tests.crash.drive import write_config
from tests.crash.forge import Forge, Foundry
from tests.postgres import PostgresServer

from .installation import DRAIN, Cluster, settings_text
from .story import StoryModel

SEED = os.environ.get("PERDURE_SEED") or str(random.SystemRandom().randrange(1 << 30))
"""The seed of every choice here; `PERDURE_SEED` repeats a run."""

MakeCluster = Callable[..., Cluster]


def pytest_report_header() -> str:
    return f"cluster tests: PERDURE_SEED={SEED}"


@pytest.fixture(scope="session")
def seed() -> str:
    return SEED


@pytest.fixture(autouse=True)
def printed_seed(seed: str) -> None:
    """Captured, and shown with a test that fails."""
    print(f"PERDURE_SEED={seed}")


@pytest.fixture(scope="session")
def started_foundry() -> Iterator[tuple[Foundry, list[Forge]]]:
    with Foundry() as foundry:
        yield foundry, []


@pytest.fixture(scope="session")
def started_model() -> Iterator[StoryModel]:
    with StoryModel() as model:
        yield model


@pytest.fixture
def model(started_model: StoryModel) -> StoryModel:
    """A strict provider that outlives the processes of the test."""
    started_model.renew()
    return started_model


@pytest.fixture(scope="session")
def durable_postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server that may be killed."""
    with PostgresServer(durable=True) as server:
        yield server


@pytest.fixture
def make_cluster(
    started_foundry: tuple[Foundry, list[Forge]],
    model: StoryModel,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> Iterator[MakeCluster]:
    """Makes a cluster; its processes end with the test, or when the next one is made."""
    foundry, forges = started_foundry
    dropped: list[Callable[[], None]] = []

    def make(
        server: PostgresServer | None = None,
        *,
        nodes: int = 2,
        workers: int = 2,
        top: str = "",
        drain: float = DRAIN,
        config: Path | None = None,
    ) -> Cluster:
        """`top` is put before the tables of the settings; `config` are other settings altogether."""
        while len(forges) < nodes + workers:
            forges.append(foundry.forge())
        for forge in forges:
            forge.renew()
        model.renew()
        server = server or request.getfixturevalue("postgres")
        url = server.create_database()
        dropped.append(lambda: server.drop_database(url))
        home = tmp_path / f"cluster-{len(dropped)}"
        config = config or write_config(home, model, settings_text(top, drain))
        return Cluster(forges, config, Storage(home / "data", url), model, nodes=nodes, workers=workers)

    yield make
    for forge in forges:
        forge.kill()
    for drop in dropped:
        drop()
