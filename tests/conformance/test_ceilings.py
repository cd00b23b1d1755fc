"""Ceilings: what refuses the next call, what the turn then says, and how a session goes on."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from openai import BadRequestError, OpenAI, PermissionDeniedError

from .conftest import PrivateServers, make_client
from .inputs import NONE, WEATHER, message, tool_result
from .scripts import SETTINGS
from .sessions import create, create_idle, create_waiting, items, turns
from .watch import DEADLINE, until, until_status

LOOP = """
[otherwise]
answer = [{ call = "weather", arguments = { city = "Oslo" } }]
usage = { input_tokens = 100, cached_tokens = 40, output_tokens = 20 }
"""

CHANGING = """
[[rule]]
when = { newest = "user" }
answer = [{ text = "You said: {user}" }]
usage = { input_tokens = 100, cached_tokens = 40, output_tokens = 20 }

[otherwise]
answer = [{ call = "weather", arguments = { city = "{result}" } }]
usage = { input_tokens = 100, cached_tokens = 40, output_tokens = 20 }
"""

COUNTING = """
[otherwise]
answer = [{ text = "You said: {user}" }]
usage = { input_tokens = 100, cached_tokens = 40, output_tokens = 20 }
"""

MODELS = {"loop": LOOP, "counting": COUNTING}
PRICES = """
[[price]]
models = ["counting", "loop"]
input = 10.0
cached_input = 1.0
output = 50.0
"""
ONE_CALL = (60 * 10 + 40 * 1 + 20 * 50) / 1e6
PREFIX = "perdure.limit."


def limited(private_servers: PrivateServers, text: str = "", **scripts: str) -> tuple[Any, OpenAI]:
    server = private_servers(SETTINGS + PRICES + "\n[limits]\n" + text, {**MODELS, **scripts})
    return server, private_servers.client(server)


def start(client: OpenAI, model: str, said: str = "Hello.", **fields: Any) -> Any:
    return client.beta.agents.sessions.create(
        agent={"model": model, "tools": [WEATHER]}, environment=NONE, input=said, **fields
    )


def answer_calls(client: OpenAI, session_id: str, output: Any = "7 °C", most: int = 100) -> int:
    """Answers every call until the session is idle; returns how many there were."""
    for number in range(most):
        session = until_status(client, session_id, "idle", "requires_action")
        if session.status == "idle":
            return number
        given = output(number) if callable(output) else output
        events = [tool_result(call, given) for call in session.required_actions]
        client.beta.agents.sessions.events.create(session_id, events=events)
    raise AssertionError(f"more than {most} calls")


def last_error(client: OpenAI, session_id: str) -> Any:
    turn = turns(client, session_id)[-1]
    assert turn.status == "failed"
    assert turn.error is not None
    assert turn.error.code == "usage_limit_exceeded"
    return turn.error.message


def say(client: OpenAI, session_id: str, text: str) -> str:
    with client.beta.agents.sessions.stream(session_id, input=text) as stream:
        return str(stream.get_final_result().output_text)


def test_a_model_that_loops_for_ever_on_one_call_is_stopped_and_the_next_message_works(
    private_servers: PrivateServers,
) -> None:
    _, client = limited(private_servers)
    session = start(client, "loop")
    assert answer_calls(client, session.id) == 10
    assert "repeated_calls = 10" in last_error(client, session.id)
    saved = items(client, session.id)
    assert [item.status for item in saved if item.type == "function_call"] == ["completed"] * 10 + ["failed"]
    client.beta.agents.sessions.update(session.id, agent={"model": "counting"})
    assert say(client, session.id, "Go on.") == "You said: Go on."


def test_calls_whose_results_differ_may_be_repeated_for_longer(private_servers: PrivateServers) -> None:
    _, client = limited(private_servers, "repeated_calls = 3\nrepeated_calls_any_result = 6\n")
    session = start(client, "loop")
    assert answer_calls(client, session.id, lambda number: f"{number} °C") == 6
    assert "repeated_calls_any_result = 6" in last_error(client, session.id)


def test_a_message_of_the_user_begins_the_count_anew(private_servers: PrivateServers) -> None:
    _, client = limited(private_servers, "repeated_calls = 3\n")
    session = start(client, "loop")
    for _ in range(2):
        session = until_status(client, session.id, "requires_action")
        client.beta.agents.sessions.events.create(
            session.id, events=[tool_result(session.required_actions[0]), message("Look again.")]
        )
    assert answer_calls(client, session.id) == 3


def test_arguments_in_another_order_are_the_same_call(private_servers: PrivateServers) -> None:
    both = """
