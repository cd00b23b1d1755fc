"""Several server processes that accept from one socket, under a parent that starts them again.

The parent opens no database and starts no thread, so it can fork at any time. It prints the address once
all processes answer, passes SIGTERM and SIGINT on, and starts a process again that ends by itself. A
process whose parent is gone stops: it sees the end of a pipe.
"""

from __future__ import annotations

import contextlib
import os
import random
import selectors
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NoReturn

# Runs one process and returns its exit status; the argument is called when it answers requests.
Run = Callable[[Callable[[], None]], int]

STEADY_SECONDS = 10.0
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 10.0


def run_fleet(size: int, run: Run, all_ready: Callable[[], None]) -> int:
    """Run `size` processes until a signal ends them; returns the exit status.

    `all_ready` is called once. A process that ends before that ends all: the settings are at fault, or the
    database. Then its status is the outcome.
    """
    return _Fleet(size, run, all_ready).supervise()


@dataclass(slots=True)
class _Place:
    """One of the processes, and when it may be started again."""

    pid: int | None = None
    started: float = 0.0
    failures: int = 0
    start_at: float = 0.0


@dataclass(slots=True)
class _Fleet:
    size: int
    run: Run
    all_ready: Callable[[], None]
    places: list[_Place] = field(default_factory=list)
    ready: int = 0
    signals: int = 0
    status: int = 0

    def supervise(self) -> int:
        wake_read, wake_write = _pipe()
        ready_read, ready_write = _pipe()
        # The children hold its reading end; it ends with this process.
        alive_read, alive_write = os.pipe()
        ends = (wake_read, wake_write, ready_read, alive_write)
        self.places = [_Place() for _ in range(self.size)]
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        with selectors.DefaultSelector() as selector:
            selector.register(wake_read, selectors.EVENT_READ)
            selector.register(ready_read, selectors.EVENT_READ)
            while True:
                if not self._stopping:
                    for place in self.places:
                        if place.pid is None and place.start_at <= time.monotonic():
                            self._start(place, ends, ready_write, alive_read)
                elif all(place.pid is None for place in self.places):
                    return self.status
                for key, _ in selector.select(self._pause()):
                    self._heed(key.fd, wake_read)
                self._reap()

    @property
    def _stopping(self) -> bool:
        return self.signals > 0

    def _heed(self, descriptor: int, wake_read: int) -> None:
        read = os.read(descriptor, 4096)
        if descriptor != wake_read:
            before, self.ready = self.ready, self.ready + len(read)
            if before < self.size <= self.ready:
                self.all_ready()
            return
        for number in read:
            if number in (signal.SIGTERM, signal.SIGINT):
                self._stop(signal.Signals(number))

    def _start(self, place: _Place, ends: tuple[int, ...], ready_write: int, alive_read: int) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            for end in ends:
                os.close(end)
            self._be_child(ready_write, alive_read)
        place.pid, place.started = pid, time.monotonic()

    def _be_child(self, ready_write: int, alive_read: int) -> NoReturn:
        status = 1
        try:
            random.seed()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            threading.Thread(target=_end_with_parent, args=(alive_read,), daemon=True).start()
            status = self.run(lambda: os.close(ready_write) if os.write(ready_write, b"r") else None)
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(status)

    def _stop(self, number: signal.Signals) -> None:
        """The first signal stops the processes, a second SIGINT hurries them."""
        self.signals += 1
        # A terminal's SIGINT has reached them already, and their second one is the one that hurries.
        passed_on = signal.SIGTERM if self.signals == 1 else number
        for place in self.places:
            if place.pid is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(place.pid, passed_on)

    def _reap(self) -> None:
        for place in self.places:
            if place.pid is None:
                continue
            pid, outcome = os.waitpid(place.pid, os.WNOHANG)
            if pid == 0:
                continue
            place.pid = None
            status = os.waitstatus_to_exitcode(outcome)
            if self._stopping:
                # One that had not begun to listen to signals yet ends by the one that was passed on.
                clean = status in (0, -signal.SIGTERM)
                self.status = self.status or (0 if clean else max(status, 1))
            elif self.ready < self.size:
                self.status = status if status > 0 else 1
                self._stop(signal.SIGTERM)
            else:
                self._schedule(place, pid, status)

    def _schedule(self, place: _Place, pid: int, status: int) -> None:
        steady = time.monotonic() - place.started > STEADY_SECONDS
        place.failures = 0 if steady else place.failures + 1
        pause = 0.0 if steady else min(FIRST_PAUSE * 2**place.failures, LONGEST_PAUSE)
        place.start_at = time.monotonic() + pause
        ending = f"signal {-status}" if status < 0 else f"status {status}"
        print(f"perdure: process {pid} ended with {ending}; starting another", file=sys.stderr)

    def _pause(self) -> float | None:
        """Until the next start, if one waits for its time."""
        waiting = [place.start_at for place in self.places if place.pid is None]
        if self._stopping or not waiting:
            return None
        return max(0.0, min(waiting) - time.monotonic())


def _pipe() -> tuple[int, int]:
    read, write = os.pipe()
    os.set_blocking(read, False)
    os.set_blocking(write, False)
    return read, write


def _end_with_parent(alive_read: int) -> None:
    """Stop like on SIGTERM when the parent is gone."""
    os.read(alive_read, 1)
    os.kill(os.getpid(), signal.SIGTERM)
