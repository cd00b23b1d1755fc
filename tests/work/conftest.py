from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .fleet import Fleet, Provider
from .rows import Rows


@pytest.fixture
def provider() -> Iterator[Provider]:
    with Provider() as running:
        yield running
        assert running.fake.violations == []


@pytest.fixture
def fleet(tmp_path: Path, postgres_url: str, provider: Provider) -> Iterator[Fleet]:
    """Servers and workers on one database; all are ended with the test."""
    with Fleet(tmp_path, postgres_url, provider) as processes:
        yield processes


@pytest.fixture
def rows(postgres_url: str) -> Iterator[Rows]:
    """A database with perdure's tables and the queue's, and no process."""
    opened = Rows(postgres_url)
    yield opened
    opened.engine.dispose()
