"""Two API nodes that run nothing, and workers, on one PostgreSQL: each a process that can be killed."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import httpx2
from openai import OpenAI
from tests.crash.database import Storage
from tests.crash.drive import DEADLINE, PAUSE
from tests.crash.forge import Forge
from tests.crash.model import MODEL, Model
from tests.postgres import PostgresServer
from tests.process import free_port

LEASE = 2.0
DRAIN = 10.0


def settings_text(top: str, drain: float) -> str:
    """The settings of every process, without the provider; `top` is put before their tables."""
    return f"""
{top}

[server]
keepalive = 0.5

[work]
lease = {LEASE}
drain = {drain}

[retry]
base_delay = 0.01
max_delay = 0.02
"""


@dataclass
class Part:
    """One process of the cluster: the same command whenever it is started. `url` is a node's own."""

    name: str
    forge: Forge
    config: Path
    storage: Storage
    command: tuple[str, ...]
    url: str = ""

    @property
    def base_url(self) -> str:
        """What an official client takes as `base_url`."""
        return f"{self.url}/v1"

    @property
    def api_key(self) -> str:
        return self.forge.api_key

    def client(self) -> OpenAI:
        """An official client of the node, which repeats nothing."""
        return OpenAI(base_url=self.base_url, api_key=self.api_key, max_retries=0, timeout=DEADLINE)

    def start(self, **environ: str) -> None:
        """Start the process and wait until it is ready."""
        # The process that forks has its own, and what one order sets must not stay for the next.
        self.forge.start(self.config, self.storage, {"PERDURE_FAULT": "", **environ}, self.command)

    def stop(self) -> None:
        """End the process as a service manager does; another exit status than 0 is an error."""
        status = self.forge.stop()
        assert status == 0, f"{self.name} ended with {status}; it logged:\n{self.forge.stderr()}"

    def kill(self) -> None:
        self.forge.kill()

    def pause(self) -> None:
        """Stop the process where it is."""
        self.forge.send_signal(signal.SIGSTOP)
        self.forge.wait_stopped()

    def resume(self) -> None:
        self.forge.send_signal(signal.SIGCONT)

    def wait_logged(self, text: str) -> None:
        """Return once the process has logged this."""
        deadline = time.monotonic() + DEADLINE
        while text not in self.forge.stderr():
            assert time.monotonic() < deadline, f"{self.name} has not logged {text!r}"
            time.sleep(PAUSE)

    def wait_ready(self, status: int) -> None:
        """Return once `/readyz` answers this."""
        deadline = time.monotonic() + DEADLINE
        while (found := httpx2.get(f"{self.url}/readyz", timeout=DEADLINE).status_code) != status:
            assert time.monotonic() < deadline, f"{self.name} answers {found}: {self.forge.stderr()}"
            time.sleep(PAUSE)

    def check_refusal(self) -> None:
        """While the database is away, input is refused with a 503 that says so, and nothing else."""
        body = {"agent": {"model": MODEL}, "environment": {"type": "none"}, "input": "Is anybody there?"}
        headers = {"Authorization": f"Bearer {self.api_key}", "OpenAI-Beta": "agents=v1"}
        answer = httpx2.post(f"{self.base_url}/agents/sessions", json=body, headers=headers, timeout=DEADLINE)
        assert answer.status_code == 503, f"{self.name} answers {answer.text}: {self.forge.stderr()}"
        assert answer.json()["error"]["type"] == "server_error"


class Cluster:
    """See the module's text. Nothing is started yet."""

    def __init__(
        self,
        forges: Sequence[Forge],
        config: Path,
        storage: Storage,
        model: Model,
        *,
        nodes: int,
        workers: int,
    ) -> None:
        self.model = model
        self.config = config
        self.storage = storage
        self.nodes = [self._node(forges[number], number) for number in range(nodes)]
        self.workers = [
            Part(f"worker {number}", forges[nodes + number], config, storage, ("worker",))
            for number in range(workers)
        ]

    @property
    def parts(self) -> list[Part]:
        return [*self.nodes, *self.workers]

    def start(self, *parts: Part) -> None:
        """Start these processes, or all, at the same time."""
        with ThreadPoolExecutor(len(self.parts)) as pool:
            list(pool.map(Part.start, parts or self.parts))

    def stop(self) -> None:
        """End all processes that run; each must end cleanly."""
        running = [part for part in self.parts if part.forge.is_running]
        with ThreadPoolExecutor(max(1, len(running))) as pool:
            list(pool.map(Part.stop, running))

    def kill(self) -> None:
        """Kill all processes that run."""
        for part in self.parts:
            part.kill()

    def bring_back(self, server: PostgresServer) -> None:
        """Let every node say that it is away and refuse input; then start the database that was killed."""
        try:
            for node in self.nodes:
                node.wait_ready(503)
                node.check_refusal()
        finally:
            server.start()
        for node in self.nodes:
            node.wait_ready(200)

    def logged(self) -> str:
        """The end of what each process has logged."""
        return "\n".join(f"--- {part.name}\n{part.forge.stderr()[-6000:]}" for part in self.parts)

    def _node(self, forge: Forge, number: int) -> Part:
        port = free_port()
        command = ("serve", "--host", "127.0.0.1", "--port", str(port), "--workers", "0")
        return Part(f"node {number}", forge, self.config, self.storage, command, f"http://127.0.0.1:{port}")
