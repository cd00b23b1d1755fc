"""A server inside the test's process whose spans are kept, and what is asked of them."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from httpx2 import AsyncClient
from openai import AsyncOpenAI
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.conformance.inputs import NONE
from tests.conformance.watch import DEADLINE

from perdure.api import traces
from perdure.api.app import create_app
from perdure.api.services import Services, open_services
from perdure.config.settings import load_settings
from perdure.sdk.asgi import AsgiTransport

SETTINGS = """
[work]
drain = 0.0

[retry]
attempts = 2
base_delay = 0.001
max_delay = 0.002
"""
SECRET = "sesame-4711"
"""Stands in everything that users, models and tools say in these tests: no span may hold it."""


class Traced:
    """A server over one directory that can be left and entered again; `spans` are those of all its runs."""

    def __init__(self, home: Path, script: str, monkeypatch: pytest.MonkeyPatch, keys: str = "") -> None:
        self.home = home
        (home / "gates").mkdir(parents=True)
        (home / "answers.toml").write_text(script, encoding="utf-8")
        (home / "perdure.toml").write_text(
            f"{SETTINGS}\n[telemetry]\ntraces = true\n[[provider]]\nname = 'actor'\nprotocol = 'scripted'\n"
            f"script = 'answers.toml'\nmodels = ['actor']\n{keys}\n",
            encoding="utf-8",
        )
        self.spans: list[ReadableSpan] = []
        self._monkeypatch = monkeypatch

    @asynccontextmanager
    async def run(self) -> AsyncIterator[Client]:
        """The running server; behind it, `spans` has what it recorded."""
        exporter = InMemorySpanExporter()
        self._monkeypatch.setattr(traces, "make_exporter", lambda: exporter)
        settings = load_settings(self.home / "perdure.toml", {}, {"data_dir": str(self.home / "data")})
        async with open_services(settings, bootstrap_key="a-key-of-tests") as services:
            await services.work.start()
            async with AsyncClient(transport=AsgiTransport(create_app(services))) as http:
                client = AsyncOpenAI(
                    base_url="http://traced.test/v1", api_key="a-key-of-tests", http_client=http
                )
                client.organization = client.project = None
                yield Client(client, services)
            services.begin_stopping()
        self.spans.extend(exporter.get_finished_spans())
        assert SECRET not in "".join(span.to_json() for span in self.spans)

    def gate(self) -> tuple[str, Path]:
        """A word that holds the model's answer open, and the file that lets it go on."""
        name = uuid.uuid4().hex
        return f"gate {name}", self.home / "gates" / name


class Client:
    def __init__(self, client: AsyncOpenAI, services: Services) -> None:
        self.sessions = client.beta.agents.sessions
        self.services = services

    async def create(self, said: str, *, tools: Sequence[Any] = (), **agent: Any) -> Any:
        return await self.sessions.create(
            agent={"model": "actor", "tools": list(tools), **agent},
            environment=NONE,
            input=f"{said} {SECRET}",
        )

    async def until(self, session_id: str, status: str) -> Any:
        return await until(lambda: self.sessions.retrieve(session_id), lambda found: found.status == status)

    async def finish(self, said: str, **agent: Any) -> Any:
        """A session whose first turn has ended."""
        return await self.until((await self.create(said, **agent)).id, "idle")

    async def post(self, session_id: str, *events: Any) -> None:
        await self.sessions.events.create(session_id, events=list(events))

    async def turns(self, session_id: str) -> list[Any]:
        return [turn async for turn in self.sessions.turns.list(session_id, order="asc")]


async def until(read: Callable[[], Any], accept: Callable[[Any], bool]) -> Any:
    """Repeats `read` until `accept` likes what it brings."""
    async with asyncio.timeout(DEADLINE):
        while True:
            found = await read()
            if accept(found):
                return found
            await asyncio.sleep(0.02)


def said(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def named(spans: Sequence[ReadableSpan], operation: str) -> list[ReadableSpan]:
    """The spans of an operation, in the order in which they began."""
    found = [span for span in spans if said(span)["gen_ai.operation.name"] == operation]
    return sorted(found, key=lambda span: span.start_time or 0)


def below(spans: Sequence[ReadableSpan], parent: ReadableSpan) -> list[ReadableSpan]:
    """The spans whose parent is `parent`, in the order in which they began."""
    assert parent.context is not None
    found = [span for span in spans if span.parent and span.parent.span_id == parent.context.span_id]
    assert all(span.context and span.context.trace_id == parent.context.trace_id for span in found)
    return sorted(found, key=lambda span: span.start_time or 0)


def events(span: ReadableSpan) -> list[tuple[str, dict[str, Any]]]:
    return [(event.name, dict(event.attributes or {})) for event in span.events]


def links(span: ReadableSpan) -> list[int]:
    return [link.context.span_id for link in span.links]
