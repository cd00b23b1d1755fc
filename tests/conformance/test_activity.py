"""Finding what runs and ending it, over the API and with the command."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from typing import Any

import httpx2
from openai import OpenAI
from tests.server import ServerProcess

from .conftest import Gate
from .inputs import NONE, WEATHER
from .watch import Watcher, until_status


def activity(http: httpx2.Client, **query: Any) -> dict[str, dict[str, Any]]:
    url = str(http.base_url).replace("/v1", "/perdure/v1")
    found: dict[str, dict[str, Any]] = {}
    while True:
        page = http.get(f"{url}sessions", params=query).raise_for_status().json()
        found |= {row["id"]: row for row in page["data"]}
        if not page["has_more"]:
            return found
        query["after"] = page["last_id"]


def command(server: ServerProcess, *arguments: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PERDURE_URL": server.url, "PERDURE_API_KEY": server.api_key}
    environ.pop("PERDURE_CONFIG", None)
    return subprocess.run(
        [sys.executable, "-m", "perdure.cli.main", "sessions", *arguments],
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_what_runs_and_what_waits_is_listed_and_what_is_idle_only_on_request(
    server: ServerProcess, client: OpenAI, raw: httpx2.Client, gate: Gate
) -> None:
    sessions = client.beta.agents.sessions
    running = sessions.create(agent={"model": "gated"}, environment=NONE, input=gate.text)
    waiting = sessions.create(
        agent={"model": "weather", "tools": [WEATHER]}, environment=NONE, input="The weather?"
    )
    idle = sessions.create(agent={"model": "echo"}, environment=NONE, input="Hello.")
    until_status(client, waiting.id, "requires_action")
    until_status(client, idle.id, "idle")
    with Watcher(client, running.id) as watcher:
        watcher.wait("agent.session.turn.output_text.delta")
    found = activity(raw, limit=1)
    assert idle.id not in found
    assert found[running.id]["owned"] is True
    owner = found[running.id]["owner"]
    assert (owner["host"], owner["pid"]) == (socket.gethostname(), server.pid)
    assert found[running.id]["turn"]["status"] == "in_progress"
    assert found[waiting.id]["turn"]["status"] == "waiting"
    assert found[waiting.id]["open_calls"] == 1
    assert found[waiting.id]["turn"]["model_calls"] == 1
    assert found[waiting.id]["turn"]["usage"]["total_tokens"] > 0
    assert found[waiting.id]["owned"] is False
    assert found[waiting.id]["owner"] is None
    everything = activity(raw, status="idle")
    assert everything[idle.id]["turn"] is None
    assert running.id not in everything


def test_the_commands_list_and_stop_over_a_running_server(
    server: ServerProcess, client: OpenAI, gate: Gate
) -> None:
    sessions = client.beta.agents.sessions
    running = sessions.create(agent={"model": "held"}, environment=NONE, input=gate.text)
    listed = command(server, "ps", "--json")
    assert listed.returncode == 0, listed.stderr
    assert running.id in {row["id"] for row in json.loads(listed.stdout)}
    assert f"{socket.gethostname()}:{server.pid}" in command(server, "ps").stdout
    stopped = command(server, "stop", running.id)
    assert stopped.returncode == 0, stopped.stderr
    until_status(client, running.id, "idle")
    assert [turn.status for turn in sessions.turns.list(running.id)] == ["cancelled"]


def test_a_command_that_cannot_work_says_why(server: ServerProcess) -> None:
    gone = command(server, "stop", "sess_nosuch")
    assert (gone.returncode, "No such resource" in gone.stderr) == (1, True)
    away = command(server, "ps", "--url", "http://127.0.0.1:1")
    assert (away.returncode, "cannot be reached" in away.stderr) == (1, True)
