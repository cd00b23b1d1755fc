from __future__ import annotations

from typing import Any

import httpx2
import pytest
from openai import ConflictError, NotFoundError, OpenAI

from .conftest import Gate
from .inputs import WEATHER, cancel, message, tool_result
from .sessions import create, create_idle, create_waiting, turns
from .watch import Watcher, until_status


def test_delete_answers_with_the_deletion(client: OpenAI) -> None:
    session = create_idle(client)
    deletion = client.beta.agents.sessions.delete(session.id)
    assert deletion.to_dict() == {"id": session.id, "object": "agent.session.deleted", "deleted": True}


def test_nothing_is_left_of_a_deleted_session(client: OpenAI) -> None:
    session = create_idle(client)
    (turn,) = turns(client, session.id)
    client.beta.agents.sessions.delete(session.id)
    sessions = client.beta.agents.sessions
    for use in (
        lambda: sessions.retrieve(session.id),
        lambda: sessions.update(session.id, metadata={}),
        lambda: sessions.items.list(session.id),
        lambda: sessions.turns.list(session.id),
        lambda: sessions.turns.retrieve(turn.id, session_id=session.id),
        lambda: sessions.turns.items.list(turn.id, session_id=session.id),
        lambda: sessions.events.create(session.id, events=[message("Hello?")]),
        lambda: sessions.events.create(session.id, events=[]),
        lambda: sessions.events.stream(session.id),
    ):
        with pytest.raises(NotFoundError) as refusal:
            use()
        assert refusal.value.code == "not_found_error"
    assert sessions.list(agent_id=session.agent.id).data == []


def test_a_repeated_delete_is_answered_like_the_first(client: OpenAI) -> None:
    session = create_idle(client)
    assert client.beta.agents.sessions.delete(session.id) == client.beta.agents.sessions.delete(session.id)


def test_an_unknown_session_cannot_be_deleted(client: OpenAI) -> None:
    with pytest.raises(NotFoundError):
        client.beta.agents.sessions.delete("sess_unknown")


def test_a_running_session_is_kept_and_the_client_is_told_not_to_retry(
    client: OpenAI, raw: httpx2.Client, gate: Gate
) -> None:
    session = create(client, "held", gate.text)
    response = raw.delete(f"/agents/sessions/{session.id}")
    assert response.status_code == 409
    assert response.json()["error"]["code"] == "conflict_error"
    assert response.headers["x-should-retry"] == "false"
    assert client.beta.agents.sessions.retrieve(session.id).status == "in_progress"
    gate.release()
    until_status(client, session.id, "idle")
    client.beta.agents.sessions.delete(session.id)


def test_a_waiting_session_is_kept(client: OpenAI) -> None:
    session = create_waiting(client)
    with pytest.raises(ConflictError) as refusal:
        client.beta.agents.sessions.delete(session.id)
    assert refusal.value.response.headers["x-should-retry"] == "false"
    (call,) = client.beta.agents.sessions.retrieve(session.id).required_actions
    client.beta.agents.sessions.events.create(session.id, events=[tool_result(call)])
    until_status(client, session.id, "idle")


def test_a_session_that_still_owes_a_late_result_is_kept_until_a_cancel(client: OpenAI) -> None:
    later: Any = {**WEATHER, "async": True}
    session = create_idle(client, "late", "The weather?", tools=[later])
    with pytest.raises(ConflictError) as refusal:
        client.beta.agents.sessions.delete(session.id)
    assert refusal.value.response.headers["x-should-retry"] == "false"
    client.beta.agents.sessions.events.create(session.id, events=[cancel()])
    assert client.beta.agents.sessions.delete(session.id).deleted is True


def test_delete_right_behind_an_accepted_message_is_refused(client: OpenAI, gate: Gate) -> None:
    session = create_idle(client, "held")
    client.beta.agents.sessions.events.create(session.id, events=[message(gate.text)])
    with pytest.raises(ConflictError):
        client.beta.agents.sessions.delete(session.id)


def test_delete_right_behind_a_cancel_succeeds(client: OpenAI, gate: Gate) -> None:
    running = create(client, "held", gate.text)
    waiting = create_waiting(client)
    for session in (running, waiting):
        client.beta.agents.sessions.events.create(session.id, events=[cancel()])
        assert client.beta.agents.sessions.delete(session.id).deleted is True
        with pytest.raises(NotFoundError):
            client.beta.agents.sessions.retrieve(session.id)


def test_open_streams_of_a_deleted_session_end_in_silence(client: OpenAI) -> None:
    session = create_idle(client)
    with Watcher(client, session.id) as first, Watcher(client, session.id) as second:
        client.beta.agents.sessions.delete(session.id)
        for watcher in (first, second):
            assert [event.type for event in watcher.wait_end()] == ["agent.session.idle"]
