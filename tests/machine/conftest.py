"""One server for all tests of the machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.server import ServerProcess, scripted_config

from .script import MODELS, SCRIPT, SETTINGS


@pytest.fixture(scope="module")
def machine_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    home: Path = tmp_path_factory.mktemp("machine")
    (home / "gates").mkdir()
    with ServerProcess(
        scripted_config(home, dict.fromkeys(MODELS, SCRIPT), SETTINGS), home / "data"
    ) as server:
        yield server
