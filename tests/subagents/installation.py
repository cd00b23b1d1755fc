"""The processes that run subagents in these tests, and what is seen of them through the official client.

On SQLite that is one server. On PostgreSQL it is a node that runs nothing, and two workers.
"""

from __future__ import annotations

import signal
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx2
from openai import AsyncOpenAI, OpenAI
from tests.conformance.inputs import NONE, cancel, message
from tests.conformance.sessions import items, turns
from tests.conformance.watch import DEADLINE, until, until_status
from tests.server import PerdureProcess, ServerProcess, WorkerProcess

from .scripts import CREW

SETTINGS = """
[server]
keepalive = 0.5

[work]
lease = 2.0
drain = 0.5

[retry]
attempts = 2
base_delay = 0.01
max_delay = 0.02
"""


class Gate:
    """Holds the model call of a subagent open whose task or input is `text`."""

    def __init__(self, directory: Path) -> None:
        name = uuid.uuid4().hex
        self.text = f"hang {name}"
        self._path = directory / name

    def release(self) -> None:
        self._path.touch()


class Installation:
    """A context manager: leaving it opens all gates and ends all processes.

    Args:
        database: the URL of an empty PostgreSQL database, or None for SQLite.
        settings: tables that are put behind the usual ones.
        provider: more keys of the provider's table.
    """

    def __init__(self, home: Path, database: str | None, settings: str = "", provider: str = "") -> None:
        self._gates = home / "gates"
        self._gates.mkdir(parents=True)
        (home / "crew.script.toml").write_text(CREW, encoding="utf-8")
        config = home / "perdure.toml"
        config.write_text(
            f"{SETTINGS}\n{settings}\n[[provider]]\nname = 'crew'\nprotocol = 'scripted'\n"
            f"script = 'crew.script.toml'\nmodels = ['crew']\n{provider}\n",
            encoding="utf-8",
        )
        arguments = () if database is None else ("--workers", "0")
        self.server = ServerProcess(config, home / "data", database=database, arguments=arguments)
        self.workers: list[PerdureProcess] = []
        if database is not None:
            self.workers = [
                WorkerProcess(config, home / f"worker-{number}", database=database) for number in range(2)
            ]
        self._held: list[Gate] = []

    # ---- processes

    @property
    def owners(self) -> list[PerdureProcess]:
        """The processes that run sessions."""
        return self.workers or [self.server]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for gate in self._held:
            gate.release()
        for part in (self.server, *self.workers):
            part.__exit__(kind, error, trace)

    def start(self) -> None:
        """Start what does not run."""
        self._all(
            [part for part in (self.server, *self.workers) if not part.is_running], PerdureProcess.start
        )
        self.client = OpenAI(
            base_url=self.server.base_url,
            api_key=self.server.api_key,
            timeout=DEADLINE,
            max_retries=0,
            _strict_response_validation=True,
        )
        self.sessions = self.client.beta.agents.sessions

    def stop(self) -> None:
        """End everything as a service manager does; each has to end cleanly."""
        self._all([self.server, *self.workers], PerdureProcess.stop)

    def kill(self) -> None:
        """End everything with SIGKILL."""
        for part in (self.server, *self.workers):
            part.send_signal(signal.SIGSTOP)
        for part in (self.server, *self.workers):
            part.kill()

    def _all(self, parts: list[PerdureProcess], act: Callable[[PerdureProcess], Any]) -> None:
        with ThreadPoolExecutor(max(1, len(parts))) as pool:
            list(pool.map(act, parts))

    # ---- talking to it

    def gate(self) -> Gate:
        self._held.append(Gate(self._gates))
        return self._held[-1]

    def create(self, said: str, *, limit: int = 6, **agent: Any) -> str:
        """A new session of an agent that may have so many subagents at work."""
        made = self.sessions.create(
            agent={
                "model": "crew",
                "multi_agent": {"enabled": True, "max_concurrent_subagents": limit},
                **agent,
            },
            environment=NONE,
            input=said,
        )
        return str(made.id)

    def say(self, session_id: str, *texts: str) -> None:
        self.sessions.events.create(session_id, events=[message(text) for text in texts])

    def cancel(self, session_id: str) -> None:
        self.sessions.events.create(session_id, events=[cancel()])

    def begin(self, said: str, **options: Any) -> Scene:
        """A session whose first turn has ended."""
        scene = Scene(self, self.create(said, **options))
        scene.until_idle()
        return scene

    def async_client(self) -> AsyncOpenAI:
        return AsyncOpenAI(
            base_url=self.server.base_url,
            api_key=self.server.api_key,
            timeout=DEADLINE,
            _strict_response_validation=True,
        )

    def extension(self, path: str, **query: str) -> Any:
        answer = httpx2.get(
            f"{self.server.url}/perdure/v1/sessions/{path}",
            params=query,
            headers={"Authorization": f"Bearer {self.server.api_key}"},
            timeout=DEADLINE,
        )
        assert answer.status_code == 200, answer.text
        return answer.json()


