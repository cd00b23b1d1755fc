"""How streams end, and that nobody waits for a reader."""

from __future__ import annotations

import pytest
from openai import OpenAI
from tests.server import ServerProcess

from .conftest import PrivateServers
from .inputs import message
from .rawhttp import EventSocket, plain_headers
from .sessions import create, create_idle, create_waiting, items, text_of, turns
from .watch import Watcher, until, until_status, until_turn

TURN = "agent.session.turn."


def slow_reader(server: ServerProcess, session_id: str) -> EventSocket:
    return EventSocket(
        server.address,
        "GET",
        f"/v1/agents/sessions/{session_id}/events?include_obfuscation=false",
        plain_headers(server.api_key),
        receive_buffer=4096,
    )


def test_a_reader_that_reads_late_gets_all_the_text_and_holds_nobody_up(
    client: OpenAI, server: ServerProcess
) -> None:
    session = create_idle(client, "echo")
    client.beta.agents.sessions.update(session.id, agent={"model": "long"})
    with slow_reader(server, session.id) as reader:
        reader.events_to("agent.session.idle")
        client.beta.agents.sessions.events.create(session.id, events=[message("Speak.")])
        until_status(client, session.id, "idle")
        events = reader.events_to("agent.session.idle")
    text = text_of(items(client, session.id)[-1])
    assert len(text) == 1 << 20
    assert "".join(event["delta"] for event in events if event["type"] == f"{TURN}output_text.delta") == text
    assert [event["text"] for event in events if event["type"] == f"{TURN}output_text.done"] == [text]


def test_a_reader_too_far_behind_is_told_and_dropped_and_the_turns_go_on(
    client: OpenAI, server: ServerProcess
) -> None:
    session = create_idle(client, "echo")
    client.beta.agents.sessions.update(session.id, agent={"model": "long"})
    with slow_reader(server, session.id) as reader:
        reader.events_to("agent.session.idle")
        # Each turn carries its text of 1 MiB four times; socket buffers and server hold less than six turns.
        for number in range(6):
            with client.beta.agents.sessions.stream(session.id, input=f"Speak {number}.") as stream:
                stream.until_done()
        received = list(reader.events())
    assert received[-1]["type"] == "error"
    assert received[-1]["error"]["code"] == "stream_interrupted"
    assert received[-1]["session_id"] == session.id
    whole = text_of(client.beta.agents.sessions.items.list(session.id, limit=1).data[0])
    said = "".join(event["delta"] for event in received if event["type"] == f"{TURN}output_text.delta")
    assert (whole * 6).startswith(said)
    assert client.beta.agents.sessions.retrieve(session.id).status == "idle"
    assert [turn.status for turn in turns(client, session.id)] == ["completed"] * 7


def test_a_stopping_server_ends_all_streams_and_exits_with_success(private_servers: PrivateServers) -> None:
    server = private_servers()
    client, gate = private_servers.client(server), private_servers.gate(server)
    idle, waiting, running = create_idle(client), create_waiting(client), create(client, "gated", gate.text)
    watchers = [Watcher(client, session.id) for session in (idle, waiting, running) for _ in range(3)]
    for watcher in watchers:
        until(lambda seen=watcher: seen.events, bool)
    watchers[-1].wait(f"{TURN}output_text.delta")
    assert server.terminate() == 0
    for watcher in watchers:
        watcher.wait_end()


def test_a_stopped_server_goes_on_where_it_was(private_servers: PrivateServers) -> None:
    server = private_servers()
    client, gate = private_servers.client(server), private_servers.gate(server)
    session = create(client, "gated", gate.text)
    with Watcher(client, session.id) as watcher:
        turn_id = watcher.wait(f"{TURN}output_text.delta").turn_id
        assert server.terminate() == 0
    server.start()
    client = private_servers.client(server)
    gate.release()
    turn = until_turn(client, session.id, turn_id, "completed", "failed", "cancelled")
    assert turn.status == "completed"
    until_status(client, session.id, "idle")
    assert text_of(items(client, session.id)[-1]) == "Before, after."


def test_the_server_prints_one_line_and_logs_elsewhere(private_servers: PrivateServers) -> None:
    server = private_servers()
    client = private_servers.client(server)
    create_idle(client)
    assert server.terminate() == 0
    assert server.printed == [f"perdure listening on {server.url}"]


def test_a_second_server_on_the_same_data_is_refused_in_words(private_servers: PrivateServers) -> None:
    server = private_servers()
    second = ServerProcess(server.config, server.data_dir)
    with pytest.raises(AssertionError, match="no listening line"):
        second.start()
    assert str(server.data_dir) in second.stderr()
    assert "Traceback" not in second.stderr()
    create_idle(private_servers.client(server))
