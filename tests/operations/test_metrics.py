"""After known requests and turns, the counters of a real server have exactly the expected values."""

from __future__ import annotations

import resource
from typing import Any

import openai
import pytest
from openai import OpenAI
from tests.conformance.conftest import PrivateServers
from tests.conformance.inputs import NONE, WEATHER, cancel, message, tool_result
from tests.conformance.rawhttp import EventSocket, exchange, plain_headers
from tests.conformance.scripts import MODELS, SETTINGS
from tests.conformance.sessions import create, create_idle, create_waiting
from tests.conformance.watch import Watcher, until, until_status
from tests.server import ServerProcess

from .scrape import Scrape, scrape


def settled(server: ServerProcess, name: str, labels: tuple[str, ...], expected: dict[Any, float]) -> Scrape:
    """A scrape in which the metric has these samples and no other, but for what scrapes themselves add."""

    def read() -> tuple[dict[Any, float], Scrape]:
        seen = scrape(server)
        values = seen.values(name, *labels)
        return {key: value for key, value in values.items() if "/metrics" not in key}, seen

    return until(read, lambda found: found[0] == expected)[1]


def test_turns_model_calls_tokens_and_tool_calls_are_counted_once(servers: PrivateServers) -> None:
    server = servers()
    client = servers.client(server)
    for model in ("greeter", "flaky", "faulty"):
        create_idle(client, model, "Please fail.")
    waiting = create_waiting(client)
    (call,) = waiting.required_actions
    client.beta.agents.sessions.events.create(waiting.id, events=[tool_result(call)])
    until_status(client, waiting.id, "idle")
    until_status(client, create(client, "unknown-tool", tools=[WEATHER]).id, "idle")
    gate = servers.gate(server)
    held = create(client, "held", gate.text)
    until(lambda: scrape(server), lambda seen: seen.value("perdure_model_calls_running") == 1)
    client.beta.agents.sessions.events.create(held.id, events=[cancel()])
    until_status(client, held.id, "idle")

    seen = settled(
        server,
        "perdure_model_calls_total",
        ("provider", "outcome", "code"),
        {
            ("greeter", "ok", ""): 1,
            ("flaky", "retryable_error", "server_overloaded"): 1,
            ("flaky", "ok", ""): 1,
            ("faulty", "error", "authentication_error"): 1,
            ("weather", "ok", ""): 2,
            ("unknown-tool", "ok", ""): 2,
            ("held", "cancelled", ""): 1,
        },
    )
    assert {model for _, model in seen.values("perdure_model_calls_total", "provider", "model")} == {
        provider for (provider,) in seen.values("perdure_model_calls_total", "provider")
    }
    assert seen.values("perdure_model_call_retries_total", "provider", "code") == {
        ("flaky", "server_overloaded"): 1
    }
    tokens = seen.values("perdure_model_tokens_total", "provider", "kind")
    assert {kind: value for (provider, kind), value in tokens.items() if provider == "greeter"} == {
        "input": 60,
        "cached_input": 40,
        "output": 15,
        "reasoning": 5,
    }
    durations = seen.values("perdure_model_call_duration_seconds_count", "provider")
    assert durations == seen.values("perdure_model_calls_total", "provider")
    assert seen.values("perdure_model_first_output_seconds_count", "provider") == {
        ("greeter",): 1,
        ("flaky",): 1,
        ("weather",): 2,
        ("unknown-tool",): 2,
    }
    assert seen.values("perdure_turns_ended_total", "status", "code") == {
        ("completed", ""): 4,
        ("failed", "authentication_error"): 1,
        ("cancelled", ""): 1,
    }
    assert seen.value("perdure_turn_active_seconds_count") == 6
    assert seen.values("perdure_tool_calls_total", "outcome") == {("announced",): 1, ("refused",): 1}
    for name in (
        "model_calls_running",
        "model_calls_waiting",
        "turns_recovered_total",
        "writes_fenced_total",
    ):
        assert seen.value(f"perdure_{name}") == 0
    until(lambda: scrape(server), lambda now: now.value("perdure_sessions_running") == 0)
    for secret in (held.id, call.call_id, gate.text, server.api_key):
        assert secret not in seen.text


