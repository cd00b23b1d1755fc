"""How a worker proves that it lives, and how it knows that it is taken for dead.

A thread of its own keeps a connection of its own: the event loop may be busy for as long as it likes. The
connection holds the lock that stands for the worker (see `store/workers.py`) and renews its heartbeat. If
the connection breaks, another one takes the lock again. A heartbeat that comes too late ends the tenure: the
others may have taken the sessions over, so what runs has to stop. Then the thread registers anew, as
another worker.
"""

from __future__ import annotations

import asyncio
import logging
import os
import selectors
import socket
import threading
import time
from collections.abc import Callable

from sqlalchemy import Connection, text
from sqlalchemy.exc import SQLAlchemyError

from perdure.store.engine import open_engine
from perdure.store.workers import beat, hold_lock, register_worker, remove_worker, worker_id, worker_number

log = logging.getLogger(__name__)

BEATS = 5  # in a lease
LONGEST_PAUSE = 5.0
# Shorter than the time between the two looks of those who take over (see `work/postgres.py`).
RECONNECT_SECONDS = 0.1
SLOW_RECONNECT_SECONDS = 1.0
PATIENCE = 50
_REGISTER = text("SELECT worker_id FROM procrastinate_register_worker_v1()")
_UNREGISTER = text("SELECT procrastinate_unregister_worker_v1(:number)")
_QUEUE_BEAT = text("SELECT procrastinate_update_heartbeat_v1(:number)")


def elapsed() -> float:
    """Seconds on a clock that goes on while the process is stopped, and the machine where it can."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Tenure:
    """A worker's time in office: from its registration until its heartbeat is older than the lease."""

    def __init__(self, owner: str, lease: float, sent: float) -> None:
        self._owner = owner
        self._lease = lease
        self._sent = sent
        self._over = False

    @property
    def owner(self) -> str:
        return self._owner

    @property
    def number(self) -> int:
        """What the job queue calls the worker."""
        return worker_number(self._owner)

    def alive(self) -> bool:
        """Whether nobody can have taken over from this worker; after the first no, always no."""
        if not self._over and elapsed() - self._sent >= self._lease:
            self._over = True
        return not self._over

    def renew(self, sent: float) -> bool:
        """A heartbeat that was sent at `sent` has arrived; False if that was too late."""
        if self.alive():
            self._sent = sent
        return self.alive()

    def end(self) -> None:
        self._over = True


class Liveness:
    """The thread (see the module's text). `began` is called in the event loop with each new tenure."""

    def __init__(self, url: str, lease: float, began: Callable[[Tenure], None]) -> None:
        self._engine = open_engine(url)
        self._lease = lease
        self._pause = min(lease / BEATS, LONGEST_PAUSE)
        self._began = began
        self._loop = asyncio.get_running_loop()
        self._stopping = threading.Event()
        self._stopped, self._stop = socket.socketpair()
        self._tenure: Tenure | None = None
        self._thread = threading.Thread(target=self._run, name="liveness", daemon=True)

    def start(self) -> None:
        self._thread.start()

    async def stop(self) -> None:
        """End the tenure and tell the others."""
        self._stopping.set()
        self._stop.send(b"s")
        if self._thread.ident is not None:
            await asyncio.to_thread(self._thread.join)
        self._engine.dispose()
        self._stopped.close()
        self._stop.close()

    def _run(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            try:
                with self._engine.connect() as plain:
                    conn = plain.execution_options(isolation_level="AUTOCOMMIT")
                    self._hold_office(conn)
                    failures = 0
            except SQLAlchemyError as error:
                failures += 1
                level = logging.WARNING if failures == 1 else logging.DEBUG
                log.log(level, "the worker's heartbeat has no database: %s", type(error).__name__)
                self._stopping.wait(RECONNECT_SECONDS if failures < PATIENCE else SLOW_RECONNECT_SECONDS)
            except Exception:
                # Without this thread the process would stay without sessions for ever.
                log.exception("the worker's heartbeat failed")
                self._stopping.wait(1.0)
        if self._tenure is not None:
            self._tenure.end()

    def _hold_office(self, conn: Connection) -> None:
        """Beat until the tenure is over, or the process stops."""
        tenure = self._tenure
        if tenure is None or not tenure.alive():
            tenure = self._register(conn)
            locked = True
        else:
            locked = False
        while True:
            sent = elapsed()
            # Until the server notices that the earlier connection is gone, that one keeps the lock.
            locked = locked or hold_lock(conn, tenure.owner)
            known = beat(conn, tenure.owner)
            conn.execute(_QUEUE_BEAT, {"number": tenure.number})
            if not known:
                tenure.end()
            if not tenure.renew(sent):
                log.warning("%s was silent for too long; what it ran is left to others", tenure.owner)
                return
            if self._rest(conn):
                tenure.end()
                remove_worker(conn, tenure.owner)
                conn.execute(_UNREGISTER, {"number": tenure.number})
                return

    def _rest(self, conn: Connection) -> bool:
        """Wait for the next heartbeat; a connection that breaks ends the wait. True: the process stops."""
        driver = conn.connection.driver_connection
        with selectors.DefaultSelector() as selector:
            selector.register(driver.fileno(), selectors.EVENT_READ)  # type: ignore[union-attr]
            selector.register(self._stopped, selectors.EVENT_READ)
            selector.select(self._pause)
        return self._stopping.is_set()

    def _register(self, conn: Connection) -> Tenure:
        sent = elapsed()
        owner = worker_id(conn.execute(_REGISTER).scalar_one())
        # The lock first: a worker that is listed without it is dead.
        hold_lock(conn, owner)
        register_worker(conn, owner, socket.gethostname(), os.getpid())
        tenure = self._tenure = Tenure(owner, self._lease, sent)
        if not self._stopping.is_set():
            self._loop.call_soon_threadsafe(self._began, tenure)
        return tenure
