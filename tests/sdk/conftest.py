from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.server import ServerProcess, scripted_config

from perdure import Sessions

from .scripts import MODELS, SETTINGS


@dataclass(frozen=True)
class Gate:
    """Holds a model call open while the user's text is `text`."""

    text: str
    path: Path

    def release(self) -> None:
        self.path.touch()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One server for all tests of a worker."""
    home = tmp_path_factory.mktemp("server")
    (home / "gates").mkdir()
    with ServerProcess(scripted_config(home, MODELS, SETTINGS), home / "data") as process:
        yield process


@pytest.fixture
def gate(server: ServerProcess) -> Iterator[Gate]:
    name = uuid.uuid4().hex
    made = Gate(f"gate {name}", server.config.parent / "gates" / name)
    yield made
    made.release()


@pytest.fixture
def journal_path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


@pytest.fixture
async def sessions(server: ServerProcess, journal_path: Path) -> AsyncIterator[Sessions]:
    """Sessions on a server process."""
    async with Sessions(
        base_url=server.url, api_key=server.api_key, journal=journal_path, patience=30.0
    ) as opened:
        yield opened


@pytest.fixture(params=["server", "embedded"])
async def anywhere(
    request: pytest.FixtureRequest, server: ServerProcess, tmp_path: Path
) -> AsyncIterator[Sessions]:
    """Sessions on a server process, and on an engine in this one."""
    if request.param == "server":
        place = Sessions(base_url=server.url, api_key=server.api_key, journal=tmp_path / "journal.db")
    else:
        config = scripted_config(tmp_path / "embedded", MODELS, SETTINGS)
        place = Sessions(embedded=True, config=config, data_dir=tmp_path / "data")
    async with place as opened:
        yield opened