def test_calls_beyond_the_limit_are_seen_waiting(servers: PrivateServers) -> None:
    server = servers(SETTINGS.replace("[work]", "[work]\nmodel_concurrency = 1"))
    client = servers.client(server)
    gate = servers.gate(server)
    for _ in range(3):
        create(client, "held", gate.text)
    gauges = ("perdure_sessions_running", "perdure_model_calls_running", "perdure_model_calls_waiting")

    def reached(*expected: float) -> None:
        until(lambda: [scrape(server).value(name) for name in gauges], lambda seen: seen == list(expected))

    reached(3, 1, 2)
    gate.release()
    reached(0, 0, 0)


def test_a_turn_that_outlives_its_server_is_counted_as_recovered(servers: PrivateServers) -> None:
    server = servers()
    client = servers.client(server)
    gate = servers.gate(server)
    session = create(client, "held", gate.text)
    until(lambda: scrape(server), lambda seen: seen.value("perdure_model_calls_running") == 1)
    server.kill()
    server.start()
    gate.release()
    client = servers.client(server)
    until_status(client, session.id, "idle")
    seen = settled(server, "perdure_turns_ended_total", ("status",), {("completed",): 1, ("cancelled",): 0})
    assert seen.value("perdure_turns_recovered_total") == 1


def test_requests_are_counted_by_the_template_of_their_route(servers: PrivateServers) -> None:
    server = servers()
    headers = plain_headers(server.api_key)
    for method, target in (
        ("GET", "/v1/agents/sessions/sess_none1"),
        ("GET", "/v1/agents/sessions/sess_none2"),
        ("DELETE", "/v1/agents/sessions/sess_none3"),
        ("GET", "/v1/agents/sessions?limit=1"),
        ("POST", "/v1/agents/sessions"),
        ("GET", "/v1/vaults/anything/at/all"),
        ("GET", "/nowhere"),
        ("GET", "/v1//agents"),
        ("PROPFIND", "/v1/agents/sessions"),
    ):
        exchange(server.address, method, target, headers, b"{}" if method == "POST" else None)
    exchange(server.address, "GET", "/v1/agents/sessions/sess_none1", [("OpenAI-Beta", "agents=v1")])
    labels = ("method", "route", "code")
    settled(
        server,
        "perdure_http_requests_total",
        labels,
        {
            ("GET", "/v1/agents/sessions/{session_id}", "404"): 2,
            ("DELETE", "/v1/agents/sessions/{session_id}", "404"): 1,
            ("GET", "/v1/agents/sessions", "200"): 1,
            ("POST", "/v1/agents/sessions", "400"): 1,
            ("GET", "/v1/vaults/{rest:path}", "404"): 1,
            ("GET", "none", "404"): 2,
            ("other", "/v1/agents/sessions", "405"): 1,
            ("GET", "none", "401"): 1,
        },
    )
    again = scrape(server)
    assert again.values("perdure_http_requests_total", *labels)["GET", "/metrics", "200"] >= 1
    assert again.value("perdure_http_requests_in_flight") == 1
    counted = again.values("perdure_http_request_duration_seconds_count", "method", "route")
    assert counted == again.values("perdure_http_requests_total", "method", "route")


def test_event_streams_are_counted_while_they_are_open(servers: PrivateServers) -> None:
    server = servers()
    client = servers.client(server)
    raw = client.beta.agents.sessions.with_raw_response.create(
        agent={"model": "greeter"}, environment=NONE, input="Hello.", stream=True
    )
    body = raw.http_response.read()
    seen = until(lambda: scrape(server), lambda now: now.value("perdure_event_streams_open") == 0)
    assert seen.value("perdure_event_stream_sent_bytes_total") == len(body) > 0
    session = create_idle(client)
    with Watcher(client, session.id), Watcher(client, session.id):
        seen = until(lambda: scrape(server), lambda now: now.value("perdure_event_streams_open") == 2)
        assert seen.value("perdure_http_requests_in_flight") == 1
        route = "/v1/agents/sessions/{session_id}/events"
        assert seen.values("perdure_http_requests_total", "method", "route", "code")["GET", route, "200"] == 2
    seen = until(lambda: scrape(server), lambda now: now.value("perdure_event_streams_open") == 0)
    assert seen.value("perdure_event_streams_interrupted_total") == 0


