"""Driving one session against nodes, workers and a database that die."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from openai import InternalServerError, OpenAI
from tests.crash.drive import DEADLINE, KILLED, PAUSE, Drive, Follower
from tests.crash.forge import ServerDied
from tests.crash.model import Model
from tests.crash.witness import Json

from .installation import Cluster, Part

T = TypeVar("T")
TABLES = ("sessions", "turns", "items", "calls", "events", "inbox", "model_calls", "compactions")
UNAVAILABLE = 503


class ClusterDrive(Drive):
    """Posts to the first node and follows on the last one; what dies is started again.

    Args:
        faults: of the first node's processes, one after the other.
        worker_faults: of the first worker's.
        tended: whether the first worker is started, and again when it has died.
    """

    def __init__(
        self,
        cluster: Cluster,
        faults: Sequence[str] = (),
        worker_faults: Sequence[str] = (),
        *,
        tended: bool = True,
        node_log: str = "",
        worker_log: str = "",
    ) -> None:
        self.cluster = cluster
        self.refused = 0
        self.tended = tended
        self._outage = False
        self._worker = cluster.workers[0]
        self._worker_faults = list(worker_faults)
        self._worker_fault = ""
        self._worker_environ = {"PERDURE_FAULT_LOG": worker_log}
        super().__init__(
            cluster.nodes[0].forge,
            cluster.model,
            cluster.config.parent,
            faults,
            url=cluster.storage.url,
            PERDURE_FAULT_LOG=node_log,
        )
        self.witness.outlives = True

    def call(self, action: Callable[[OpenAI], T]) -> T:
        """The action's result; it is repeated while processes die, and while the database is away."""
        deadline = time.monotonic() + DEADLINE
        while True:
            if self.tended:
                self.revive()
            try:
                return super().call(action)
            except InternalServerError as error:
                wanted = error.status_code == UNAVAILABLE and self._outage and time.monotonic() < deadline
                if not wanted:
                    error.add_note(self.cluster.logged())
                    raise
            self.refused += 1
            time.sleep(PAUSE)

    def expect_outage(self) -> None:
        """From now on the database may be away."""
        self._outage = True

    def revive(self) -> None:
        """Start the first worker, again if its fault has ended it."""
        forge = self._worker.forge
        if forge.is_running:
            status = forge.poll()
            if status is None:
                return
            self._note_worker_death(status)
        while True:
            self._worker_fault = self._worker_faults.pop(0) if self._worker_faults else ""
            try:
                return self._worker.start(PERDURE_FAULT=self._worker_fault, **self._worker_environ)
            except ServerDied as death:
                self._note_worker_death(death.status)

    def rows(self) -> dict[str, list[tuple[Any, ...]]]:
        """All rows of the session."""
        found = {}
        for table in TABLES:
            key = "id" if table == "sessions" else "session_id"
            rows = self.storage.query(f"SELECT * FROM {table} WHERE {key} = ?", self.session_id)
            found[table] = sorted(rows, key=repr)
        return found

    @property
    def told(self) -> list[Json]:
        """What the newest stream has told so far."""
        return list(self._followers[-1].events)

    def wait_for(self, holds: Callable[[], bool], otherwise: str) -> None:
        """Return once something holds that no request tells."""
        deadline = time.monotonic() + DEADLINE
        while not holds():
            assert time.monotonic() < deadline, f"{otherwise}\n{self.cluster.logged()}"
            time.sleep(PAUSE)

    def wait_stream_end(self) -> None:
        """Return once the newest stream has ended."""
        self._followers[-1].wait_end()

    def finish(self) -> None:
        """End all processes and keep what the streams told."""
        for part in self.cluster.parts:
            if part.forge.is_running:
                with contextlib.suppress(ProcessLookupError):
                    part.forge.send_signal(signal.SIGTERM)
        for part in self.cluster.parts:
            if part.forge.is_running:
                self._note_end(part, part.forge.wait())
        self.collect()

    def _note_end(self, part: Part, status: int) -> None:
        if status != 0 and part is self._worker:
            self._note_worker_death(status)
        elif status != 0:
            self._note_death(status)

    def _note_worker_death(self, status: int) -> None:
        reached = self._worker_fault and status == KILLED
        assert reached, f"the worker ended with {status}; {self.cluster.logged()}"
        self.deaths.append(self._worker_fault)

    def _configure(self, home: Path, model: Model) -> Path:
        return self.cluster.config

    def _begin(self, environ: dict[str, str]) -> None:
        self.cluster.nodes[0].start(**environ)

    def _follow(self, session_id: str) -> None:
        """The stream on the other node goes on while processes die."""
        if not self._followers or self._followers[-1].is_broken:
            self._followers.append(Follower(self._connect(self.cluster.nodes[-1].base_url), session_id))

    def _start(self) -> None:
        others = [node for node in self.cluster.nodes[1:] if not node.forge.is_running]
        with ThreadPoolExecutor(3) as pool:
            starting = [pool.submit(node.start) for node in others]
            if self.tended:
                starting.append(pool.submit(self.revive))
            super()._start()
            for started in starting:
                started.result()
