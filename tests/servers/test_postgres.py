"""The PostgreSQL server of the tests: what it keeps, what it forgets, and that nothing of it stays behind."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import psycopg
import pytest
from tests.postgres import PostgresServer
from tests.postgres_programs import PACKAGE, absence, installed_wheel, own_account

from .runs import DEADLINE, is_gone, other_run, wait_until

OTHER_RUN = """
import sys
from tests.postgres import PostgresServer
with PostgresServer() as server:
    print(server.pid, server.data.parent, server.create_database(), flush=True)
    sys.stdin.read()
"""

pytestmark = pytest.mark.skipif(absence() is not None, reason=str(absence()))


def family_of(pid: int) -> list[psutil.Process]:
    postmaster = psutil.Process(pid)
    return [postmaster, *postmaster.children(recursive=True)]


def value(url: str, query: str) -> object:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(query.encode()).fetchone()
        return row[0] if row else None


def write(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


@contextmanager
def busy(url: str) -> Iterator[None]:
    """A statement that computes, and looks at nothing, until its server process is ended."""

    def compute() -> None:
        with pytest.raises(psycopg.OperationalError):
            write(url, "SET application_name = 'busy'", "DO $$ BEGIN LOOP NULL; END LOOP; END $$")

    thread = threading.Thread(target=compute)
    thread.start()
    query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'busy' AND query LIKE 'DO %'"
    wait_until(lambda: value(url, query) == 1)
    yield
    thread.join(DEADLINE)
    assert not thread.is_alive()


def answer(process: subprocess.Popen[str]) -> tuple[int, Path, str]:
    assert process.stdout is not None
    pid, home, url = process.stdout.readline().split()
    return int(pid), Path(home), url


def test_a_database_is_empty_and_belongs_to_an_ordinary_role(postgres_url: str) -> None:
    assert value(postgres_url, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == 0
    assert value(postgres_url, "SELECT rolsuper FROM pg_roles WHERE rolname = current_user") is False
    write(postgres_url, "CREATE TABLE mark (n int)")


def test_databases_know_nothing_of_each_other(postgres: PostgresServer) -> None:
    one, other = postgres.create_database(), postgres.create_database()
    write(one, "CREATE TABLE mark (n int)")
    assert value(other, "SELECT to_regclass('mark')::text") is None
    with psycopg.connect(one):
        postgres.drop_database(one)  # whoever is connected
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(one)
    postgres.drop_database(other)


def test_a_wrong_password_is_refused(postgres_url: str) -> None:
    role, _, rest = postgres_url.partition("@")
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(f"{role}x@{rest}")


def test_what_was_committed_is_there_after_a_crash_and_after_a_restart() -> None:
    with PostgresServer(durable=True) as server:
        url = server.create_database()
        write(url, "CREATE TABLE mark (n int)")
        for n, interrupt in enumerate((server.kill, server.stop, server.kill), start=1):
            write(url, f"INSERT INTO mark VALUES ({n})")
            interrupt()
            with pytest.raises(psycopg.OperationalError):
                psycopg.connect(url)
            server.start()
            assert value(url, "SELECT array_agg(n ORDER BY n) FROM mark") == list(range(1, n + 1))


@pytest.mark.parametrize("durable", [True, False])
def test_durability_is_what_was_asked_for(durable: bool) -> None:
    with PostgresServer(durable=durable) as server:
        for setting in ("fsync", "full_page_writes", "synchronous_commit"):
            assert value(server.admin_url(), f"SHOW {setting}") == ("on" if durable else "off")


def test_a_crash_ends_every_server_process_at_once() -> None:
    with PostgresServer() as server, busy(server.create_database()):
        family = family_of(server.pid)
        assert len(family) > 2
        server.kill()
        assert all(is_gone(process) for process in family)


def test_nothing_is_left_after_the_end() -> None:
    with PostgresServer() as server:
        home, family = server.data.parent, family_of(server.pid)
        assert home.is_dir()
        with psycopg.connect(server.create_database()):
            server.stop()  # clients do not hold it up
        assert all(is_gone(process) for process in family)
    assert not home.exists()


def test_nothing_is_left_when_the_test_run_is_killed() -> None:
    with other_run(OTHER_RUN) as process:
        pid, home, url = answer(process)
        with busy(url):
            family = family_of(pid)
            process.send_signal(signal.SIGKILL)
        wait_until(lambda: all(is_gone(each) for each in family))
        wait_until(lambda: not home.exists())


@pytest.mark.slow
@pytest.mark.skipif(own_account() is None, reason="only root starts the server as someone else")
def test_root_can_run_it_from_where_others_cannot_go(tmp_path: Path) -> None:
    site = tmp_path / "site-packages"
    site.mkdir(mode=0o700)
    for source in installed_wheel().parent.glob(f"{PACKAGE}*"):
        (site / source.name).symlink_to(source)
    temporary = Path(tempfile.mkdtemp(prefix="perdure-test-"))
    temporary.chmod(0o711)
    try:
        for _ in ("a copy is made", "it is found"):
            with other_run(OTHER_RUN, PYTHONPATH=str(site), TMPDIR=str(temporary)) as process:
                pid, _, url = answer(process)
                assert value(url, "SELECT 1") == 1
                assert Path(psutil.Process(pid).exe()).is_relative_to(temporary)
                process.communicate()
                assert process.returncode == 0
        copies = [path for path in temporary.iterdir() if path.name.startswith(PACKAGE)]
        assert len(copies) == 1
    finally:
        shutil.rmtree(temporary)
