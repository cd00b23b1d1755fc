"""A real `perdure serve` in a process of its own, for tests that drive the public surface.

config = scripted_config(tmp_path, {"greeter": SCRIPT})
with ServerProcess(config, tmp_path / "data") as server:
    openai.OpenAI(base_url=server.base_url, api_key=server.api_key)
"""

from __future__ import annotations

import os
import queue
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Self

LISTENING = re.compile(r"^perdure listening on (http://\S+)$")
START_TIMEOUT = 60.0
STOP_TIMEOUT = 30.0


def scripted_config(directory: Path, scripts: Mapping[str, str], extra: str = "") -> Path:
    """Writes a settings file in which each model of `scripts` is served by its own script; returns its path.

    `extra` is TOML of other tables (`[server] …`), put before the providers.
    """
    directory.mkdir(parents=True, exist_ok=True)
    tables = [extra.strip()] if extra.strip() else []
    for model, script in scripts.items():
        path = directory / f"{model}.script.toml"
        path.write_text(script, encoding="utf-8")
        tables.append(
            "\n".join(
                (
                    "[[provider]]",
                    f'name = "{model}"',
                    'protocol = "scripted"',
                    f'script = "{path}"',
                    f'models = ["{model}"]',
                )
            )
        )
    config = directory / "perdure.toml"
    config.write_text("\n\n".join(tables) + "\n", encoding="utf-8")
    return config


class ServerProcess:
    """One server process over one data directory; it can be stopped, killed and started again.

    Leaving the context ends the process and everything it started. A process that does not end on
    SIGTERM within `STOP_TIMEOUT` seconds, or ends with another status than 0, is an error.
    """

    def __init__(
        self,
        config: Path,
        data_dir: Path,
        *,
        api_key: str = "test-key",
        arguments: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.config = config
        self.data_dir = data_dir
        self.api_key = api_key
        self.url = ""
        self._arguments = tuple(arguments)
        self._environ = dict(environ or {})
        self._process: subprocess.Popen[str] | None = None
        self._guard: subprocess.Popen[bytes] | None = None
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._printed: list[str] = []
        self._log = data_dir.with_name(data_dir.name + ".stderr")

    @property
    def base_url(self) -> str:
        """What an official client takes as `base_url`."""
        return f"{self.url}/v1"

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.url.removeprefix("http://").rpartition(":")
        return host, int(port)

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def printed(self) -> list[str]:
        """The lines of standard output of the current process, so far."""
        return list(self._printed)

    def stderr(self) -> str:
        """What all processes of this server have logged so far."""
        return self._log.read_text(encoding="utf-8", errors="replace") if self._log.exists() else ""

    def start(self) -> Self:
        """Starts the process and returns when it accepts requests."""
        if self._process is not None and self._process.poll() is None:
            raise RuntimeError("the server is already running")
        self.data_dir.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "perdure.cli.main", "serve", "--host", "127.0.0.1", "--port", "0"]
        command += ["--config", str(self.config), "--data-dir", str(self.data_dir), *self._arguments]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env=self._environment(),
                text=True,
                encoding="utf-8",
                start_new_session=True,  # so that the whole group can be ended
            )
        self._guard = _end_with_this_process(self._process.pid)
        self._lines = queue.Queue()
        self._printed = []
        assert self._process.stdout is not None
        threading.Thread(
            target=_read_lines, args=(self._process.stdout, self._lines, self._printed), daemon=True
        ).start()
        self.url = self._listening()
        return self

    def create_key(self, *options: str) -> str:
        """Creates another API key with `perdure keys create`; returns its text."""
        command = [sys.executable, "-m", "perdure.cli.main", "keys", "create", *options]
        command += ["--config", str(self.config), "--data-dir", str(self.data_dir)]
        made = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=START_TIMEOUT,
            env=self._environment(),
            check=False,
        )
        assert made.returncode == 0, made.stderr
        return made.stdout.strip()

    def terminate(self) -> int:
        """Sends SIGTERM and returns the exit status; negative numbers are signals."""
        process = self._running()
        process.send_signal(signal.SIGTERM)
        return self.wait()

    def wait(self) -> int:
        """Waits for the process to end by itself; returns the exit status."""
        process = self._started()
        try:
            status = process.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(
                f"the server did not stop within {STOP_TIMEOUT} s; it logged:\n{self.stderr()}"
            ) from None
        self._end_group()
        return status

    def kill(self) -> None:
        """Ends the process with SIGKILL, as a crash would."""
        process = self._started()
        self._end_group()
        process.wait(STOP_TIMEOUT)

    def restart(self) -> Self:
        """Starts a new process over the same data; a running one is stopped first."""
        if self._process is not None and self._process.poll() is None:
            status = self.terminate()
            assert status == 0, f"exit status {status}; the server logged:\n{self.stderr()}"
        return self.start()

    def send_signal(self, number: signal.Signals) -> None:
        self._running().send_signal(number)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            if self._process is not None:
                self.kill()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is None:
            return
        if self._process.poll() is not None:
            self._end_group()
            return
        status = self.terminate()
        if kind is None:
            assert status == 0, f"exit status {status}; the server logged:\n{self.stderr()}"

    def _environment(self) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PERDURE_")}
        return {**inherited, "PERDURE_API_KEY": self.api_key, **self._environ}

    def _listening(self) -> str:
        try:
            line = self._lines.get(timeout=START_TIMEOUT)
        except queue.Empty:
            line = None
        match = LISTENING.match(line or "")
        if match is None:
            self.kill()
            raise AssertionError(f"no listening line but {line!r}; the server logged:\n{self.stderr()}")
        return match[1].rstrip("/")

    def _started(self) -> subprocess.Popen[str]:
        if self._process is None:
            raise RuntimeError("the server was not started")
        return self._process

    def _running(self) -> subprocess.Popen[str]:
        process = self._started()
        if process.poll() is not None:
            raise AssertionError(
                f"the server has ended with status {process.returncode}; it logged:\n{self.stderr()}"
            )
        return process

    def _end_group(self) -> None:
        process = self._started()
        if self._guard is not None:
            self._guard.kill()
            self._guard.communicate()
            self._guard = None
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def _end_with_this_process(group: int) -> subprocess.Popen[bytes]:
    """A guard that ends the process group when this process dies without doing so itself."""
    return subprocess.Popen(
        ["/bin/sh", "-c", f"read -r _; kill -s KILL -- -{group}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _read_lines(stream: IO[str], lines: queue.Queue[str | None], printed: list[str]) -> None:
    for line in stream:
        printed.append(line.rstrip("\n"))
        lines.put(printed[-1])
    lines.put(None)
    stream.close()
