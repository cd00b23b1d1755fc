from __future__ import annotations

import threading
from typing import Any

import httpx2
import pytest
from openai import BadRequestError, ConflictError, OpenAI

from .conftest import Gate
from .inputs import message, tool_result
from .sessions import answers, create_idle, create_waiting, turns, user_texts
from .watch import until_status


def test_the_same_key_and_body_take_effect_once(client: OpenAI) -> None:
    session = create_idle(client)
    for _ in range(3):
        client.beta.agents.sessions.events.create(
            session.id, events=[message("Once.")], idempotency_key="the key"
        )
        until_status(client, session.id, "idle")
    assert user_texts(client, session.id) == ["Hello.", "Once."]
    assert len(turns(client, session.id)) == 2


def test_the_same_key_with_another_body_is_a_conflict_that_is_not_retried(client: OpenAI) -> None:
    session = create_idle(client)
    client.beta.agents.sessions.events.create(session.id, events=[message("Once.")], idempotency_key="k")
    with pytest.raises(ConflictError) as refusal:
        client.beta.agents.sessions.events.create(session.id, events=[message("Twice.")], idempotency_key="k")
    assert refusal.value.code == "idempotency_conflict"
    assert refusal.value.response.headers["x-should-retry"] == "false"
    until_status(client, session.id, "idle")
    assert user_texts(client, session.id) == ["Hello.", "Once."]


def test_another_way_to_write_the_same_body_is_the_same_body(client: OpenAI, raw: httpx2.Client) -> None:
    session = create_idle(client)
    said = '{"content":[{"text":"Once.","type":"input_text"}],"role":"user","type":"message"}'
    written = '{"events":[{"input":[SAID],"type":"agent.session.input.message"}]}'.replace("SAID", said)
    for body in (written, written.replace(":", " : ").replace("agent.session", "\\u0061gent.session")):
        response = raw.post(
            f"/agents/sessions/{session.id}/events",
            content=body,
            headers={"Content-Type": "application/json", "Idempotency-Key": "k"},
        )
        assert response.status_code == 202, response.text
    until_status(client, session.id, "idle")
    assert user_texts(client, session.id) == ["Hello.", "Once."]


def test_a_key_belongs_to_one_session(client: OpenAI) -> None:
    for session in (create_idle(client), create_idle(client)):
        client.beta.agents.sessions.events.create(
            session.id, events=[message("Once.")], idempotency_key="shared"
        )
        until_status(client, session.id, "idle")
        assert user_texts(client, session.id) == ["Hello.", "Once."]


