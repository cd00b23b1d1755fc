"""Several processes over one PostgreSQL database: each counts what it does, on a port of its own."""

from __future__ import annotations

import urllib.request
from pathlib import Path

import pytest
from tests.conformance.conftest import make_client
from tests.conformance.scripts import MODELS, SETTINGS
from tests.conformance.sessions import create_idle
from tests.conformance.watch import until
from tests.process import free_port
from tests.server import ServerProcess, WorkerProcess, scripted_config

from .scrape import Scrape, scrape

pytestmark = pytest.mark.slow

ENDED = "perdure_turns_ended_total"


def read(port: int) -> Scrape:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return Scrape.of(answer.read().decode())


def test_a_worker_counts_the_turns_and_the_server_the_requests(postgres_url: str, tmp_path: Path) -> None:
    config = scripted_config(tmp_path, {"greeter": MODELS["greeter"]}, SETTINGS)
    port = free_port()
    server = ServerProcess(config, tmp_path / "server", database=postgres_url, arguments=["--workers", "0"])
    worker = WorkerProcess(
        config,
        tmp_path / "worker",
        database=postgres_url,
        environ={"PERDURE_WORK_METRICS_PORT": str(port)},
    )
    with server, worker, make_client(server) as client:
        create_idle(client, "greeter")
        seen = until(lambda: read(port), lambda now: now.values(ENDED, "status")["completed",] == 1)
        assert seen.values("perdure_model_calls_total", "provider", "outcome") == {("greeter", "ok"): 1}
        assert seen.value("perdure_store_commits_total") > 0
        assert "perdure_database_up" not in seen.families
        beside = scrape(server)
        assert beside.values(ENDED, "status") == {("completed",): 0, ("cancelled",): 0}
        assert beside.value("perdure_database_up") == 1
        assert beside.value("perdure_store_commits_total") > 0
        created = beside.values("perdure_http_requests_total", "method", "route", "code")
        assert created["POST", "/v1/agents/sessions", "201"] == 1


def test_the_processes_of_one_server_count_apart(postgres_url: str, tmp_path: Path) -> None:
    config = scripted_config(tmp_path, {"greeter": MODELS["greeter"]}, SETTINGS)
    first = free_port()
    server = ServerProcess(
        config,
        tmp_path / "server",
        database=postgres_url,
        arguments=["--workers", "2"],
        environ={"PERDURE_WORK_METRICS_PORT": str(first)},
    )
    with server, make_client(server) as client:
        for _ in range(4):
            create_idle(client, "greeter")

        def ended() -> float:
            return sum(sum(read(first + each).values(ENDED).values()) for each in range(2))

        until(ended, lambda count: count == 4)
        shared = scrape(server)
        assert {name for name in shared.families if name.startswith("perdure_store")} == set()
        assert ENDED.removesuffix("_total") not in shared.families
        assert shared.value("perdure_database_up") == 1
        assert shared.values("perdure_turns_unfinished", "status")["waiting",] == 0
