"""Journals in a file and in PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from perdure.sdk.calls import CallPair
from perdure.sdk.journal import Journal


@pytest.fixture(params=["sqlite", "postgres"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a new journal goes."""
    if request.param == "sqlite":
        return str(tmp_path / "made" / "journal.db")
    url: str = request.getfixturevalue("postgres_url")
    return url


@pytest.fixture
def open_journal(location: str) -> Iterator[Callable[..., Journal]]:
    """Opens the journal once more, as another owner; all are closed after the test."""
    opened: list[Journal] = []

    def open_another(**options: object) -> Journal:
        journal = Journal.open(location, **options)  # type: ignore[arg-type]
        opened.append(journal)
        return journal

    yield open_another
    for journal in opened:
        journal.close()


@pytest.fixture
def journal(open_journal: Callable[..., Journal]) -> Journal:
    """An open journal."""
    return open_journal()


@pytest.fixture
def pair() -> CallPair:
    """A call."""
    return CallPair("sess_1", "turn_1", "call_1")
