"""Servers and workers on one PostgreSQL, and the strict provider that counts what they ask of it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from openai import OpenAI
from sqlalchemy import text
from tests.conformance.sessions import create
from tests.conformance.watch import DEADLINE, Watcher
from tests.providers.answers import Answer, Call, Text, answer
from tests.providers.responses import ResponsesProvider
from tests.providers.server import KEY, Recorded, text_of
from tests.server import ServerProcess, WorkerProcess

from perdure.store.engine import open_engine

MODEL = "fleet"
STORY = "".join(f"word {number}, " for number in range(300))


class Provider:
    """Runs a provider on a thread. `slow …` is told slowly the first time, and at once when it is repeated.

    `call …` calls the tool `weather` first, `fix …` does so wrongly, behind a text. Everything else is
    answered with `You said: …`.
    """

    def __init__(self) -> None:
        self.fake = ResponsesProvider(planner=self._plan)
        self._told: set[str] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self.fake.start(), self._loop).result(DEADLINE)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self.fake.stop(), self._loop).result(DEADLINE)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(DEADLINE)

    @property
    def requests(self) -> list[Recorded]:
        return list(self.fake.requests)

    def asked(self, said: str) -> list[Recorded]:
        """The requests whose last message is this one."""
        return [request for request in self.requests if _last_said(request) == said]

    def _plan(self, recorded: Recorded) -> Answer:
        said = _last_said(recorded)
        entries: list[dict[str, Any]] = recorded.body["input"]
        if said.startswith("call ") and entries[-1]["type"] != "function_call_output":
            return answer(Call("weather", {"city": "Oslo"}))
        if said.startswith("fix ") and entries[-1]["type"] != "function_call_output":
            return answer(Text(STORY[:400]), Call("weather", {"city": 5}), delay=0.05)
        if said.startswith("slow ") and said not in self._told:
            self._told.add(said)
            return answer(Text(STORY), delay=0.05)
        return answer(Text(f"You said: {said}"))


class Fleet:
    """The processes of one test; a context manager that ends them all."""

    def __init__(self, directory: Path, database: str, provider: Provider) -> None:
        self.provider = provider
        self.database = database
        self.engine = open_engine(database)
        self._directory = directory
        self._stack = ExitStack()
        self._count = 0

    def __enter__(self) -> Self:
        self._stack.callback(self.engine.dispose)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    def server(self, workers: int = 0, settings: str = "") -> ServerProcess:
        """A server, by default without a worker in its process."""
        config, home = self._home(settings)
        arguments = ("--workers", str(workers))
        server = ServerProcess(config, home / "data", database=self.database, arguments=arguments)
        return self._stack.enter_context(server)

    def worker(self, settings: str = "", environ: Mapping[str, str] | None = None) -> WorkerProcess:
        config, home = self._home(settings)
        worker = WorkerProcess(config, home / "data", database=self.database, environ=environ)
        return self._stack.enter_context(worker)

    def client(self, server: ServerProcess) -> OpenAI:
        client = OpenAI(base_url=server.base_url, api_key=server.api_key, timeout=DEADLINE)
        return self._stack.enter_context(client)

    def watch(self, client: OpenAI, session_id: str) -> Watcher:
        return self._stack.enter_context(Watcher(client, session_id))

    def ask(self, query: str, **values: Any) -> list[tuple[Any, ...]]:
        with self.engine.connect() as conn:
            return [tuple(row) for row in conn.execute(text(query), values)]

    def owner(self, session_id: str) -> tuple[int, str] | None:
        """The process of the session's owner, and the owner's id."""
        found = self.ask(
            "SELECT w.pid, w.id FROM sessions s JOIN workers w ON w.id = s.owner WHERE s.id = :id",
            id=session_id,
        )
        return None if not found else (found[0][0], found[0][1])

    def saved(self, session_id: str) -> str:
        """The text so far of the message that is being written, as it is in the rows."""
        found = self.ask(
            "SELECT data FROM items WHERE session_id = :id AND status = 'in_progress'", id=session_id
        )
        return "".join(part["text"] for (data,) in found for part in data["content"])

    def _home(self, settings: str) -> tuple[Path, Path]:
        self._count += 1
        home = self._directory / f"process-{self._count}"
        home.mkdir(parents=True)
        config = home / "perdure.toml"
        config.write_text(f"{settings}\n{self._table()}", encoding="utf-8")
        return config, home

    def _table(self) -> str:
        return (
            f'[[provider]]\nname = "fleet"\nprotocol = "responses"\nmodels = ["{MODEL}"]\n'
            f'base_url = "{self.provider.fake.base_url}"\napi_key = "{KEY}"\n'
        )


def begin(client: OpenAI, said: str, **agent: Any) -> str:
    """A session whose first turn has been accepted."""
    return str(create(client, MODEL, said, **agent).id)


def _last_said(recorded: Recorded) -> str:
    said = [
        entry for entry in recorded.body["input"] if entry["type"] == "message" and entry["role"] == "user"
    ]
    return text_of(said[-1]["content"])
