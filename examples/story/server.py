"""A real `perdure serve`, in a process of its own, for as long as the demo runs."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

LISTENING = "perdure listening on "
START_SECONDS = 30.0
STOP_SECONDS = 15.0


class ServerFailed(Exception):
    """The server did not start or did not end in order; the text holds the end of its log."""


@dataclass(frozen=True)
class Server:
    """Where the server listens, and the key it made at its first start."""

    url: str
    api_key: str
    key_file: Path
    process_id: int


@contextmanager
def running_server(settings: Path, data_dir: Path) -> Iterator[Server]:
    """Start a server on a free port of this machine; leaving the context ends it, whatever happened."""
    log_file = data_dir / "server.log"
    data_dir.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "perdure.cli.main", "serve", "--port", "0"]
    command += ["--config", str(settings), "--data-dir", str(data_dir)]
    with log_file.open("wb") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=_without_settings(os.environ),
            start_new_session=True,  # Ctrl-C reaches the demo alone, which then stops the server in order
        )
    try:
        url = _wait_until_it_listens(process, log_file)
        key_file = data_dir / "api-key"
        yield Server(url, key_file.read_text(encoding="utf-8").strip(), key_file, process.pid)
    finally:
        status = _stop(process)
    if status != 0:
        raise ServerFailed(f"The server ended with status {status}.\n{_end_of(log_file)}")


def _without_settings(environ: os._Environ[str]) -> dict[str, str]:
    """The environment without settings and keys that are meant for another server."""
    return {name: value for name, value in environ.items() if not name.startswith(("PERDURE_", "OPENAI_"))}


def _wait_until_it_listens(process: subprocess.Popen[str], log_file: Path) -> str:
    assert process.stdout is not None
    watchdog = threading.Timer(START_SECONDS, process.kill)
    watchdog.start()
    try:
        line = process.stdout.readline()  # the end of the output when the process ends
    finally:
        watchdog.cancel()
    if not line.startswith(LISTENING):
        raise ServerFailed(f"The server did not start.\n{_end_of(log_file)}")
    return line.removeprefix(LISTENING).strip()


def _stop(process: subprocess.Popen[str]) -> int:
    """Ask the process to end, insist after a while; returns its exit status."""
    process.terminate()
    try:
        return process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        return -1
    finally:
        process.kill()
        process.communicate()


def _end_of(log_file: Path) -> str:
    return "\n".join(log_file.read_text(encoding="utf-8", errors="replace").splitlines()[-20:])
