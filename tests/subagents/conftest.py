from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from .installation import Installation

Databases = Callable[[], str | None]
MakePlace = Callable[..., Installation]


@pytest.fixture(scope="session", params=["sqlite", "postgres"])
def databases(request: pytest.FixtureRequest) -> Iterator[Databases]:
    """Makes the URL of an empty database of each kind; None stands for a file in the data directory."""
    if request.param == "sqlite":
        yield lambda: None
        return
    server = request.getfixturevalue("postgres")
    made: list[str] = []

    def make() -> str:
        made.append(server.create_database())
        return made[-1]

    yield make
    for url in made:
        server.drop_database(url)


@pytest.fixture(scope="session")
def place(databases: Databases, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """An installation on a database of each kind, for tests that end none of its processes."""
    with Installation(tmp_path_factory.mktemp("place"), databases()) as started:
        yield started


@pytest.fixture
def make_place(databases: Databases, tmp_path: Path) -> Iterator[MakePlace]:
    """Starts an installation of the test's own."""
    with ExitStack() as stack:
        yield lambda settings="", provider="": stack.enter_context(
            Installation(tmp_path / "place", databases(), settings, provider)
        )
