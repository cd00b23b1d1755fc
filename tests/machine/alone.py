"""One server on SQLite, as the machine of sessions with subagents knows it."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx2
from sqlalchemy import Engine
from tests.server import ServerProcess, scripted_config

from .family import MODEL
from .family_rows import rows_engine
from .family_script import SCRIPT, settings_text

TIMEOUT = 30.0


class Alone:
    """A context manager: a `Place` of its own, in the directory `home`."""

    def __init__(self, home: Path) -> None:
        self.gates = home / "gates"
        self.gates.mkdir(parents=True)
        config = scripted_config(home, {MODEL: SCRIPT}, settings_text())
        self._data = home / "data"
        self._server = ServerProcess(config, self._data)

    @cached_property
    def engine(self) -> Engine:
        return rows_engine(str(self._data / "perdure.db"))

    @property
    def pids(self) -> set[int]:
        return {self._server.pid} if self._server.is_running else set()

    def client(self) -> httpx2.Client:
        headers = {"Authorization": f"Bearer {self._server.api_key}", "OpenAI-Beta": "agents=v1"}
        return httpx2.Client(base_url=self._server.base_url, headers=headers, timeout=TIMEOUT)

    def start(self) -> None:
        self._server.start()

    def kill(self) -> None:
        self._server.kill()

    def terminate(self) -> int:
        return self._server.terminate()

    def stderr(self) -> str:
        return self._server.stderr()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.__exit__(kind, error, trace)
        self.engine.dispose()