def test_simultaneous_repeats_take_effect_once(client: OpenAI) -> None:
    session = create_idle(client)
    errors: list[Exception] = []

    def send() -> None:
        try:
            client.beta.agents.sessions.events.create(
                session.id, events=[message("Once.")], idempotency_key="k"
            )
        except Exception as error:  # noqa: BLE001  (reported below)
            errors.append(error)

    threads = [threading.Thread(target=send) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    until_status(client, session.id, "idle")
    assert user_texts(client, session.id) == ["Hello.", "Once."]


def test_the_refusal_of_an_unknown_call_is_not_remembered(client: OpenAI) -> None:
    session = create_waiting(client)
    (call,) = session.required_actions
    sessions = client.beta.agents.sessions
    for _ in range(2):
        with pytest.raises(BadRequestError):
            sessions.events.create(
                session.id, events=[tool_result(call, call_id="call_unknown")], idempotency_key="k"
            )
    sessions.events.create(session.id, events=[tool_result(call)], idempotency_key="k")
    until_status(client, session.id, "idle")
    assert answers(client, session.id) == ["It is 7 °C."]


def test_a_repeated_result_with_its_key_is_accepted_after_the_turn(client: OpenAI) -> None:
    session = create_waiting(client)
    (call,) = session.required_actions
    for _ in range(2):
        client.beta.agents.sessions.events.create(session.id, events=[tool_result(call)], idempotency_key="k")
        until_status(client, session.id, "idle")
    assert len(turns(client, session.id)) == 1


@pytest.mark.parametrize("key", ["k", "x" * 256, "with spaces & signs: äöü"])
def test_keys_of_one_to_256_characters_are_taken(client: OpenAI, raw: httpx2.Client, key: str) -> None:
    session = create_idle(client)
    for _ in range(2):
        response = raw.post(
            f"/agents/sessions/{session.id}/events",
            json={"events": [message("Once.")]},
            headers=[("Idempotency-Key", key.encode("latin-1"))],
        )
        assert response.status_code == 202, response.text
    until_status(client, session.id, "idle")
    assert user_texts(client, session.id) == ["Hello.", "Once."]


@pytest.mark.parametrize("key", ["", "x" * 257])
def test_other_keys_are_refused(client: OpenAI, raw: httpx2.Client, key: str) -> None:
    session = create_idle(client)
    response = raw.post(
        f"/agents/sessions/{session.id}/events",
        json={"events": [message("Once.")]},
        headers={"Idempotency-Key": key},
    )
    assert response.status_code == 400
    assert "idempotency-key" in response.json()["error"]["message"].lower()
    assert user_texts(client, session.id) == ["Hello."]


def test_without_a_key_nothing_is_deduplicated(client: OpenAI) -> None:
    session = create_idle(client)
    for _ in range(2):
        client.beta.agents.sessions.events.create(session.id, events=[message("Twice.")])
        until_status(client, session.id, "idle")
    assert user_texts(client, session.id) == ["Hello.", "Twice.", "Twice."]


def create(client: OpenAI, key: str, said: str = "Hello.", model: str = "echo", **options: Any) -> Any:
    return client.beta.agents.sessions.create(
        agent={"model": model},
        environment={"type": "none"},
        input=said,
        extra_headers={"Idempotency-Key": key},
        **options,
    )


def test_a_session_is_created_once_for_one_key(client: OpenAI) -> None:
    agent = client.beta.agents.create(model="echo")
    made = [
        client.beta.agents.sessions.create(
            agent_id=agent.id,
            environment={"type": "none"},
            input="Hello.",
            extra_headers={"Idempotency-Key": agent.id},
        ).id
        for _ in range(2)
    ]
    assert made[0] == made[1]
    assert [session.id for session in client.beta.agents.sessions.list(agent_id=agent.id)] == made[:1]


def test_another_creation_under_the_same_key_is_a_conflict(client: OpenAI) -> None:
    key = create_idle(client).id
    create(client, key)
    with pytest.raises(ConflictError) as refusal:
        create(client, key, "Goodbye.")
    assert refusal.value.code == "idempotency_conflict"
    assert refusal.value.response.headers["x-should-retry"] == "false"


def test_a_repeated_streamed_creation_ends_by_itself_with_the_same_result(client: OpenAI) -> None:
    key = create_idle(client).id
    first = create(client, key, stream=True).get_final_result()
    events = create(client, key, stream=True).with_result_collection()
    types = [event.type for event in events]
    assert (types[0], types[-1]) == ("agent.session.created", "agent.session.idle")
    again = events.get_final_result()
    assert (again.session_id, again.turn_id) == (first.session_id, first.turn_id)
    assert again.output_text == first.output_text == "You said: Hello."
    assert len(turns(client, first.session_id)) == 1


def test_a_repeated_streamed_creation_joins_the_running_turn(client: OpenAI, gate: Gate) -> None:
    key = gate.path.name
    first = create(client, key, gate.text, "gated", stream=True)
    for event in first:
        if event.type == "agent.session.turn.output_text.delta":
            break
    second = create(client, key, gate.text, "gated", stream=True).with_result_collection()
    for event in second:
        if event.type == "agent.session.turn.output_text.delta":
            gate.release()
    result = second.get_final_result()
    assert result.output_text == "Before, after."
    assert len(turns(client, result.session_id)) == 1
