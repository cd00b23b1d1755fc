"""Servers that start quickly: forked from a process in which every library is already imported.

A crash test starts many servers, and most of a start is importing. The forge has imported the
libraries and the protocol's types, which keep no state; everything else of perdure is imported anew
in each server. One server runs at a time.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import pkgutil
import queue
import re
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from .database import Storage

DEADLINE = 60.0
LISTENING = re.compile(r"perdure listening on (http://\S+)")
LIBRARIES = (
    *("aiohttp", "alembic.command", "fastapi", "httptools", "jiter", "jsonschema_rs", "orjson", "pydantic"),
    *("rich.console", "sqlalchemy.dialects.postgresql.psycopg", "sqlalchemy.dialects.sqlite", "typer"),
    *("procrastinate", "psycopg", "uvicorn", "uvloop"),
    *("uvicorn.lifespan.on", "uvicorn.loops.auto", "uvicorn.protocols.http.httptools_impl"),
)


class ServerDied(Exception):
    """The server ended before it listened."""

    def __init__(self, status: int) -> None:
        super().__init__(f"exit status {status}")
        self.status = status


class Forge:
    """Starts servers; a context manager."""

    def __init__(self) -> None:
        self.url = ""
        self.pid = 0
        self.api_key = "test-key"
        self._said: queue.Queue[str] = queue.Queue()
        # Through a pipe, because a test takes away the right to write to files.
        self._logged: deque[str] = deque(maxlen=200)
        self._alive = False

    def __enter__(self) -> Self:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PERDURE_")}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.forge"],
            cwd=Path(__file__).parents[2],
            env={**inherited, "PERDURE_API_KEY": self.api_key},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        for stream, take in (
            (self._process.stdout, self._said.put),
            (self._process.stderr, self._logged.append),
        ):
            threading.Thread(target=_read_lines, args=(stream, take), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(DEADLINE)
        assert self._process.stdin is not None
        self._process.stdin.close()

    @property
    def base_url(self) -> str:
        return f"{self.url}/v1"

    def stderr(self) -> str:
        """The end of what the servers have logged."""
        return "\n".join(self._logged)[-20_000:]

    def start(self, config: Path, storage: Storage, environ: Mapping[str, str]) -> None:
        """Start a server and wait until it listens.

        Raises:
            ServerDied: it ended before that.
        """
        assert not self._alive
        arguments = ["serve", "--host", "127.0.0.1", "--port", "0"]
        arguments += ["--config", str(config), *storage.options]
        order = {"arguments": arguments, "environ": dict(environ)}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        self.pid = int(self._next("started"))
        self._alive = True
        said = self._said.get(timeout=DEADLINE)
        listening = LISTENING.fullmatch(said)
        if listening is None:
            self._alive = False
            raise ServerDied(int(said.removeprefix("ended ")))
        self.url = listening[1]

    def wait(self, timeout: float = DEADLINE) -> int:
        """The exit status of the server, once it has ended; negative numbers are signals."""
        status = int(self._next("ended", timeout))
        self._alive = False
        return status

    def wait_stopped(self) -> None:
        """Return once a signal has stopped the server."""
        self._next("stopped")

    def send_signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def stop(self) -> int:
        """End the server as a service manager does; returns its exit status."""
        self.send_signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """End the server, if there is one, as a crash does."""
        if self._alive:
            self.send_signal(signal.SIGKILL)
            self.wait()

    def _next(self, wanted: str, timeout: float = DEADLINE) -> str:
        try:
            said = self._said.get(timeout=timeout)
        except queue.Empty:
            raise AssertionError(f"the server is not {wanted}; it logged:\n{self.stderr()}") from None
        word, _, rest = said.partition(" ")
        assert word == wanted, f"{said!r} instead of {wanted!r}; it logged:\n{self.stderr()}"
        return rest


def _read_lines(stream: IO[str], take: Callable[[str], None]) -> None:
    for line in stream:
        take(line.rstrip("\n"))


def run_forge() -> None:
    """Read orders, one JSON line each; tell when a server has started, stopped and ended."""
    for name in LIBRARIES:
        importlib.import_module(name)
    for room in ("perdure.wire", "perdure.schema"):
        for module in pkgutil.iter_modules(importlib.import_module(room).__path__):
            importlib.import_module(f"{room}.{module.name}")
    for line in iter(sys.stdin.readline, ""):
        order = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _serve(order)
        _say(f"started {pid}")
        while True:
            _, state = os.waitpid(pid, os.WUNTRACED)
            if not os.WIFSTOPPED(state):
                break
            _say("stopped")
        _say(f"ended {os.waitstatus_to_exitcode(state)}")


def _serve(order: dict[str, Any]) -> None:
    os.environ.update(order["environ"])
    sys.argv = ["perdure", *order["arguments"]]
    from perdure.cli.main import app

    app()
    raise AssertionError("the command always exits")


def _say(text: str) -> None:
    os.write(sys.stdout.fileno(), f"{text}\n".encode())


if __name__ == "__main__":
    run_forge()
