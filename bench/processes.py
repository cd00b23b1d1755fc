"""The processes of a benchmark: our server, the provider, the bare client. All end with their block."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import orjson

from bench.bare import Outcome
from bench.machine import cores, cpu_seconds, pinned, rss_bytes

ROOT = Path(__file__).resolve().parents[1]
KEY = "bench-api-key"
LISTENING = re.compile(r"listening on (?:http://127\.0\.0\.1:(\d+)|standard input)|perdure worker ready")
START_SECONDS = 60.0
STOP_SECONDS = 30.0

DESK = """
[[rule]]
when = { newest = "result" }
answer = [{ text = "The result is {result}." }]

[[rule]]
when = { user_matches = "^Hello" }
answer = [{ text = "Good day." }]

[otherwise]
answer = [{ call = "lookup", arguments = { id = "A-1042" } }]
"""


@dataclass(frozen=True)
class Running:
    """A process that has said that it listens; `seconds` after it was started."""

    process: subprocess.Popen[str]
    port: int
    seconds: float

    @property
    def cpu(self) -> float:
        return cpu_seconds(self.process.pid)

    @property
    def rss(self) -> int:
        return rss_bytes(self.process.pid)


@contextmanager
def start(
    command: Sequence[str], log: Path, *, core: frozenset[int] | None, environ: dict[str, str] | None = None
) -> Iterator[Running]:
    """Start a process, wait for its listening line, and end it afterwards.

    Raises:
        RuntimeError: it did not come up; the message holds the end of what it logged.
    """
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PERDURE_")}
    started = time.perf_counter()
    with log.open("ab") as errors, pinned(core):
        process = subprocess.Popen(
            [sys.executable, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env={**clean, **(environ or {})},
            cwd=ROOT,
            text=True,
        )
    watchdog = threading.Timer(START_SECONDS, process.kill)
    watchdog.start()
    try:
        assert process.stdout is not None
        found = LISTENING.search(process.stdout.readline())
        seconds = time.perf_counter() - started
        watchdog.cancel()
        if found is None:
            tail = log.read_text(errors="replace")[-2000:]
            raise RuntimeError(f"{' '.join(command)} did not start:\n{tail}")
        yield Running(process, int(found[1] or 0), seconds)
    finally:
        watchdog.cancel()
        _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process.stdin.close()
    process.stdout.close()


@contextmanager
def start_provider(directory: Path) -> Iterator[Running]:
    """The fake provider, on the client's core."""
    command = ["-m", "bench.provider"]
    with start(command, directory / "provider.log", core=cores()[1]) as running:
        yield running


@contextmanager
def start_server(
    directory: Path,
    *,
    provider: int = 9,
    settings: str = "",
    pin: bool = True,
    arguments: Sequence[str] = (),
) -> Iterator[Running]:
    """Our server over `directory/data`, on a core of its own.

    Args:
        provider: port of the fake provider, which serves the models `deltas-*`.
        settings: more TOML, before the providers.
        arguments: more options of the command.
    """
    command = ["serve", "--host", "127.0.0.1", "--port", "0", *arguments]
    with _start_perdure(directory, command, "server.log", provider, settings, pin) as running:
        yield running


@contextmanager
def start_worker(
    directory: Path, number: int, *, provider: int = 9, settings: str = "", arguments: Sequence[str] = ()
) -> Iterator[Running]:
    """A worker beside a server with the same arguments; its process is on any core."""
    command = ["worker", *arguments]
    with _start_perdure(directory, command, f"worker-{number}.log", provider, settings, False) as running:
        yield running


@contextmanager
def _start_perdure(
    directory: Path, arguments: Sequence[str], log: str, provider: int, settings: str, pin: bool
) -> Iterator[Running]:
    script = directory / "desk.toml"
    script.write_text(DESK)
    config = directory / "perdure.toml"
    config.write_text(
        f"""{settings}
[log]
level = "warning"

[[provider]]
name = "fake"
protocol = "responses"
base_url = "http://127.0.0.1:{provider}/v1"
api_key = "provider-key"
models = ["deltas-*"]

[[provider]]
name = "desk"
protocol = "scripted"
script = "{script}"
models = ["desk"]
"""
    )
    command = ["-m", "perdure.cli.main", *arguments]
    command += ["--config", str(config), "--data-dir", str(directory / "data")]
    core = cores()[0] if pin else None
    with start(command, directory / log, core=core, environ={"PERDURE_API_KEY": KEY}) as running:
        yield running


class BareClient:
    """The process of `bench.bare`; see there."""

    def __init__(self, running: Running, provider: int) -> None:
        self._process = running.process
        self._url = f"http://127.0.0.1:{provider}/v1/responses"

    def ask(self, count: int, *, concurrency: int = 1, deltas: int = 1, history: int = 0) -> Outcome:
        """`count` requests for answers of `deltas` deltas, behind `history` earlier turns."""
        command = {
            "url": self._url,
            "count": count,
            "concurrency": concurrency,
            "deltas": deltas,
            "history": history,
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(orjson.dumps(command).decode() + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the bare client ended; see its log")
        return Outcome(**orjson.loads(line))


@contextmanager
def start_bare(directory: Path, provider: int) -> Iterator[BareClient]:
    """The bare client, on the server's core."""
    with start(["-m", "bench.bare"], directory / "bare.log", core=cores()[0]) as running:
        yield BareClient(running, provider)