class Scene:
    """One session, as the official client shows it. Subagents are named by name."""

    def __init__(self, place: Installation, session_id: str) -> None:
        self.place = place
        self.id = session_id

    def say(self, text: str) -> str:
        """Let the root do a turn; returns its answer."""
        self.place.say(self.id, text)
        self.until_idle()
        return self.answer

    def until_idle(self) -> Any:
        return until_status(self.place.client, self.id, "idle")

    @property
    def session(self) -> Any:
        return self.place.sessions.retrieve(self.id)

    @property
    def items(self) -> list[Any]:
        """The root's items, oldest first."""
        return items(self.place.client, self.id)

    @property
    def turns(self) -> list[Any]:
        """The root's turns, oldest first."""
        return turns(self.place.client, self.id)

    @property
    def answer(self) -> str:
        """The last text of the root."""
        said = [item for item in self.items if item.type == "message" and item.role == "assistant"]
        return "".join(part.text for part in said[-1].content)

    @property
    def subagents(self) -> dict[str, Any]:
        """The subagents by name, oldest first."""
        found = list(self.place.sessions.subagents.list(self.id, order="asc", limit=100))
        named = {each.name: each for each in found}
        assert len(named) == len(found)
        return named

    def turns_of(self, name: str) -> list[Any]:
        found = self.subagents[name]
        below = self.place.sessions.subagents.turns
        return list(below.list(found.id, session_id=self.id, order="asc", limit=100))

    def items_of(self, name: str) -> list[Any]:
        found = self.subagents[name]
        below = self.place.sessions.subagents.items
        return list(below.list(found.id, session_id=self.id, order="asc", limit=100))

    def statuses(self, name: str) -> list[str]:
        """How the turns of a subagent ended, or are."""
        return [turn.status for turn in self.turns_of(name)]

    def until_turns(self, name: str, *statuses: str) -> None:
        until(lambda: self.statuses(name), lambda found: found == list(statuses))

    def until_writing(self, name: str) -> None:
        """Return once a subagent has an answer in progress."""
        until(
            lambda: [item.status for item in self.items_of(name) if item.type == "message"][-1:],
            lambda found: found == ["in_progress"],
        )

    def reports(self) -> list[tuple[str, str]]:
        """Who has reported what to the root, in order."""
        names = {each.id: each.name for each in self.subagents.values()}
        return [
            (names[item.sender_agent_id], _text(item))
            for item in self.items
            if item.type == "agent_message" and item.recipient_agent_id == self.session.agent.id
        ]

    def reports_of(self, name: str) -> list[str]:
        return [text for who, text in self.reports() if who == name]

    def calls(self, kind: str) -> list[str]:
        """The status of each coordination call of a kind: `create`, `wait`, …"""
        return [item.status for item in self.items if item.type.startswith(f"{kind}_")]

    def context(self, agent_id: str = "") -> str:
        """All that the model of an agent would be shown now."""
        query = {"agent_id": agent_id} if agent_id else {}
        shown = self.place.extension(f"{self.id}/context", **query)["entries"]
        return "\n".join(entry["text"] for entry in shown)


def _text(item: Any) -> str:
    return "".join(part.text for part in item.content)
