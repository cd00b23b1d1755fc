"""A process of the tests: it leads a group of its own, says when it is ready, and outlives no test run."""

from __future__ import annotations

import os
import queue
import random
import signal
import socket
import subprocess
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import IO, Any, ClassVar, Self

START_TIMEOUT = 60.0
STOP_TIMEOUT = 30.0
FIXED_PORTS = range(10240, 32768)
"""Ports that no system gives to outgoing connections."""


class GuardedProcess:
    """One command that is started, stopped, killed and started again.

    Leaving the context ends the process and everything it started, and so does the death of the test run,
    however it dies. A process that does not end within `STOP_TIMEOUT` seconds, or ends with another status
    than 0, is an error.

    A kind of process says what is started (`_command`, `_environment`, `_options`) and which of the lines it
    prints says that it is ready (`_is_ready`).
    """

    STOP: ClassVar[signal.Signals] = signal.SIGTERM

    def __init__(self, name: str, log: Path | None = None) -> None:
        """`log` takes what is written to standard error; without it, that goes where the output goes."""
        self._name = name
        self._log = log
        self._process: subprocess.Popen[str] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._printed: list[str] = []

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def printed(self) -> list[str]:
        """The lines of standard output of the current process, so far."""
        return list(self._printed)

    def stderr(self) -> str:
        """What has been logged so far, by every process of this object when there is a log file."""
        if self._log is None:
            return "\n".join(self._printed)
        return self._log.read_text(encoding="utf-8", errors="replace") if self._log.exists() else ""

    def start(self) -> Self:
        """Starts the process and returns when it is ready."""
        if self.is_running:
            raise RuntimeError(f"{self._name} is already running")
        with open(self._log or os.devnull, "ab") as log:
            self._process = subprocess.Popen(
                self._command(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT if self._log is None else log,
                env=self._environment(),
                text=True,
                encoding="utf-8",
                errors="replace",
                start_new_session=True,  # so that the whole group can be ended
                **self._options(),
            )
        self._guard = self._end_with_this_process(self._process.pid)
        self._lines = queue.Queue()
        self._printed = []
        assert self._process.stdout is not None
        threading.Thread(
            target=_read_lines, args=(self._process.stdout, self._lines, self._printed), daemon=True
        ).start()
        try:
            self._await_ready()
        except BaseException:
            self.kill()
            raise
        return self

    def terminate(self) -> int:
        """Asks the process to end and returns its exit status; negative numbers are signals."""
        self._running().send_signal(self.STOP)
        return self.wait()

    def stop(self) -> None:
        """Asks the process to end; another exit status than 0 is an error."""
        status = self.terminate()
        assert status == 0, f"exit status {status}; {self._name} logged:\n{self.stderr()}"

    def wait(self) -> int:
        """Waits for the process to end by itself; returns the exit status."""
        process = self._started()
        try:
            status = process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(
                f"{self._name} did not stop within {STOP_TIMEOUT} s; it logged:\n{self.stderr()}"
            ) from None
        self._end()
        return status

    def kill(self) -> None:
        """Ends the process and all it started with SIGKILL, as a crash would."""
        process = self._started()
        self._end()
        process.wait(STOP_TIMEOUT)

    def restart(self) -> Self:
        """Starts a new process over the same data; a running one is stopped first."""
        if self.is_running:
            self.stop()
        return self.start()

    def send_signal(self, number: signal.Signals) -> None:
        self._running().send_signal(number)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is None:
            return
        if not self.is_running:
            self._end()
        elif kind is None:
            self.stop()
        else:
            self.terminate()

    def _command(self) -> Sequence[str]:
        raise NotImplementedError

    def _is_ready(self, line: str | None) -> bool:
        """Whether this line of output says so; None is the end of the output."""
        raise NotImplementedError

    def _environment(self) -> Mapping[str, str]:
        return os.environ

    def _options(self) -> Mapping[str, Any]:
        """More arguments of `Popen`."""
        return {}

    def _await_ready(self) -> None:
        deadline = monotonic() + START_TIMEOUT
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - monotonic()))
            except queue.Empty:
                raise AssertionError(
                    f"{self._name} was not ready within {START_TIMEOUT} s; it logged:\n{self.stderr()}"
                ) from None
            if self._is_ready(line):
                return
            if line is None:
                raise AssertionError(f"{self._name} ended before it was ready; it logged:\n{self.stderr()}")

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            raise RuntimeError(f"{self._name} was not started")
        return self._process

    def _running(self) -> subprocess.Popen[str]:
        process = self._started()
        if process.poll() is not None:
            raise AssertionError(
                f"{self._name} has ended with status {process.returncode}; it logged:\n{self.stderr()}"
            )
        return process

    def _end(self) -> None:
        process = self._started()
        if self._guard is not None:
            self._guard.kill()
            self._guard.communicate()
            self._guard = None
        self._kill_all(process)

    def _kill_all(self, process: subprocess.Popen[str]) -> None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    def _end_with_this_process(self, pid: int) -> subprocess.Popen[bytes]:
        """A guard that ends the process group when this process dies without doing so itself."""
        return guard('kill -s KILL -- "-$1"', str(pid))


def guard(script: str, *arguments: str) -> subprocess.Popen[bytes]:
    """A shell that runs `script` when this process ends in whatever way, unless it is killed before."""
    # scripts/test ends what carries its mark; this one has work to do then, and ends by itself.
    unmarked = {name: value for name, value in os.environ.items() if name != "TEST_RUN_MARK"}
    return subprocess.Popen(
        ["/bin/sh", "-c", f"read -r _; {script}", "guard", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env=unmarked,
        cwd="/",
    )


def free_port() -> int:
    """A port of 127.0.0.1 that a server can keep while it is down.

    A port that the system chose may be chosen again, for any outgoing connection, before the server is back;
    a client that tries to reconnect there can even end up connected to itself.
    """
    # The global generator starts from the same seed in every worker of a test run.
    for port in random.SystemRandom().sample(FIXED_PORTS, k=100):
        with socket.socket() as probe, suppress(OSError):
            # Without it, connections of the last minute would make a port look taken.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError(f"no free port among 100 between {FIXED_PORTS.start} and {FIXED_PORTS.stop}")


def _read_lines(stream: IO[str], lines: queue.Queue[str | None], printed: list[str]) -> None:
    for line in stream:
        printed.append(line.rstrip("\n"))
        lines.put(printed[-1])
    lines.put(None)
    stream.close()
