from __future__ import annotations

from typing import Any

import pytest
from openai import OpenAI

from .inputs import message
from .scripts import FAULT_CODES
from .sessions import answers, create, create_idle, items, kinds, text_of, turns
from .watch import Watcher, until_status


def fail(client: OpenAI, session_id: str, said: str) -> list[Any]:
    """All events from the message that makes the model fail to the idle behind it."""
    with Watcher(client, session_id) as watcher:
        watcher.wait("agent.session.idle")
        client.beta.agents.sessions.events.create(session_id, events=[message(said)])
        watcher.wait("agent.session.idle", after=1)
        return watcher.events[1:]


def test_the_turn_fails_with_a_code_and_the_session_is_idle(client: OpenAI) -> None:
    session = create_idle(client, "faulty")
    events = fail(client, session.id, "Please fail.")
    types = [event.type for event in events]
    assert set(types[-3:-1]) == {"agent.session.turn.failed", "error"}
    assert types[-1] == "agent.session.idle"
    failed = next(event for event in events if event.type == "agent.session.turn.failed")
    assert failed.turn.status == "failed"
    assert failed.turn.error is not None
    assert failed.turn.error.code == "authentication_error"
    assert failed.turn.error.message
    error = next(event for event in events if event.type == "error")
    assert error.session_id == session.id
    assert error.error.code == "authentication_error"
    assert error.error.message
    idle = events[-1].session
    assert (idle.status, idle.error) == ("idle", None)
    (_, turn) = turns(client, session.id)
    assert turn == failed.turn
    after = client.beta.agents.sessions.retrieve(session.id)
    assert (after.status, after.error, after.required_actions) == ("idle", None, [])


def test_the_session_can_go_on_after_a_failed_turn(client: OpenAI) -> None:
    session = create_idle(client, "faulty")
    fail(client, session.id, "Please fail.")
    with client.beta.agents.sessions.stream(session.id, input="Better?") as stream:
        assert stream.get_final_result().output_text == "You said: Better?"
    assert kinds(items(client, session.id)) == ["user", "assistant", "user", "user", "assistant"]
    assert [turn.status for turn in turns(client, session.id)] == ["completed", "failed", "completed"]


def test_a_first_turn_that_fails_does_not_fail_the_session(client: OpenAI) -> None:
    session = until_status(client, create(client, "faulty", "Please fail.").id, "idle", "failed")
    assert (session.status, session.error) == ("idle", None)
    assert [turn.status for turn in turns(client, session.id)] == ["failed"]


def test_text_said_before_the_failure_is_kept_as_incomplete(client: OpenAI) -> None:
    session = create_idle(client, "faulty")
    events = fail(client, session.id, "Please break off.")
    done = [event.item for event in events if event.type == "agent.session.turn.item.done"]
    assert {item.status for item in done} == {"incomplete"}
    assert {text_of(item) for item in done} == {"Half of "}
    last = items(client, session.id)[-1]
    assert (last.status, text_of(last)) == ("incomplete", "Half of ")
    with client.beta.agents.sessions.stream(session.id, input="Better?") as stream:
        assert stream.get_final_result().output_text == "You said: Better?"


def test_a_passing_fault_is_repaired_by_another_attempt(client: OpenAI) -> None:
    session = create_idle(client, "flaky", "Once.")
    assert [turn.status for turn in turns(client, session.id)] == ["completed"]
    assert answers(client, session.id) == ["At last."]


@pytest.mark.parametrize("code", FAULT_CODES)
def test_every_reason_keeps_its_code(client: OpenAI, code: str) -> None:
    session = until_status(client, create(client, "any-fault", f"fault {code}").id, "idle")
    (turn,) = turns(client, session.id)
    assert turn.status == "failed"
    assert turn.error is not None
    assert turn.error.code == code
