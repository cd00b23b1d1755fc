"""Who may do what: the beta header, keys, scopes, and what others can learn."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest
from openai import NotFoundError, OpenAI, PermissionDeniedError
from tests.server import ServerProcess

from .conftest import make_client
from .inputs import NONE, WEATHER, cancel, message, tool_result
from .rawhttp import Headers, RawResponse, exchange, plain_headers
from .sessions import create_idle, create_waiting, items, turns

BETA = ("OpenAI-Beta", "agents=v1")


def get(server: ServerProcess, headers: Headers, target: str = "/v1/agents/sessions") -> RawResponse:
    return exchange(server.address, "GET", target, headers)


def key_header(server: ServerProcess) -> tuple[str, str]:
    return ("Authorization", f"Bearer {server.api_key}")


@pytest.mark.parametrize(
    "beta",
    [
        [],
        [("OpenAI-Beta", "")],
        [("OpenAI-Beta", "assistants=v2")],
        [("OpenAI-Beta", "agents=v2")],
        [("OpenAI-Beta", "agents=v11")],
        [("OpenAI-Beta", "agents")],
    ],
    ids=["none", "empty", "another", "a later version", "a longer version", "no version"],
)
def test_the_beta_header_is_asked_for_before_the_key(server: ServerProcess, beta: Headers) -> None:
    for key in ([key_header(server)], [("Authorization", "Bearer wrong")], []):
        response = get(server, [*key, *beta])
        assert response.status == 400
        assert response.error["code"] == "invalid_beta"
        assert response.error["type"] == "invalid_request_error"


@pytest.mark.parametrize("beta", ["agents=v1", "assistants=v2, agents=v1", "agents=v1,assistants=v2"])
def test_the_beta_version_may_stand_among_others(server: ServerProcess, beta: str) -> None:
    assert get(server, [key_header(server), ("OpenAI-Beta", beta)]).status == 200


def test_the_beta_version_may_come_on_a_line_of_its_own(server: ServerProcess) -> None:
    lines = [("OpenAI-Beta", "assistants=v2"), BETA]
    assert get(server, [key_header(server), *lines]).status == 200


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Bearer wrong",
        "Basic {key}",
        "{key}",
        "Bearer {key}x",
        "Bearer x{key}",
        "Bearer {key} {key}",
        "Bearer\t\xe4",
    ],
)
def test_a_missing_or_wrong_key_is_unauthorized(server: ServerProcess, authorization: str | None) -> None:
    headers = [BETA]
    if authorization is not None:
        headers.append(("Authorization", authorization.format(key=server.api_key)))
    response = get(server, headers)
    assert response.status == 401
    assert (response.error["code"], response.error["type"]) == ("unauthorized", "authentication_error")
    assert server.api_key not in response.body.decode()


def test_two_different_keys_are_no_key(server: ServerProcess) -> None:
    response = get(server, [BETA, ("Authorization", "Bearer wrong"), key_header(server)])
    assert response.status == 401


def test_a_key_is_never_logged(server: ServerProcess) -> None:
    get(server, [BETA, ("Authorization", "Bearer perdure_canary_value")])
    get(server, [BETA, key_header(server)])
    assert "perdure_canary_value" not in server.stderr()
    assert server.api_key not in server.stderr()


def test_a_reading_key_reads_everything_and_writes_nothing(
    client: OpenAI, server: ServerProcess, reading_key: str
) -> None:
    waiting = create_waiting(client)
    (call,) = waiting.required_actions
    agent = client.beta.agents.create(model="echo")
    with make_client(server, api_key=reading_key) as reader:
        agents, sessions = reader.beta.agents, reader.beta.agents.sessions
        assert agents.retrieve(agent.id) == agent
        assert agents.list().data
        assert sessions.retrieve(waiting.id) == waiting
        assert sessions.list().data
        assert items(reader, waiting.id)
        (turn,) = turns(reader, waiting.id)
        assert sessions.turns.retrieve(turn.id, session_id=waiting.id) == turn
        assert sessions.turns.items.list(turn.id, session_id=waiting.id).data
        with sessions.events.stream(waiting.id) as stream:
            assert next(iter(stream)).type == "agent.session.turn.item.added"
        for write in (
            lambda: agents.create(model="echo"),
            lambda: agents.update(agent.id, name="x"),
            lambda: agents.delete(agent.id),
            lambda: sessions.create(agent={"model": "echo"}, environment=NONE, input="Hello."),
            lambda: sessions.create(agent={"model": "echo"}, environment=NONE, input="Hello.", stream=True),
            lambda: sessions.update(waiting.id, metadata={}),
            lambda: sessions.delete(waiting.id),
            lambda: sessions.events.create(waiting.id, events=[message("Hello.")]),
            lambda: sessions.events.create(waiting.id, events=[tool_result(call)]),
            lambda: sessions.events.create(waiting.id, events=[cancel()]),
            lambda: sessions.events.create("sess_unknown", events=[]),
        ):
            with pytest.raises(PermissionDeniedError) as refusal:
                write()
            assert (refusal.value.code, refusal.value.type) == ("forbidden", "permission_error")
            assert "api.agents.write" in str(refusal.value.body)
    assert client.beta.agents.sessions.retrieve(waiting.id) == waiting


def test_a_key_of_another_project_sees_nothing(client: OpenAI, foreign_client: OpenAI) -> None:
    session, agent = create_idle(client), client.beta.agents.create(model="echo")
    assert session.id not in [seen.id for seen in foreign_client.beta.agents.sessions.list(limit=100)]
    assert agent.id not in [seen.id for seen in foreign_client.beta.agents.list(limit=100)]
    assert foreign_client.beta.agents.sessions.list(agent_id=agent.id).data == []
    with pytest.raises(NotFoundError):
        foreign_client.beta.agents.sessions.create(agent_id=agent.id, environment=NONE, input="Hello.")
    with pytest.raises(NotFoundError):
        foreign_client.beta.agents.sessions.create(
            agent_id=session.agent.id, environment=NONE, input="Hello."
        )


def strip_request_id(headers: Headers) -> Headers:
    return sorted((k.lower(), v) for k, v in headers if k.lower() not in ("x-request-id", "date"))


ABSENT = [
    "sess_000000000000000000000000",
    "sess_1",
    "turn_000000000000000000000000",
    "x",
    "%00",
    "%FF",
    "sess_%F0%9F%8C%8D",
    "a" * 500,
    "sess_1%20OR%201",
    "sess_'--",
]


def test_foreign_absent_and_malformed_ids_cannot_be_told_apart(
    client: OpenAI, server: ServerProcess, foreign_client: OpenAI
) -> None:
    foreign = create_waiting(foreign_client)
    (call,) = foreign.required_actions
    own = create_idle(client)
    (own_turn,) = turns(client, own.id)
    headers = plain_headers(server.api_key)
    update = json.dumps({"metadata": {}}).encode()
    events = json.dumps({"events": [message("Hello.")]}).encode()
    result = json.dumps({"events": [tool_result(call)]}).encode()
    foreign_agent = foreign_client.beta.agents.create(model="echo").id
    requests: list[tuple[str, str, bytes | None, str]] = [
        ("GET", "/v1/agents/sessions/{}", None, foreign.id),
        ("POST", "/v1/agents/sessions/{}", update, foreign.id),
        ("DELETE", "/v1/agents/sessions/{}", None, foreign.id),
        ("GET", "/v1/agents/sessions/{}/items", None, foreign.id),
        ("GET", "/v1/agents/sessions/{}/turns", None, foreign.id),
        ("GET", "/v1/agents/sessions/{}/events", None, foreign.id),
        ("POST", "/v1/agents/sessions/{}/events", events, foreign.id),
        ("POST", "/v1/agents/sessions/{}/events", result, foreign.id),
        ("GET", f"/v1/agents/sessions/{{}}/turns/{call.turn_id}", None, foreign.id),
        ("GET", f"/v1/agents/sessions/{{}}/turns/{call.turn_id}/items", None, foreign.id),
        ("GET", f"/v1/agents/sessions/{own.id}/turns/{{}}", None, call.turn_id),
        ("GET", f"/v1/agents/sessions/{own.id}/turns/{{}}/items", None, call.turn_id),
        ("GET", "/v1/agents/{}", None, foreign_agent),
        ("POST", "/v1/agents/{}", json.dumps({"name": "x"}).encode(), foreign_agent),
        ("DELETE", "/v1/agents/{}", None, foreign_agent),
    ]
    for method, target, body, foreign_id in requests:
        reference = exchange(server.address, method, target.format(foreign_id), headers, body)
        assert reference.status == 404, (method, target, reference)
        assert (reference.error["code"], reference.error["type"]) == (
            "not_found_error",
            "invalid_request_error",
        )
        for absent in ABSENT:
            response = exchange(server.address, method, target.format(absent), headers, body)
            assert (response.status, response.body) == (reference.status, reference.body), (target, absent)
            assert strip_request_id(response.headers) == strip_request_id(reference.headers)
    assert foreign_client.beta.agents.sessions.retrieve(foreign.id) == foreign
    assert own_turn.id != call.turn_id


def test_a_turn_of_another_session_is_not_found(client: OpenAI) -> None:
    mine, other = create_idle(client), create_idle(client)
    (turn,) = turns(client, other.id)
    for use in (
        lambda: client.beta.agents.sessions.turns.retrieve(turn.id, session_id=mine.id),
        lambda: client.beta.agents.sessions.turns.items.list(turn.id, session_id=mine.id),
    ):
        with pytest.raises(NotFoundError):
            use()


def test_a_foreign_cursor_is_an_unknown_one(raw: httpx2.Client, foreign_client: OpenAI) -> None:
    foreign_session = create_idle(foreign_client).id
    foreign_agent = foreign_client.beta.agents.create(model="echo").id
    for path, cursor in (("/agents/sessions", foreign_session), ("/agents", foreign_agent)):
        bodies = set()
        for after in (cursor, cursor[:-1] + "!", "sess_unknown"):
            response = raw.get(path, params={"after": after})
            assert response.status_code == 400
            bodies.add(json.dumps({**response.json()["error"], "message": None}))
        assert len(bodies) == 1


def test_tools_of_a_session_hold_no_secret_of_another(client: OpenAI, foreign_client: OpenAI) -> None:
    mine: Any = create_idle(client, "echo", instructions="CANARY", tools=[WEATHER])
    seen = [session.to_dict() for session in foreign_client.beta.agents.sessions.list(limit=100)]
    assert mine.id not in str(seen)
    assert "CANARY" not in str(seen)
