"""Sessions outlive the processes that run them."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from openai import OpenAI
from sqlalchemy import text
from tests.conformance.inputs import WEATHER, cancel, message, tool_result
from tests.conformance.sessions import answers, items, kinds, text_of, turns, user_texts
from tests.conformance.watch import until, until_status
from tests.postgres import PostgresServer

from .fleet import STORY, Fleet, Provider, begin

pytestmark = pytest.mark.slow

SHORT_LEASE = "[work]\nlease = 1.5\n"
QUICK_DRAIN = "[work]\ndrain = 0.2\n"


def until_writing(fleet: Fleet, session_id: str) -> str:
    """Some of the text is in the rows."""
    return until(lambda: fleet.saved(session_id), bool)


def until_owned(fleet: Fleet, session_id: str, other_than: str | None = None) -> tuple[int, str]:
    owner = until(lambda: fleet.owner(session_id), lambda o: o is not None and o[1] != other_than)
    assert owner is not None
    return owner


def check_repeated(client: OpenAI, session_id: str, said: str, shown: str) -> None:
    """One turn that was broken off in its text, which is closed, and then completed as a new item."""
    until_status(client, session_id, "idle")
    assert [turn.status for turn in turns(client, session_id)] == ["completed"]
    found = items(client, session_id)
    assert kinds(found) == ["user", "assistant", "assistant"]
    assert [item.status for item in found[1:]] == ["incomplete", "completed"]
    assert text_of(found[1]).startswith(shown)
    assert text_of(found[2]) == f"You said: {said}"


def test_a_worker_runs_what_a_server_accepts(fleet: Fleet) -> None:
    server, worker = fleet.server(), fleet.worker()
    client = fleet.client(server)
    session_id = begin(client, "call it", tools=[WEATHER])
    until_status(client, session_id, "requires_action")
    assert fleet.ask("SELECT owner FROM sessions") == [(None,)]
    call = client.beta.agents.sessions.retrieve(session_id).required_actions[0]
    client.beta.agents.sessions.events.create(session_id, events=[tool_result(call)])
    until_status(client, session_id, "idle")
    assert answers(client, session_id) == ["You said: call it"]
    assert worker.terminate() == 0
    assert fleet.ask("SELECT id FROM workers") == fleet.ask("SELECT id FROM procrastinate_jobs") == []


def test_a_killed_workers_turn_is_finished_by_another(fleet: Fleet) -> None:
    client = fleet.client(fleet.server())
    first = fleet.worker()
    session_id = begin(client, "slow story")
    shown = until_writing(fleet, session_id)
    fleet.worker()
    first.kill()
    check_repeated(client, session_id, "slow story", shown)
    assert len(fleet.provider.asked("slow story")) == 2


def test_a_killed_workers_turn_is_finished_by_the_next_one(fleet: Fleet) -> None:
    client = fleet.client(fleet.server())
    worker = fleet.worker()
    session_id = begin(client, "slow story")
    shown = until_writing(fleet, session_id)
    worker.kill()
    fleet.worker()
    check_repeated(client, session_id, "slow story", shown)


def test_a_stopped_worker_that_goes_on_late_does_nothing_more(fleet: Fleet) -> None:
    client = fleet.client(fleet.server(settings=SHORT_LEASE))
    stopped = fleet.worker(SHORT_LEASE)
    session_id = begin(client, "slow story")
    shown = until_writing(fleet, session_id)
    _, owner = until_owned(fleet, session_id)
    (request,) = fleet.provider.asked("slow story")
    watcher = fleet.watch(client, session_id)
    stopped.send_signal(signal.SIGSTOP)
    other = fleet.worker(SHORT_LEASE)
    check_repeated(client, session_id, "slow story", shown)
    asked = len(fleet.provider.requests)
    before = (
        fleet.ask("SELECT * FROM sessions"),
        fleet.ask("SELECT * FROM items"),
        fleet.ask("SELECT * FROM events"),
    )
    stopped.send_signal(signal.SIGCONT)
    # It hangs up, and registers as another worker, once it has noticed.
    until(request.left.is_set, bool)
    until(
        lambda: fleet.ask(
            "SELECT id FROM workers WHERE pid = :pid ORDER BY started_us DESC LIMIT 1", pid=stopped.pid
        ),
        lambda found: found != [(owner,)],
    )
    assert before == (
        fleet.ask("SELECT * FROM sessions"),
        fleet.ask("SELECT * FROM items"),
        fleet.ask("SELECT * FROM events"),
    )
    assert len(fleet.provider.requests) == asked
    # Whoever follows the session has heard nothing behind its end.
    assert watcher.types[-1] == "agent.session.idle"
    # It is of use again.
    other.kill()
    client.beta.agents.sessions.events.create(session_id, events=[message("Are you there?")])
    until_status(client, session_id, "idle")
    assert answers(client, session_id)[-1] == "You said: Are you there?"


def test_a_stopping_worker_hands_its_session_to_another(fleet: Fleet) -> None:
    client = fleet.client(fleet.server())
    first = fleet.worker(QUICK_DRAIN)
    session_id = begin(client, "slow story")
    shown = until_writing(fleet, session_id)
    fleet.worker()
    assert first.terminate() == 0
    check_repeated(client, session_id, "slow story", shown)


def test_a_stopping_worker_finishes_its_step_and_hands_over_the_next(fleet: Fleet) -> None:
    client = fleet.client(fleet.server())
    first = fleet.worker()
    session_id = begin(client, "fix it", tools=[WEATHER])
    until_writing(fleet, session_id)
    fleet.worker()
    assert first.terminate() == 0
    until_status(client, session_id, "idle")
    found = items(client, session_id)
    assert kinds(found) == ["user", "assistant", "function_call", "function_call_output", "assistant"]
    assert [found[1].status, found[-1].status] == ["completed", "completed"]
    assert len(fleet.provider.asked("fix it")) == 2


def test_a_result_waits_for_the_next_worker(fleet: Fleet) -> None:
    client = fleet.client(fleet.server())
    worker = fleet.worker()
    session_id = begin(client, "call it", tools=[WEATHER])
    until_status(client, session_id, "requires_action")
    assert worker.terminate() == 0
    call = client.beta.agents.sessions.retrieve(session_id).required_actions[0]
    client.beta.agents.sessions.events.create(session_id, events=[tool_result(call)])
    assert fleet.ask("SELECT status FROM procrastinate_jobs") == [("todo",)]
    fleet.worker()
    until_status(client, session_id, "idle")


def test_a_second_interrupt_waits_for_nothing(fleet: Fleet) -> None:
    client = fleet.client(fleet.server())
    worker = fleet.worker("[work]\ndrain = 3600\n")
    session_id = begin(client, "slow story")
    until_writing(fleet, session_id)
    worker.send_signal(signal.SIGINT)
    until(worker.stderr, lambda logged: "draining" in logged)
    worker.send_signal(signal.SIGINT)
    assert worker.wait() == 0
    assert fleet.ask("SELECT owner FROM sessions") == [(None,)]


@pytest.mark.parametrize("state", ["queued", "running", "waiting"])
def test_a_cancel_ends_a_turn_though_no_worker_lives(fleet: Fleet, state: str) -> None:
    client = fleet.client(fleet.server())
    said = "call it" if state == "waiting" else "slow story"
    if state == "queued":
        session_id = begin(client, said)
    else:
        worker = fleet.worker()
        session_id = begin(client, said, tools=[WEATHER])
        if state == "waiting":
            until_status(client, session_id, "requires_action")
        else:
            until_writing(fleet, session_id)
        worker.kill()
    client.beta.agents.sessions.events.create(session_id, events=[cancel()])
    until_status(client, session_id, "idle")
    assert [turn.status for turn in turns(client, session_id)] == ["cancelled"]
    assert not [item for item in items(client, session_id) if item.status == "in_progress"]
    client.beta.agents.sessions.events.create(session_id, events=[message("Again.")])
    fleet.worker()
    until_status(client, session_id, "idle")
    assert [turn.status for turn in turns(client, session_id)] == ["cancelled", "completed"]
    client.beta.agents.sessions.delete(session_id)


def test_input_behind_a_cancel_that_nobody_was_there_for_waits_for_a_worker(fleet: Fleet) -> None:
    client = fleet.client(fleet.server())
    session_id = begin(client, "slow story")
    client.beta.agents.sessions.events.create(session_id, events=[cancel(), message("Instead.")])
    until(lambda: [turn.status for turn in turns(client, session_id)], lambda s: s == ["cancelled", "queued"])
    fleet.worker()
    until_status(client, session_id, "idle")
    assert answers(client, session_id) == ["You said: Instead."]
    assert fleet.ask("SELECT model_calls FROM turns ORDER BY pos") == [(0,), (1,)]


def test_a_cancel_reaches_the_worker_that_runs_the_session(fleet: Fleet) -> None:
    client = fleet.client(fleet.server())
    fleet.worker()
    session_id = begin(client, "slow story")
    until_writing(fleet, session_id)
    client.beta.agents.sessions.events.create(session_id, events=[cancel()])
    until_status(client, session_id, "idle")
    assert [turn.status for turn in turns(client, session_id)] == ["cancelled"]


def test_no_input_is_missed_however_it_meets_the_end_of_a_turn(fleet: Fleet) -> None:
    clients = [fleet.client(fleet.server()) for _ in range(2)]
    for _ in range(2):
        fleet.worker()
    session_ids = [begin(clients[0], "Message 0.") for _ in range(4)]
    expected = {f"Message {number}." for number in range(25)}

    def say(place: tuple[int, str]) -> None:
        number, session_id = place
        clients[number % 2].beta.agents.sessions.events.create(
            session_id, events=[message(f"Message {number}.")]
        )

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(say, [(n, s) for n in range(1, 25) for s in session_ids]))
    for session_id in session_ids:
        until_status(clients[0], session_id, "idle")
        said = user_texts(clients[0], session_id)
        assert sorted(said) == sorted(expected)
        assert {turn.status for turn in turns(clients[0], session_id)} == {"completed"}
    until(lambda: fleet.ask("SELECT count(*) FROM procrastinate_jobs"), lambda found: found == [(0,)])


def test_workers_go_on_when_the_database_comes_back(tmp_path: Path, provider: Provider) -> None:
    with (
        PostgresServer(durable=True) as database,
        Fleet(tmp_path, database.create_database(), provider) as fleet,
    ):
        client = fleet.client(fleet.server(settings=SHORT_LEASE))
        worker = fleet.worker(SHORT_LEASE)
        session_id = begin(client, "slow story")
        shown = until_writing(fleet, session_id)
        fleet.engine.dispose()
        database.kill()
        database.start()
        until_status(client, session_id, "idle")
        assert [turn.status for turn in turns(client, session_id)] == ["completed"]
        *broken_off, told = items(client, session_id)[1:]
        # With luck nothing had to be written meanwhile.
        assert text_of(told) == (STORY if not broken_off else "You said: slow story")
        assert text_of((broken_off or [told])[0]).startswith(shown)
        again = begin(client, "And now?")
        until_status(client, again, "idle")
        assert worker.is_running


def test_several_processes_serve_one_address_and_a_dead_one_is_replaced(fleet: Fleet) -> None:
    server = fleet.server(workers=2)
    client = fleet.client(server)
    assert server.printed == [f"perdure listening on {server.url}"]
    assert len(fleet.ask("SELECT id FROM workers")) == 2
    session_id = begin(client, "slow story")
    shown = until_writing(fleet, session_id)
    pid, owner = until_owned(fleet, session_id)
    os.kill(pid, signal.SIGKILL)
    patient = client.with_options(max_retries=10)
    check_repeated(patient, session_id, "slow story", shown)
    until(
        lambda: fleet.ask("SELECT count(DISTINCT pid) FROM workers WHERE id <> :id", id=owner),
        lambda found: found == [(2,)],
    )
    assert server.terminate() == 0
    assert len(server.printed) == 1
    assert fleet.ask("SELECT id FROM workers WHERE id <> :id", id=owner) == []


def test_processes_whose_parent_is_gone_stop(fleet: Fleet) -> None:
    server = fleet.server(workers=2)
    os.kill(server.pid, signal.SIGKILL)
    until(lambda: fleet.ask("SELECT id FROM workers"), lambda found: found == [])
    assert server.wait() == -signal.SIGKILL


def test_a_server_whose_processes_cannot_start_ends_with_their_status(fleet: Fleet) -> None:
    server = fleet.server(workers=2)
    with fleet.engine.begin() as conn:
        conn.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    assert server.terminate() == 0
    with pytest.raises(AssertionError, match="no listening line"):
        server.start()
    assert "schema revision 9999" in server.stderr()