@pytest.mark.slow
def test_a_stream_whose_reader_is_too_slow_is_counted(servers: PrivateServers) -> None:
    server = servers('[server]\nstream_buffer = "64 KiB"\n')
    client = servers.client(server)
    session = create_idle(client, "echo")
    target = f"/v1/agents/sessions/{session.id}/events"
    headers = plain_headers(server.api_key)
    with EventSocket(server.address, "GET", target, headers, receive_buffer=4096) as reader:
        assert reader.status == 200
        client.beta.agents.sessions.update(session.id, agent={"model": "long"})
        while not scrape(server).value("perdure_event_streams_interrupted_total"):
            client.beta.agents.sessions.events.create(session.id, events=[message("More.")])
            until_status(client, session.id, "idle")
    seen = until(lambda: scrape(server), lambda now: now.value("perdure_event_streams_open") == 0)
    assert seen.value("perdure_event_streams_interrupted_total") == 1


def test_commits_are_counted_with_what_they_hold(servers: PrivateServers) -> None:
    server = servers()
    create_idle(servers.client(server), "greeter")
    seen = scrape(server)
    commits = seen.value("perdure_store_commits_total")
    assert commits == seen.value("perdure_store_commit_operations_count")
    assert commits == seen.value("perdure_store_commit_duration_seconds_count")
    # The session, its claim, the opened item, the step.
    assert seen.value("perdure_store_commit_operations_sum") >= 4
    assert seen.values("perdure_store_commit_failures_total", "reason") == {("unusable",): 0, ("error",): 0}


@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="limits the files of another process")
def test_a_database_that_takes_no_writes_is_counted(servers: PrivateServers) -> None:
    server = servers()
    client = servers.client(server, max_retries=0)
    create_idle(client, "echo")
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    with pytest.raises(openai.InternalServerError):
        create(client, "echo")
    seen = scrape(server)
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert seen.values("perdure_store_commit_failures_total", "reason")["unusable",] >= 1
    assert seen.values("perdure_store_commit_failures_total", "reason")["error",] == 0
    create_idle(client, "echo")


def test_the_backlog_tells_what_waits_and_for_whom(servers: PrivateServers) -> None:
    # Each first scrape of a server looks at the database; later ones may show the same look.
    server = servers(SETTINGS.replace("[work]", "[work]\nsession_concurrency = 1"))
    client = servers.client(server)
    waiting = create_waiting(client)
    client.beta.agents.sessions.events.create(waiting.id, events=[message("Meanwhile.")])
    gate = servers.gate(server)
    held = create(client, "held", gate.text)
    _until_turn(client, held.id, "in_progress")
    behind = create(client, "echo")
    assert _until_turn(client, behind.id, "queued")
    seen = scrape(server)
    assert seen.value("perdure_database_up") == 1
    assert seen.values("perdure_turns_unfinished", "status") == {
        ("queued",): 1,
        ("in_progress",): 1,
        ("waiting",): 1,
    }
    assert seen.value("perdure_turns_oldest_queued_age_seconds") > 0
    assert seen.value("perdure_inbox_inputs") == 1
    # That message waits for the application, which owes a result: nobody is late.
    assert seen.value("perdure_inbox_oldest_age_seconds") == 0


def _until_turn(client: OpenAI, session_id: str, status: str) -> Any:
    turns = client.beta.agents.sessions.turns
    return until(lambda: turns.list(session_id).data, lambda found: [t.status for t in found] == [status])


def test_models_that_clients_name_do_not_make_series_without_end(servers: PrivateServers) -> None:
    catch_all = '[[provider]]\nname = "any"\nprotocol = "scripted"\nmodels = ["any-*"]\n'
    server = servers(catch_all, {"greeter": MODELS["greeter"]})
    client = servers.client(server)
    sessions = [create(client, f"any-{number}") for number in range(103)]
    for session in sessions:
        until_status(client, session.id, "idle")
    seen = scrape(server).values("perdure_model_calls_total", "provider", "model")
    assert len(seen) == 101
    assert seen["any", "other"] == 3