[[rule]]
when = { call_count = 1 }
answer = [{ call = "weather", arguments_text = '{"b": 2, "a": 1}' }]

[otherwise]
answer = [{ call = "weather", arguments_text = '{ "a": 1, "b": 2 }' }]
"""
    tool = {**WEATHER, "parameters": {"type": "object", "properties": {}}}
    _, client = limited(private_servers, "repeated_calls = 2\n", both=both)
    session = client.beta.agents.sessions.create(
        agent={"model": "both", "tools": [tool]}, environment=NONE, input="Hello."
    )
    assert answer_calls(client, session.id) == 2


@pytest.mark.parametrize(
    ("name", "value", "calls"),
    [
        ("model_calls_per_turn", "3", 3),
        ("tool_calls_per_turn", "4", 4),
        ("uncached_input_tokens_per_turn", "150", 3),
        ("total_tokens_per_turn", "240", 2),
        ("spend_per_turn", f"{2 * ONE_CALL:.9f}", 2),
        ("model_calls_per_session", "3", 3),
        ("tool_calls_per_session", "4", 4),
        ("uncached_input_tokens_per_session", "150", 3),
        ("total_tokens_per_session", "240", 2),
        ("spend_per_session", f"{2 * ONE_CALL:.9f}", 2),
    ],
)
def test_each_ceiling_refuses_the_next_call(
    private_servers: PrivateServers, name: str, value: str, calls: int
) -> None:
    _, client = limited(private_servers)
    session = start(client, "loop", metadata={PREFIX + name: value})
    assert answer_calls(client, session.id) == calls
    said = last_error(client, session.id)
    assert f"{name} = " in said
    assert "of this session" in said
    assert f"{PREFIX}{name}" in said


def test_a_ceiling_on_active_time_refuses_the_call_behind_it(private_servers: PrivateServers) -> None:
    _, client = limited(private_servers)
    session = start(client, "loop", metadata={f"{PREFIX}active_seconds_per_session": "0.000001"})
    assert answer_calls(client, session.id) == 1
    assert "active_seconds_per_session" in last_error(client, session.id)


def test_a_session_at_its_ceiling_fails_each_turn_until_one_call_raises_it(
    private_servers: PrivateServers,
) -> None:
    _, client = limited(private_servers)
    key = f"{PREFIX}model_calls_per_session"
    session = start(client, "counting", metadata={key: "1", "team": "a"})
    until_status(client, session.id, "idle")
    for text in ("Again.", "And again."):
        client.beta.agents.sessions.events.create(session.id, events=[message(text)])
        until(lambda: turns(client, session.id), lambda listed: listed[-1].status == "failed")
        assert "model_calls_per_session = 1" in last_error(client, session.id)
        until_status(client, session.id, "idle")
    client.beta.agents.sessions.update(session.id, metadata={key: "2", "team": "a"})
    assert say(client, session.id, "Now?") == "You said: Now?"
    asked = [item for item in items(client, session.id) if getattr(item, "role", "") == "user"]
    assert len(asked) == 4


def test_a_turn_refused_before_its_first_call_used_nothing(private_servers: PrivateServers) -> None:
    _, client = limited(private_servers)
    session = start(client, "counting", metadata={f"{PREFIX}model_calls_per_session": "1"})
    until_status(client, session.id, "idle")
    client.beta.agents.sessions.events.create(session.id, events=[message("Again.")])
    until(lambda: turns(client, session.id), lambda listed: listed[-1].status == "failed")
    assert turns(client, session.id)[-1].usage is None


def test_an_agent_lowers_the_ceilings_of_its_sessions(private_servers: PrivateServers) -> None:
    _, client = limited(private_servers)
    agent = client.beta.agents.create(
        model="loop", tools=[WEATHER], metadata={f"{PREFIX}model_calls_per_turn": "2"}
    )
    session = client.beta.agents.sessions.create(agent_id=agent.id, environment=NONE, input="Hello.")
    assert answer_calls(client, session.id) == 2
    assert "of its agent" in last_error(client, session.id)
    other = client.beta.agents.sessions.create(
        agent_id=agent.id,
        environment=NONE,
        input="Hello.",
        metadata={f"{PREFIX}model_calls_per_turn": "4"},
    )
    assert answer_calls(client, other.id) == 4


def test_an_agent_cannot_go_above_the_server(client: OpenAI) -> None:
    key = f"{PREFIX}model_calls_per_turn"
    with pytest.raises(BadRequestError) as refused:
        client.beta.agents.create(model="echo", metadata={key: "101"})
    assert refused.value.param == f"metadata.{key}"
    agent = client.beta.agents.create(model="echo")
    with pytest.raises(BadRequestError) as refused:
        client.beta.agents.update(agent.id, metadata={key: "none"})
    assert refused.value.param == f"metadata.{key}"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("model_calls_per_turn", "0"),
        ("model_calls_per_turn", "-1"),
        ("model_calls_per_turn", "2.5"),
        ("model_calls_per_turn", "many"),
        ("model_calls_per_turn", ""),
        ("model_calls_per_turn", "1e3"),
        ("spend_per_session", "0"),
        ("spend_per_session", "$5"),
        ("spend_per_session", "nan"),
        ("speed", "1"),
        ("", "1"),
    ],
)
def test_a_ceiling_that_makes_no_sense_is_refused_where_it_is(client: OpenAI, name: str, value: str) -> None:
    session = create_idle(client)
    for attempt in (
        lambda: start(client, "echo", metadata={PREFIX + name: value}),
        lambda: client.beta.agents.sessions.update(session.id, metadata={PREFIX + name: value}),
        lambda: client.beta.agents.create(model="echo", metadata={PREFIX + name: value}),
    ):
        with pytest.raises(BadRequestError) as refused:
            attempt()
        assert refused.value.param == f"metadata.{PREFIX}{name}"
    assert client.beta.agents.sessions.retrieve(session.id).metadata == {}


def test_only_a_key_with_the_scope_goes_above_the_server(private_servers: PrivateServers) -> None:
    server, operator = limited(private_servers, "model_calls_per_turn = 3\nrepeated_calls = 100\n")
    key = f"{PREFIX}model_calls_per_turn"
    ordinary = private_servers.client(server, api_key=server.create_key())
    privileged = private_servers.client(
        server,
        api_key=server.create_key("--scope", "read", "--scope", "write", "--scope", "limits"),
    )
    for value in ("4", "none"):
        with pytest.raises(PermissionDeniedError) as refused:
            start(ordinary, "loop", metadata={key: value})
        assert refused.value.param == f"metadata.{key}"
        assert "api.limits.write" in str(refused.value)
    session = start(ordinary, "loop", metadata={key: "2"})
    assert answer_calls(ordinary, session.id) == 2
    update = ordinary.beta.agents.sessions.update
    update(session.id, metadata={key: "3"})
    with pytest.raises(PermissionDeniedError):
        update(session.id, metadata={key: "5"})
    privileged.beta.agents.sessions.update(session.id, metadata={key: "5"})
    # Who may not raise it may keep or lower what was given, and write other metadata.
    update(session.id, metadata={key: "5", "team": "a"})
    ordinary.beta.agents.sessions.events.create(session.id, events=[message("Go on.")])
    assert answer_calls(ordinary, session.id) == 5
    update(session.id, metadata={key: "4"})
    with pytest.raises(PermissionDeniedError):
        update(session.id, metadata={key: "5"})
    operator.beta.agents.sessions.update(session.id, metadata={key: "none"})
    operator.beta.agents.sessions.events.create(session.id, events=[message("For ever.")])
    for _ in range(8):
        waiting = until_status(operator, session.id, "requires_action")
        operator.beta.agents.sessions.events.create(
            session.id, events=[tool_result(call) for call in waiting.required_actions]
        )


def test_a_ceiling_on_money_needs_a_price(private_servers: PrivateServers) -> None:
    unpriced = "[otherwise]\nanswer = [{ text = 'Hello.' }]\n"
    _, client = limited(private_servers, unpriced=unpriced)
    key = f"{PREFIX}spend_per_session"
    with pytest.raises(BadRequestError) as refused:
        start(client, "unpriced", metadata={key: "1"})
    assert refused.value.param == "agent.model"
    session = start(client, "counting", metadata={key: "1"})
    until_status(client, session.id, "idle")
    with pytest.raises(BadRequestError) as refused:
        client.beta.agents.sessions.update(session.id, agent={"model": "unpriced"})
    assert refused.value.param == "agent.model"
    free = start(client, "unpriced")
    until_status(client, free.id, "idle")
    with pytest.raises(BadRequestError) as refused:
        client.beta.agents.sessions.update(free.id, metadata={key: "1"})
    assert refused.value.param == "metadata"


def test_a_call_of_many_tools_beyond_the_ceiling_runs_none_of_them(private_servers: PrivateServers) -> None:
    many = """
