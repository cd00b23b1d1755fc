"""The queue's tables are made once, brought up to date, and refused when they are not understood."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from procrastinate.schema import SchemaManager

from perdure.store.engine import StoreError
from perdure.work.queue_schema import MARK, check_package, prepare_queue

MIGRATIONS = sorted(Path(SchemaManager.get_migrations_path()).glob("*.sql"))
FUNCTIONS = "SELECT proname FROM pg_proc WHERE proname LIKE 'procrastinate%' ORDER BY proname"


@pytest.fixture
def database(postgres_url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        yield connection


def run(database: psycopg.Connection, script: str) -> None:
    database.execute(script.encode())


def functions(database: psycopg.Connection) -> list[str]:
    return [name for (name,) in database.execute(FUNCTIONS).fetchall()]


def test_processes_that_start_at_once_make_the_tables_once(
    postgres_url: str, database: psycopg.Connection
) -> None:
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(prepare_queue, [postgres_url] * 4))
    assert "procrastinate_fetch_job_v2" in functions(database)
    prepare_queue(postgres_url)


def test_an_older_schema_is_upgraded(postgres_url: str, database: psycopg.Connection) -> None:
    prepare_queue(postgres_url)
    expected = functions(database)
    run(database, "DROP SCHEMA public CASCADE; CREATE SCHEMA public")
    older = [migration for migration in MIGRATIONS if migration.name < "03.03"]
    for migration in older:
        run(database, migration.read_text("utf-8"))
    run(database, f"COMMENT ON TABLE procrastinate_jobs IS '{MARK}{older[-1].name}'")
    assert "procrastinate_retry_job_v2" not in functions(database)
    prepare_queue(postgres_url)
    assert functions(database) == expected
    prepare_queue(postgres_url)


def test_a_complete_schema_that_others_made_is_used(postgres_url: str, database: psycopg.Connection) -> None:
    run(database, SchemaManager.get_schema())
    prepare_queue(postgres_url)
    comment = database.execute("SELECT obj_description('procrastinate_jobs'::regclass, 'pg_class')")
    assert comment.fetchone() == (f"{MARK}{MIGRATIONS[-1].name}",)


def test_an_incomplete_schema_that_others_made_is_refused(
    postgres_url: str, database: psycopg.Connection
) -> None:
    run(database, SchemaManager.get_schema())
    run(database, "DROP FUNCTION procrastinate_retry_job_v2")
    with pytest.raises(StoreError, match=r"procrastinate_retry_job_v2.*of its own"):
        prepare_queue(postgres_url)


def test_a_schema_of_a_newer_package_is_refused(postgres_url: str, database: psycopg.Connection) -> None:
    prepare_queue(postgres_url)
    run(database, f"COMMENT ON TABLE procrastinate_jobs IS '{MARK}99.00.00_01_future.sql'")
    with pytest.raises(StoreError, match=r"newer procrastinate \(up to 99\.00\.00_01_future\.sql\)"):
        prepare_queue(postgres_url)


@pytest.mark.parametrize("version", ["3.9.2", "2.15", "4.0.0", "4.1.0rc1"])
def test_a_package_that_does_not_fit_is_named(version: str) -> None:
    with pytest.raises(StoreError, match=rf"3\.10 or a newer 3\.x; {version} is installed"):
        check_package(version)


@pytest.mark.parametrize("version", ["3.10.0", "3.11.1", "3.99"])
def test_a_package_that_fits_is_used(version: str) -> None:
    check_package(version)
