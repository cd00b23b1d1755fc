from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from openai import OpenAI
from tests.providers.responses import ResponsesProvider
from tests.providers.server import FakeProvider
from tests.server import ServerProcess, scripted_config

from .office import DEADLINE, LOOKUP, WINDOW, Office

FAST = "[retry]\nattempts = 2\nbase_delay = 0.01\nmax_delay = 0.01\n\n[limits]\nmodel_calls_per_turn = 1000\n"


@dataclass
class Desk:
    """A server, its client, and the provider behind it."""

    office: Office
    server: ServerProcess
    client: OpenAI

    @property
    def sessions(self) -> Any:
        return self.client.beta.agents.sessions

    def open(self, said: str, **options: Any) -> str:
        """A session whose first turn has ended."""
        agent = {"model": "fake", "tools": [LOOKUP], **options.pop("agent", {})}
        created = self.sessions.create(
            agent=agent, environment={"type": "none"}, input=said, stream=True, **options
        )
        with created as stream:
            return next(event.session.id for event in list(stream) if event.type == "agent.session.created")

    def say(self, session_id: str, said: str, lookup: Callable[[Any], str] | None = None) -> Any:
        handlers = {} if lookup is None else {"lookup_order": lookup}
        with self.sessions.stream(session_id, input=said, tool_handlers=handlers) as stream:
            return stream.get_final_result()

    def items(self, session_id: str) -> list[Any]:
        return list(self.sessions.items.list(session_id, order="asc", limit=100))

    def context(self, session_id: str) -> Any:
        headers = {"Authorization": f"Bearer {self.server.api_key}"}
        url = f"{self.server.url}/perdure/v1/sessions/{session_id}/context"
        return httpx2.get(url, headers=headers, timeout=DEADLINE).raise_for_status().json()


Desks = Callable[..., Desk]


@pytest.fixture
def desks(tmp_path: Path) -> Iterator[Desks]:
    """Opens desks; at the end, no request may have been malformed."""
    offices: list[Office] = []
    with ExitStack() as stack:

        def make(
            kind: type[FakeProvider] = ResponsesProvider,
            settings: str = "",
            table: dict[str, Any] | None = None,
            environ: dict[str, str] | None = None,
            **options: Any,
        ) -> Desk:
            provider = kind(**{"context_window": WINDOW, **options})
            office = stack.enter_context(Office(provider))
            offices.append(office)
            home = tmp_path / f"desk-{len(offices)}"
            config = scripted_config(home, {}, FAST + settings + "\n" + office.table(**(table or {})))
            server = stack.enter_context(ServerProcess(config, home / "data", environ=environ))
            client = stack.enter_context(
                OpenAI(base_url=server.base_url, api_key=server.api_key, timeout=DEADLINE)
            )
            return Desk(office, server, client)

        yield make
    for office in offices:
        assert office.provider.violations == []
