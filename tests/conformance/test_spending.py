"""Usage by call, turn and session, what it cost, and what is kept when an answer breaks off."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from openai import OpenAI

from .conftest import Gate, PrivateServers
from .inputs import WEATHER, cancel, tool_result
from .scripts import MODELS, SETTINGS
from .sessions import create, create_idle, create_waiting, turns
from .test_usage import ONE_ANSWER
from .watch import Watcher, until, until_status

PRICES = """
[[price]]
models = ["greeter"]
input = 10.0
cached_input = 1.0
output = 50.0
"""
GREETING = (60 * 10 + 40 * 1 + 20 * 50) / 1e6


class Ledger:
    """The usage extension of one server."""

    def __init__(self, client: OpenAI) -> None:
        url = str(client.base_url).removesuffix("/v1/")
        self._http = httpx2.Client(base_url=url, headers={"Authorization": f"Bearer {client.api_key}"})

    def usage(self, session_id: str) -> Any:
        answer = self._http.get(f"/perdure/v1/sessions/{session_id}/usage")
        assert answer.status_code == 200, answer.text
        return answer.json()

    def calls(self, session_id: str, **query: Any) -> list[Any]:
        parameters = {"order": "asc", **query}
        answer = self._http.get(f"/perdure/v1/sessions/{session_id}/usage/calls", params=parameters)
        assert answer.status_code == 200, answer.text
        data: list[Any] = answer.json()["data"]
        return data

    def get(self, path: str) -> httpx2.Response:
        return self._http.get(path)


@pytest.fixture
def ledger(client: OpenAI) -> Ledger:
    return Ledger(client)


def test_each_call_is_listed_with_what_it_used(client: OpenAI, ledger: Ledger) -> None:
    session = create_idle(client, "greeter")
    (turn,) = turns(client, session.id)
    (call,) = ledger.calls(session.id)
    assert (call["turn_id"], call["number"], call["purpose"]) == (turn.id, 1, "step")
    assert (call["provider"], call["model"], call["outcome"]) == ("greeter", "greeter", "ok")
    assert call["usage"] == ONE_ANSWER
    assert call["is_partial"] is False
    assert call["started_at"] <= call["first_output_at"] <= call["ended_at"]
    assert (call["cost"], call["currency"]) == (None, None)


def test_calls_are_paged_and_filtered_by_turn(client: OpenAI, ledger: Ledger) -> None:
    session = create_idle(client, "greeter")
    for text in ("Two.", "Three."):
        with client.beta.agents.sessions.stream(session.id, input=text) as stream:
            stream.until_done()
    listed = ledger.calls(session.id)
    assert [call["number"] for call in listed] == [1, 2, 3]
    assert ledger.calls(session.id, limit=1, after=listed[0]["id"]) == [listed[1]]
    last = turns(client, session.id)[-1]
    assert ledger.calls(session.id, turn_id=last.id) == [listed[2]]
    assert ledger.calls(session.id, order="desc") == listed[::-1]


def test_sums_are_those_of_the_calls_the_turns_and_the_session(client: OpenAI, ledger: Ledger) -> None:
    session = create_waiting(client, "counted", tools=[WEATHER])
    client.beta.agents.sessions.events.create(session.id, events=[tool_result(session.required_actions[0])])
    until_status(client, session.id, "idle")
    client.beta.agents.sessions.update(session.id, agent={"model": "greeter"})
    with client.beta.agents.sessions.stream(session.id, input="Hello.") as stream:
        stream.until_done()
    shown = ledger.usage(session.id)
    total = client.beta.agents.sessions.retrieve(session.id).usage
    assert total is not None
    assert shown["usage"] == total.to_dict()
    calls = ledger.calls(session.id)
    assert sum(call["usage"]["total_tokens"] for call in calls) == total.total_tokens
    by_turn = {turn.id: turn.usage.total_tokens for turn in turns(client, session.id)}
    for turn_id, tokens in by_turn.items():
        used = [call["usage"]["total_tokens"] for call in calls if call["turn_id"] == turn_id]
        assert sum(used) == tokens
    assert shown["model_calls"] == 3
    assert shown["tool_calls"] == 1
    assert shown["unknown_calls"] == 0
    assert {model["model"]: model["calls"] for model in shown["models"]} == {"counted": 2, "greeter": 1}


def test_what_nobody_tells_is_null_in_the_sums_too(client: OpenAI, ledger: Ledger) -> None:
    session = create_idle(client, "silent-about-usage")
    shown = ledger.usage(session.id)
    assert (shown["model_calls"], shown["unknown_calls"], shown["usage"]) == (1, 1, None)
    assert shown["costs"] == []
    (call,) = ledger.calls(session.id)
    assert call["usage"] is None


def test_a_call_that_was_refused_is_listed_and_used_nothing(client: OpenAI, ledger: Ledger) -> None:
    session = create_idle(client, "faulty", "Please fail.")
    shown = ledger.usage(session.id)
    assert (shown["model_calls"], shown["unknown_calls"], shown["usage"]) == (1, 0, None)
    (call,) = ledger.calls(session.id)
    assert (call["outcome"], call["first_output_at"]) == ("authentication_error", None)


def test_attempts_that_were_made_again_are_calls_of_their_own(client: OpenAI, ledger: Ledger) -> None:
    session = create_idle(client, "flaky")
    assert [call["outcome"] for call in ledger.calls(session.id)] == ["server_overloaded", "ok"]
    assert ledger.usage(session.id)["model_calls"] == 2


def test_a_cancelled_turn_keeps_what_it_used(client: OpenAI, ledger: Ledger, gate: Gate) -> None:
    session = create_idle(client, "greeter")
    client.beta.agents.sessions.update(session.id, agent={"model": "gated"})
    with Watcher(client, session.id) as watcher:
        client.beta.agents.sessions.events.create(
            session.id,
            events=[
                {
                    "type": "agent.session.input.message",
                    "input": [
                        {
                            "type": "message",
                            "role": "user",
                            "content": [{"type": "input_text", "text": gate.text}],
                        }
                    ],
                }
            ],
        )
        watcher.wait("agent.session.turn.output_text.delta")
        client.beta.agents.sessions.events.create(session.id, events=[cancel()])
        watcher.wait("agent.session.turn.cancelled")
    calls = ledger.calls(session.id)
    assert [call["outcome"] for call in calls] == ["ok", "cancelled"]
    assert calls[1]["usage"] is None
    shown = ledger.usage(session.id)
    assert shown["usage"] == ONE_ANSWER
    assert shown["unknown_calls"] == 1


def test_costs_are_estimated_by_the_prices_and_shown_where_sessions_are_listed(
    private_servers: PrivateServers,
) -> None:
    client = private_servers.client(private_servers(SETTINGS + PRICES))
    ledger = Ledger(client)
    session = create_idle(client, "greeter")
    with client.beta.agents.sessions.stream(session.id, input="Again.") as stream:
        stream.until_done()
    shown = ledger.usage(session.id)
    (cost,) = shown["costs"]
    assert (cost["currency"], cost["unpriced_calls"]) == ("USD", 0)
    assert cost["amount"] == pytest.approx(2 * GREETING)
    assert [call["cost"] for call in ledger.calls(session.id)] == [pytest.approx(GREETING)] * 2
    listed = ledger.get("/perdure/v1/sessions?status=idle").json()["data"]
    assert [row["cost"] for row in listed] == [pytest.approx(2 * GREETING)]
    client.beta.agents.sessions.update(session.id, agent={"model": "echo"})
    with client.beta.agents.sessions.stream(session.id, input="Free?") as stream:
        stream.until_done()
    (cost,) = ledger.usage(session.id)["costs"]
    assert cost["amount"] == pytest.approx(2 * GREETING)
    assert cost["unpriced_calls"] == 1


def test_the_ceilings_of_a_session_are_shown_with_what_was_used(client: OpenAI, ledger: Ledger) -> None:
    session = create_waiting(client)
    client.beta.agents.sessions.update(session.id, metadata={"perdure.limit.model_calls_per_session": "7"})
    limits = {limit["name"]: limit for limit in ledger.usage(session.id)["limits"]}
    of_session = limits["model_calls_per_session"]
    assert (of_session["value"], of_session["source"], of_session["used"]) == (7, "session", 1)
    of_turn = limits["tool_calls_per_turn"]
    assert (of_turn["value"], of_turn["source"], of_turn["used"]) == (500, "server", 1)
    assert limits["repeated_calls"]["used"] is None
    assert limits["spend_per_session"]["value"] is None


def test_calls_are_removed_with_their_session(private_servers: PrivateServers) -> None:
    server = private_servers(scripts=MODELS)
    client = private_servers.client(server)
    ledger = Ledger(client)
    session = create_idle(client, "greeter")
    client.beta.agents.sessions.delete(session.id)
    assert ledger.get(f"/perdure/v1/sessions/{session.id}/usage").status_code == 404
    assert ledger.get(f"/perdure/v1/sessions/{session.id}/usage/calls").status_code == 404
    path = server.data_dir / "perdure.db"
    until(lambda: count(path, session.id), lambda number: number == 0)


def count(path: Any, session_id: str) -> int:
    import sqlite3

    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as conn:
        query = "SELECT count(*) FROM model_calls WHERE session_id = ?"
        return int(conn.execute(query, (session_id,)).fetchone()[0])


def test_another_project_sees_no_usage(client: OpenAI, foreign_client: OpenAI) -> None:
    session = create(client, "greeter")
    foreign = Ledger(foreign_client)
    assert foreign.get(f"/perdure/v1/sessions/{session.id}/usage").status_code == 404
    assert foreign.get(f"/perdure/v1/sessions/{session.id}/usage/calls").status_code == 404


def test_a_model_that_was_killed_in_mid_call_is_counted(private_servers: PrivateServers) -> None:
    server = private_servers()
    client, gate = private_servers.client(server), private_servers.gate(server)
    session = create(client, "held", gate.text)
    until_status(client, session.id, "in_progress")
    until(lambda: turns(client, session.id)[0].status, lambda status: status == "in_progress")
    server.kill()
    server.start()
    gate.release()
    again = private_servers.client(server)
    until_status(again, session.id, "idle")
    ledger = Ledger(again)
    assert [call["outcome"] for call in ledger.calls(session.id)] == ["interrupted", "ok"]
    assert ledger.usage(session.id)["model_calls"] == 2