[otherwise]
answer = [
    { call = "weather", arguments = { city = "Oslo" } },
    { call = "weather", arguments = { city = "Rome" } },
    { call = "weather", arguments = { city = "Bern" } },
]
"""
    _, client = limited(private_servers, "tool_calls_per_turn = 5\n", many=many)
    session = start(client, "many")
    assert answer_calls(client, session.id) == 1
    calls = [item for item in items(client, session.id) if item.type == "function_call"]
    assert [call.status for call in calls] == ["completed"] * 3 + ["failed"] * 3
    outputs = [item for item in items(client, session.id) if item.type == "function_call_output"]
    assert all("tool_calls_per_turn = 5" in output.error for output in outputs[3:])
    url = f"{private_servers_url(client)}/perdure/v1/sessions/{session.id}/usage"
    assert httpx2.get(url, headers=headers(client)).json()["tool_calls"] == 3


def private_servers_url(client: OpenAI) -> str:
    return str(client.base_url).removesuffix("/v1/")


def headers(client: OpenAI) -> dict[str, str]:
    return {"Authorization": f"Bearer {client.api_key}"}


def test_counters_outlive_the_process(private_servers: PrivateServers) -> None:
    server, client = limited(private_servers)
    session = start(client, "counting", metadata={f"{PREFIX}model_calls_per_session": "2"})
    until_status(client, session.id, "idle")
    assert say(client, session.id, "Two.") == "You said: Two."
    server.kill()
    server.start()
    after = make_client(server)
    after.beta.agents.sessions.events.create(session.id, events=[message("Three.")])
    until(lambda: turns(after, session.id), lambda listed: listed[-1].status == "failed", DEADLINE)
    assert "model_calls_per_session = 2" in last_error(after, session.id)
    after.close()


def test_unused_ceilings_change_nothing(client: OpenAI) -> None:
    session = create_waiting(client)
    client.beta.agents.sessions.events.create(session.id, events=[tool_result(session.required_actions[0])])
    until_status(client, session.id, "idle")
    assert create(client, "echo").metadata == {}
