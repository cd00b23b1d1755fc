"""What every test may use: `--long`, the tests that need Node.js, real PostgreSQL and NATS servers."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import nats as nats_server
from tests import postgres_programs
from tests.nats import NatsServer
from tests.postgres import PostgresServer

NODE_CLIENT = Path(__file__).parent / "node" / "node_modules" / "openai"
"""The official Node.js client, once scripts/test has fetched it."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run the exhaustive variants too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--long"):
        long = [item for item in items if item.get_closest_marker("long") is not None]
        if long:
            config.hook.pytest_deselected(items=long)
            items[:] = [item for item in items if item not in long]
    if shutil.which("node") is None or not NODE_CLIENT.exists():
        absent = pytest.mark.skip(reason="needs Node.js and its official client, which scripts/test fetches")
        for item in items:
            if item.get_closest_marker("node") is not None:
                item.add_marker(absent)


def pytest_report_header() -> list[str]:
    reasons = (postgres_programs.absence(), nats_server.absence())
    return [f"SKIPPING TESTS: {reason}" for reason in reasons if reason is not None]


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server, one for each worker of the run; for speed, it is not durable."""
    if reason := postgres_programs.absence():
        pytest.skip(reason)
    with PostgresServer() as server:
        yield server


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> Iterator[str]:
    """The URL of an empty PostgreSQL database, which is deleted after the test."""
    url = postgres.create_database()
    yield url
    postgres.drop_database(url)


@pytest.fixture(scope="session")
def nats_url() -> Iterator[str]:
    """The URL of a NATS server, one for each worker of the run; its subjects are shared by their tests."""
    if reason := nats_server.absence():
        pytest.skip(reason)
    with NatsServer() as server:
        yield server.url
