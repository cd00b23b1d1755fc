"""A server that is killed loses nothing it has accepted."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import pytest
from openai import APIConnectionError, NotFoundError, OpenAI

from .conftest import PrivateServers
from .inputs import CLOCK, WEATHER, message, tool_result
from .sessions import answers, create, create_idle, create_waiting, items, kinds, turns, user_texts
from .watch import DEADLINE, Watcher, until, until_status, until_turn


def answer_all(client: OpenAI, session: Any) -> None:
    for call in session.required_actions:
        client.beta.agents.sessions.events.create(session.id, events=[tool_result(call)])


def test_a_call_is_answered_after_a_kill_with_nothing_but_the_session_id(
    private_servers: PrivateServers,
) -> None:
    server = private_servers()
    session_id = create_waiting(private_servers.client(server)).id
    server.kill()
    server.restart()
    client = private_servers.client(server)
    session = client.beta.agents.sessions.retrieve(session_id)
    assert session.status == "requires_action"
    (call,) = session.required_actions
    assert client.beta.agents.sessions.turns.retrieve(call.turn_id, session_id=session_id).status == "waiting"
    answer_all(client, session)
    until_status(client, session_id, "idle")
    assert answers(client, session_id) == ["It is 7 °C."]
    (turn,) = turns(client, session_id)
    assert (turn.id, turn.status) == (call.turn_id, "completed")
    assert kinds(items(client, session_id)) == ["user", "function_call", "function_call_output", "assistant"]


def test_one_result_before_the_kill_and_one_behind_it(private_servers: PrivateServers) -> None:
    server = private_servers()
    client = private_servers.client(server)
    session = create_waiting(client, "parallel", "both", tools=[WEATHER, CLOCK])
    first, second = session.required_actions
    client.beta.agents.sessions.events.create(session.id, events=[tool_result(first)])
    server.kill()
    server.restart()
    client = private_servers.client(server)
    assert client.beta.agents.sessions.retrieve(session.id).required_actions == [second]
    client.beta.agents.sessions.events.create(session.id, events=[tool_result(first)])
    client.beta.agents.sessions.events.create(session.id, events=[tool_result(second)])
    until_status(client, session.id, "idle")
    assert answers(client, session.id) == ["Both are in."]


def test_accepted_messages_survive_a_kill_in_mid_text(private_servers: PrivateServers) -> None:
    server = private_servers()
    client, gate = private_servers.client(server), private_servers.gate(server)
    session = create(client, "gated", gate.text)
    with Watcher(client, session.id) as watcher:
        turn_id = watcher.wait("agent.session.turn.output_text.delta").turn_id
        client.beta.agents.sessions.events.create(session.id, events=[message("And you?")])
        server.kill()
    gate.release()
    server.restart()
    client = private_servers.client(server)
    until_turn(client, session.id, turn_id, "completed")
    until_status(client, session.id, "idle")
    assert user_texts(client, session.id) == [gate.text, "And you?"]
    # The repeated step may take the message along, or leave it to the next turn.
    assert {turn.status for turn in turns(client, session.id)} == {"completed"}
    assert answers(client, session.id)[-1] == "You said: And you?"


def test_a_cancel_accepted_before_the_kill_holds_behind_it(private_servers: PrivateServers) -> None:
    server = private_servers()
    client, gate = private_servers.client(server), private_servers.gate(server)
    session = create(client, "held", gate.text)
    until(lambda: turns(client, session.id)[0].status, lambda status: status == "in_progress")
    client.beta.agents.sessions.events.create(session.id, events=[{"type": "agent.session.input.cancel"}])
    server.kill()
    server.restart()
    client = private_servers.client(server)
    until_status(client, session.id, "idle")
    assert [turn.status for turn in turns(client, session.id)] == ["cancelled"]
    with client.beta.agents.sessions.stream(session.id, input="Go on.") as stream:
        assert stream.get_final_result().output_text == "You said: Go on."


def test_everything_reads_the_same_after_a_restart(private_servers: PrivateServers) -> None:
    server = private_servers()
    client = private_servers.client(server)
    agent = client.beta.agents.create(model="echo", name="helper", tools=[WEATHER])
    session = create_idle(client, "greeter", "Hello.", tools=[WEATHER])
    gone = create_idle(client)
    client.beta.agents.sessions.delete(gone.id)
    before = (session, items(client, session.id), turns(client, session.id), agent)
    server.restart()
    client = private_servers.client(server)
    after = (
        client.beta.agents.sessions.retrieve(session.id),
        items(client, session.id),
        turns(client, session.id),
        client.beta.agents.retrieve(agent.id),
    )
    assert after == before
    with pytest.raises(NotFoundError):
        client.beta.agents.sessions.retrieve(gone.id)
    assert client.beta.agents.sessions.delete(gone.id).deleted is True


def test_keys_hold_across_a_restart(private_servers: PrivateServers) -> None:
    server = private_servers()
    client = private_servers.client(server)
    session = create_idle(client)
    client.beta.agents.sessions.events.create(session.id, events=[message("Once.")], idempotency_key="k")
    until_status(client, session.id, "idle")
    server.kill()
    server.restart()
    client = private_servers.client(server)
    client.beta.agents.sessions.events.create(session.id, events=[message("Once.")], idempotency_key="k")
    until_status(client, session.id, "idle")
    assert user_texts(client, session.id) == ["Hello.", "Once."]


def write_on(
    client: OpenAI, session_id: str, life: int, accepted: list[str], enough: threading.Event
) -> None:
    """Posts numbered messages until the server is gone, and notes those it has accepted."""
    for number in itertools.count():
        text = f"Life {life}, message {number}."
        try:
            client.beta.agents.sessions.events.create(session_id, events=[message(text)])
        except APIConnectionError:
            return
        accepted.append(text)
        if number == 20:
            enough.set()


def test_whatever_was_accepted_before_a_kill_is_applied_exactly_once(private_servers: PrivateServers) -> None:
    server = private_servers()
    client = private_servers.client(server, max_retries=0)
    sessions = [create_idle(client) for _ in range(4)]
    accepted: dict[str, list[str]] = {session.id: ["Hello."] for session in sessions}
    for life in range(3):
        enough = threading.Event()
        writers = [
            threading.Thread(target=write_on, args=(client, key, life, texts, enough))
            for key, texts in accepted.items()
        ]
        for writer in writers:
            writer.start()
        assert enough.wait(DEADLINE)
        server.kill()
        for writer in writers:
            writer.join()
        server.restart()
        client = private_servers.client(server, max_retries=0)
    for session in sessions:
        until_status(client, session.id, "idle")
        said = user_texts(client, session.id)
        assert len(set(said)) == len(said)
        # The last request of each life may have been applied without an answer; all answered ones were.
        assert [text for text in said if text in accepted[session.id]] == accepted[session.id]
        assert len(said) <= len(accepted[session.id]) + 3
        assert {turn.status for turn in turns(client, session.id)} == {"completed"}
