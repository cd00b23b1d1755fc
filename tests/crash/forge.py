"""Processes that start quickly: forked from one in which every library is already imported.

A crash test starts many processes, and most of a start is importing. A forge runs one process at a
time; a foundry (see `foundry.py` for the process itself) has as many forges as a test needs.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from tests.server import LISTENING, WORKING

from .database import Storage

DEADLINE = 60.0
SERVE = ("serve", "--host", "127.0.0.1", "--port", "0")
READY = re.compile(f"{LISTENING.pattern}|{WORKING}")


class ServerDied(Exception):
    """The process ended before it was ready."""

    def __init__(self, status: int) -> None:
        super().__init__(f"exit status {status}")
        self.status = status


class Foundry:
    """The process that forks; a context manager. Leaving it, or its death, ends whatever it started."""

    def __init__(self) -> None:
        self.api_key = "test-key"
        self._forges: list[Forge] = []
        self._ordering = threading.Lock()

    def __enter__(self) -> Self:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PERDURE_")}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.foundry"],
            cwd=Path(__file__).parents[2],
            env={**inherited, "PERDURE_API_KEY": self.api_key},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        threading.Thread(target=self._listen, args=(self._process.stdout,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(DEADLINE)
        assert self._process.stdin is not None
        self._process.stdin.close()

    def forge(self) -> Forge:
        """A place for one process at a time."""
        self._forges.append(Forge(self, len(self._forges)))
        return self._forges[-1]

    def order(self, place: int, arguments: Sequence[str], environ: Mapping[str, str]) -> None:
        order = {"place": place, "arguments": arguments, "environ": dict(environ)}
        assert self._process.stdin is not None
        with self._ordering:
            self._process.stdin.write(json.dumps(order) + "\n")
            self._process.stdin.flush()

    def _listen(self, stream: IO[str]) -> None:
        for line in stream:
            place, _, said = line.rstrip("\n").partition(" ")
            self._forges[int(place)].hear(said)


class Forge:
    """Runs one process at a time. `url` is where it listens, if it is a server."""

    def __init__(self, foundry: Foundry, place: int) -> None:
        self.url = ""
        self.pid = 0
        self.api_key = foundry.api_key
        self._foundry = foundry
        self._place = place
        self._said: queue.Queue[str] = queue.Queue()
        # Through a pipe, because a test takes away the right to write to files.
        self._logged: deque[str] = deque(maxlen=200)
        self._alive = False

    @property
    def base_url(self) -> str:
        return f"{self.url}/v1"

    @property
    def is_running(self) -> bool:
        """Whether a process was started whose end nobody has waited for."""
        return self._alive

    def stderr(self) -> str:
        """The end of what the processes have logged."""
        return "\n".join(self._logged)[-20_000:]

    def hear(self, said: str) -> None:
        """What the foundry says of this place."""
        word, _, rest = said.partition(" ")
        if word == "logged":
            self._logged.append(rest)
        else:
            self._said.put(said)

    def start(
        self, config: Path, storage: Storage, environ: Mapping[str, str], command: Sequence[str] = SERVE
    ) -> None:
        """Start a process and wait until it is ready.

        Raises:
            ServerDied: it ended before that.
        """
        assert not self._alive
        self._foundry.order(self._place, [*command, "--config", str(config), *storage.options], environ)
        self.pid = int(self._next("started"))
        self._alive = True
        word, _, rest = self._hear_next("ready").partition(" ")
        if word == "ended":
            self._alive = False
            raise ServerDied(int(rest))
        ready = READY.fullmatch(rest)
        assert ready is not None, f"{word} {rest!r}; it logged:\n{self.stderr()}"
        self.url = ready[1] or ""

    def wait(self, timeout: float = DEADLINE) -> int:
        """The exit status of the process, once it has ended; negative numbers are signals."""
        while (said := self._hear_next("ended", timeout)) == "stopped":
            pass
        word, _, rest = said.partition(" ")
        assert word == "ended", f"{said!r}; it logged:\n{self.stderr()}"
        self._alive = False
        return int(rest)

    def poll(self) -> int | None:
        """The exit status of the process, if it has ended."""
        with self._said.mutex:
            ended = bool(self._said.queue) and self._said.queue[0].startswith("ended ")
        return self.wait() if ended else None

    def wait_stopped(self) -> None:
        """Return once a signal has stopped the process."""
        self._next("stopped")

    def send_signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def stop(self) -> int:
        """End the process as a service manager does; returns its exit status."""
        self.send_signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """End the process, if there is one, as a crash does."""
        if self._alive:
            self.send_signal(signal.SIGKILL)
            self.wait()

    def renew(self) -> None:
        """End the process, if there is one, and forget what was logged."""
        self.kill()
        self._logged.clear()

    def _next(self, wanted: str, timeout: float = DEADLINE) -> str:
        said = self._hear_next(wanted, timeout)
        word, _, rest = said.partition(" ")
        assert word == wanted, f"{said!r} instead of {wanted!r}; it logged:\n{self.stderr()}"
        return rest

    def _hear_next(self, wanted: str, timeout: float = DEADLINE) -> str:
        try:
            return self._said.get(timeout=timeout)
        except queue.Empty:
            raise AssertionError(f"the process is not {wanted}; it logged:\n{self.stderr()}") from None
