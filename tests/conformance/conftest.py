from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from openai import AsyncOpenAI, OpenAI
from tests.server import ServerProcess, scripted_config

from .scripts import MODELS, SETTINGS
from .watch import DEADLINE


@dataclass(frozen=True)
class Gate:
    """Holds a model call of `gated` or `held` open while the user's text is `text`."""

    text: str
    path: Path

    def release(self) -> None:
        self.path.touch()


class PrivateServers:
    """Servers of one test, each with settings and data of its own; they end with the test."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self._directory = directory
        self._stack = stack
        self._count = 0

    def __call__(self, settings: str = SETTINGS, scripts: dict[str, str] | None = None) -> ServerProcess:
        self._count += 1
        home = self._directory / f"server-{self._count}"
        config = scripted_config(home, MODELS if scripts is None else scripts, settings)
        (home / "gates").mkdir()
        return self._stack.enter_context(ServerProcess(config, home / "data"))

    def client(self, server: ServerProcess, **options: Any) -> OpenAI:
        return self._stack.enter_context(make_client(server, **options))

    def gate(self, server: ServerProcess) -> Gate:
        gate = make_gate(server)
        self._stack.callback(gate.release)
        return gate


def make_client(server: ServerProcess, **options: Any) -> OpenAI:
    """The official client, with every response checked against its types."""
    settings = {
        "api_key": server.api_key,
        "timeout": DEADLINE,
        "_strict_response_validation": True,
        **options,
    }
    return OpenAI(base_url=server.base_url, **settings)


def make_gate(server: ServerProcess) -> Gate:
    name = uuid.uuid4().hex
    return Gate(f"gate {name}", server.config.parent / "gates" / name)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One server for all tests of a worker; tests share it and must not depend on its emptiness."""
    home = tmp_path_factory.mktemp("server")
    (home / "gates").mkdir()
    with ServerProcess(scripted_config(home, MODELS, SETTINGS), home / "data") as process:
        yield process


@pytest.fixture
def client(server: ServerProcess) -> Iterator[OpenAI]:
    with make_client(server) as opened:
        yield opened


@pytest.fixture
async def async_client(server: ServerProcess) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(
        base_url=server.base_url, api_key=server.api_key, timeout=DEADLINE, _strict_response_validation=True
    ) as opened:
        yield opened


@pytest.fixture
def raw(server: ServerProcess) -> Iterator[httpx2.Client]:
    """Plain HTTP below `/v1`, with the headers that the official client sends."""
    headers = {"Authorization": f"Bearer {server.api_key}", "OpenAI-Beta": "agents=v1"}
    with httpx2.Client(base_url=server.base_url, headers=headers, timeout=DEADLINE) as opened:
        yield opened


@pytest.fixture
def gate(server: ServerProcess) -> Iterator[Gate]:
    made = make_gate(server)
    yield made
    made.release()


@pytest.fixture
def private_servers(tmp_path: Path) -> Iterator[PrivateServers]:
    with ExitStack() as stack:
        yield PrivateServers(tmp_path, stack)


@pytest.fixture(scope="session")
def reading_key(server: ServerProcess) -> str:
    """A key of the same project that may read and not write."""
    return server.create_key("--scope", "read")


@pytest.fixture(scope="session")
def foreign_key(server: ServerProcess) -> str:
    """A key of another project."""
    return server.create_key("--project", "another")


@pytest.fixture
def foreign_client(server: ServerProcess, foreign_key: str) -> Iterator[OpenAI]:
    with make_client(server, api_key=foreign_key) as opened:
        yield opened
