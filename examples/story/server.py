"""A real `perdure serve`, in a process of its own, for as long as the demo runs."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from openai import OpenAI

LISTENING = "perdure listening on "
START_SECONDS = 30.0
STOP_SECONDS = 15.0


class ServerFailed(Exception):
    """The server did not start or did not end in order; the text holds the end of its log."""


class Server:
    """A server on a free port of this machine. It can be killed, and started again on the same directory.

    `key_file` holds the API key that the server made at its first start.
    """

    def __init__(self, settings: Path, data_dir: Path) -> None:
        self.key_file = data_dir / "api-key"
        self.url = ""
        self._log_file = data_dir / "server.log"
        self._command = [sys.executable, "-m", "perdure.cli.main", "serve", "--port", "0"]
        self._command += ["--config", str(settings), "--data-dir", str(data_dir)]
        self._process: subprocess.Popen[str] | None = None

    @property
    def api_key(self) -> str:
        return self.key_file.read_text(encoding="utf-8").strip()

    @property
    def process_id(self) -> int:
        return self._running().pid

    def client(self) -> OpenAI:
        """The official client, with this server's address and key."""
        return OpenAI(base_url=f"{self.url}/v1", api_key=self.api_key, timeout=30)

    def start(self) -> None:
        """Start the process and return when it accepts requests."""
        self._log_file.parent.mkdir(parents=True, exist_ok=True)
        with self._log_file.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=_without_settings(os.environ),
                start_new_session=True,  # Ctrl-C reaches the demo alone, which then stops the server in order
            )
        self.url = self._wait_until_it_listens(self._process)

    def kill(self) -> None:
        """End the process at once (SIGKILL), whatever it is doing."""
        process = self._running()
        process.kill()
        process.wait()
        _close(process)
        self._process = None

    def stop(self) -> int:
        """Ask the process to end, insist after a while; returns its exit status (0 without a process)."""
        if self._process is None:
            return 0
        process = self._process
        process.terminate()
        try:
            return process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            return -1
        finally:
            process.kill()
            process.wait()
            _close(process)

    def end_of_log(self) -> str:
        return "\n".join(self._log_file.read_text(encoding="utf-8", errors="replace").splitlines()[-20:])

    def _wait_until_it_listens(self, process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        watchdog = threading.Timer(START_SECONDS, process.kill)
        watchdog.start()
        try:
            line = process.stdout.readline()  # the end of the output when the process ends
        finally:
            watchdog.cancel()
        if not line.startswith(LISTENING):
            raise ServerFailed(f"The server did not start.\n{self.end_of_log()}")
        return line.removeprefix(LISTENING).strip()

    def _running(self) -> subprocess.Popen[str]:
        assert self._process is not None, "the server does not run"
        return self._process


@contextmanager
def running_server(settings: Path, data_dir: Path) -> Iterator[Server]:
    """A started server; leaving the context ends it, whatever happened."""
    server = Server(settings, data_dir)
    try:
        server.start()
        yield server
    finally:
        status = server.stop()
    if status != 0:
        raise ServerFailed(f"The server ended with status {status}.\n{server.end_of_log()}")


def _close(process: subprocess.Popen[str]) -> None:
    if process.stdout is not None:
        process.stdout.close()


def _without_settings(environ: os._Environ[str]) -> dict[str, str]:
    """The environment without settings and keys that are meant for another server."""
    return {name: value for name, value in environ.items() if not name.startswith(("PERDURE_", "OPENAI_"))}
