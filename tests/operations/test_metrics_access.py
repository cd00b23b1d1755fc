"""Who reads the metrics: the operator, unless the settings say that everybody or nobody does."""

from __future__ import annotations

import pytest
from tests.conformance.conftest import PrivateServers
from tests.conformance.rawhttp import exchange, plain_headers

from .scrape import OPENMETRICS, Scrape, ask


def test_metrics_need_a_key_with_their_scope(servers: PrivateServers) -> None:
    server = servers()
    assert ask(server, None).error["type"] == "authentication_error"
    assert [ask(server, key).status for key in (None, "wrong", server.api_key + "x")] == [401, 401, 401]
    for options in ((), ("--scope", "read"), ("--project", "another")):
        refused = ask(server, server.create_key(*options))
        assert refused.status == 403
        assert "api.metrics.read" in refused.error["message"]
    key = server.create_key("--scope", "metrics")
    assert ask(server, key).status == 200
    assert ask(server, server.api_key).status == 200
    sessions = exchange(server.address, "GET", "/v1/agents/sessions", plain_headers(key))
    assert sessions.status == 403


def test_the_key_of_a_first_start_reads_the_metrics(servers: PrivateServers) -> None:
    server = servers()
    server.terminate()
    server.api_key = ""
    server.start()
    assert ask(server, (server.data_dir / "api-key").read_text().strip()).status == 200


@pytest.mark.parametrize("key", [None, "wrong"])
def test_open_metrics_need_no_key_and_open_nothing_else(servers: PrivateServers, key: str | None) -> None:
    server = servers('[server]\nmetrics = "open"\n')
    assert ask(server, key).status == 200
    headers = plain_headers(key or "none")
    for target in ("/metrics/", "/metrics/x", "/metricsx", "/perdure/v1/capabilities", "/v1/agents/sessions"):
        assert exchange(server.address, "GET", target, headers).status in (401, 404)
    assert exchange(server.address, "POST", "/metrics", headers, b"").status == 405


def test_metrics_can_be_turned_off(servers: PrivateServers) -> None:
    server = servers('[server]\nmetrics = "off"\n')
    assert [ask(server, key).status for key in (None, server.api_key)] == [404, 404]


def test_the_form_is_text_unless_openmetrics_is_asked_for(servers: PrivateServers) -> None:
    server = servers('[server]\nmetrics = "open"\n')
    for accept in (None, "*/*", "text/plain;version=x", "text/html", "application/openmetrics"):
        response = ask(server, None, accept)
        assert (response.header("content-type") or "").startswith("text/plain; version=0.0.4")
        Scrape.of(response.body.decode())
    response = ask(server, None, OPENMETRICS)
    assert (response.header("content-type") or "").startswith("application/openmetrics-text; version=1.0.0")
    seen = Scrape.of(response.body.decode(), openmetrics=True)
    assert seen.value("perdure_http_requests_in_flight") == 1
    assert seen.values("perdure_build_info", "version")
    assert ask(server, None, "application/openmetrics-text;version=x").status == 200
