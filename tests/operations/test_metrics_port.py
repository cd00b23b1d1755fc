"""Metrics of a process without HTTP: a port of their own, for as long as they are served."""

from __future__ import annotations

import urllib.error
import urllib.request

import pytest

from perdure.config.exposition import serve_metrics
from perdure.config.metrics import Metrics

from .scrape import Scrape


def read(port: int) -> Scrape:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return Scrape.of(answer.read().decode())


def test_a_port_serves_one_registry_until_it_is_closed() -> None:
    metrics, others = Metrics(), Metrics()
    metrics.loop.turn_ended("completed", None, 1_500_000)
    with serve_metrics(metrics, "127.0.0.1", 0) as port, serve_metrics(others, "127.0.0.1", 0) as second:
        seen = read(port)
        assert seen.values("perdure_turns_ended_total", "status") == {("completed",): 1, ("cancelled",): 0}
        assert seen.value("perdure_turn_active_seconds_sum") == 1.5
        assert "perdure_database_up" not in seen.families
        assert read(second).value("perdure_turn_active_seconds_count") == 0
    with pytest.raises(urllib.error.URLError):
        read(port)


def test_an_address_that_is_taken_is_an_error() -> None:
    with serve_metrics(Metrics(), "127.0.0.1", 0) as port, pytest.raises(OSError, match="in use"):  # noqa: SIM117
        with serve_metrics(Metrics(), "127.0.0.1", port):
            pass
