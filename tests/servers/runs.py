"""Another process that runs tests, and how to see what became of its servers."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

import psutil

ROOT = Path(__file__).parents[2]
DEADLINE = 30.0


@contextmanager
def other_run(code: str, **environ: str) -> Iterator[subprocess.Popen[str]]:
    """A Python process that executes `code`; it is killed at the end, if it has not ended."""
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, **environ},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = monotonic() + DEADLINE
    while not condition():
        assert monotonic() < deadline, "that did not happen"
        sleep(0.01)


def is_gone(process: psutil.Process) -> bool:
    """Whether it has ended; in a container where nobody collects orphans, it stays a zombie."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
