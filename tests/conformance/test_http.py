"""Requests and responses as HTTP: paths, bodies, headers, the form of errors."""

from __future__ import annotations

import json
import socket
import time
from typing import Any

import httpx2
import pytest
from openai import OpenAI
from tests.server import ServerProcess

from .inputs import NONE, message
from .rawhttp import Headers, RawResponse, exchange, plain_headers
from .sessions import answers, create_idle, user_texts
from .watch import DEADLINE, until_status

VALID: Any = {"agent": {"model": "echo"}, "environment": NONE, "input": "Hello."}


def post(server: ServerProcess, body: bytes | None, headers: Headers | None = None) -> RawResponse:
    used = plain_headers(server.api_key) if headers is None else headers
    return exchange(server.address, "POST", "/v1/agents/sessions", used, body)


def agent_count(client: OpenAI) -> int:
    return len(list(client.beta.agents.list(limit=100)))


@pytest.mark.parametrize(
    "target",
    [
        "/v1//agents/sessions",
        "//v1/agents/sessions",
        "/v1/agents//sessions",
        "/v1/agents/sessions/",
        "/v1/agents/",
        "/v1/agents/sessions/{id}/",
        "/v1/agents/sessions/{id}//items",
        "/v1/agents/sessions/{id}/items/",
        "/v1/agents/../agents/sessions",
        "/v1/agents/%2e%2e/agents/sessions",
        "/v1/agents/%2E%2E/agents",
        "/v1/agents/sessions/%2e%2e/{agent}",
        "/v1/agents/sessions/{id}/%2e/items",
        "/v1/agents/sessions/{id}%2Fitems",
        "/v1/agents/sessions%2F{id}",
        "/v1/agents/sessions/..",
        "/v1/agents/sessions/{id}/turns/..",
        "/v1/agents;x/sessions",
        "/V1/agents/sessions",
        "/v1/Agents/sessions",
        "/v1/agents/sessions/{id}/nothing",
        "/v1/nothing",
        "/v1",
        "/v1/",
    ],
)
def test_an_unclean_path_is_not_found_and_never_redirected(
    client: OpenAI, server: ServerProcess, target: str
) -> None:
    session = create_idle(client)
    target = target.format(id=session.id, agent=client.beta.agents.create(model="echo").id)
    for method in ("GET", "POST", "DELETE"):
        body = b"{}" if method == "POST" else None
        response = exchange(server.address, method, target, plain_headers(server.api_key), body)
        assert response.status == 404, (method, target, response)
        assert response.header("location") is None
        assert response.error["code"] == "not_found_error"
        assert response.header("x-request-id")
    assert client.beta.agents.sessions.retrieve(session.id) == session


def test_another_method_on_a_known_path_is_refused(server: ServerProcess) -> None:
    for method, target in (
        ("PUT", "/v1/agents"),
        ("PATCH", "/v1/agents/agt_1"),
        ("DELETE", "/v1/agents/sessions"),
        ("POST", "/v1/agents/sessions/sess_1/items"),
    ):
        response = exchange(server.address, method, target, plain_headers(server.api_key), b"{}")
        assert response.status in (404, 405), (method, target)
        assert response.error["message"]


def test_every_response_has_a_request_id_of_its_own(client: OpenAI, server: ServerProcess) -> None:
    session = create_idle(client)
    headers = plain_headers(server.api_key)
    responses = [
        exchange(server.address, "GET", f"/v1/agents/sessions/{session.id}", headers),
        exchange(server.address, "GET", "/v1/agents/sessions/sess_unknown", headers),
        exchange(server.address, "GET", "/v1/agents/sessions?limit=0", headers),
        exchange(server.address, "GET", "/v1/agents/sessions", []),
        exchange(server.address, "GET", "/v1/agents/sessions", [("OpenAI-Beta", "agents=v1")]),
        exchange(server.address, "GET", "/nowhere", []),
        post(server, b"{"),
        post(server, json.dumps(VALID).encode()),
        exchange(
            server.address,
            "POST",
            f"/v1/agents/sessions/{session.id}/events",
            headers,
            json.dumps({"events": []}).encode(),
        ),
        exchange(server.address, "DELETE", "/v1/agents/sessions/sess_unknown", headers),
    ]
    ids = [response.header("x-request-id") for response in responses]
    assert all(ids)
    assert len(set(ids)) == len(ids)


def test_the_request_id_reaches_the_official_client(client: OpenAI) -> None:
    assert create_idle(client)._request_id


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (b"", "body"),
        (b"   ", "body"),
        (b"{", "JSON"),
        (b"not json", "JSON"),
        (b'{"agent": {"model": "echo"},}', "JSON"),
        (b"\xef\xbb\xbf" + json.dumps(VALID).encode(), "byte order mark"),
        (json.dumps(VALID).encode("utf-16"), "UTF-8"),
        (json.dumps(VALID).encode().replace(b"Hello.", b"\xff\xfe"), "UTF-8"),
        (json.dumps(VALID).encode().replace(b"Hello.", b"\\ud800"), "surrogate"),
        (json.dumps(VALID).encode().replace(b"Hello.", b"\\udc00\\ud800"), "surrogate"),
        (json.dumps({**VALID, "metadata": {"k": "v"}}).encode().replace(b'"k"', b'"\\ud800"'), "surrogate"),
        (json.dumps({**VALID, "input": float("nan")}).encode(), "NaN"),
        (json.dumps({**VALID, "input": float("inf")}).encode(), "Infinity"),
        (b'{"input": "a", ' + json.dumps(VALID).encode()[1:], "input"),
        (json.dumps(VALID).encode().replace(b'{"model"', b'{"model": "echo", "model"'), "model"),
        (json.dumps(VALID).encode() + b"{}", "JSON"),
        (b"[]", "object"),
        (b"null", "object"),
        (b'"text"', "object"),
        (b"5", "object"),
        (b"[" * 100_000, "JSON"),
    ],
    ids=[
        "empty",
        "blank",
        "cut",
        "no json",
        "trailing comma",
        "byte order mark",
        "utf-16",
        "bad utf-8",
        "lone surrogate",
        "swapped surrogates",
        "lone surrogate in a key",
        "nan",
        "infinity",
        "duplicate key",
        "duplicate key below",
        "two documents",
        "array",
        "null",
        "text",
        "number",
        "deep nesting",
    ],
)
def test_a_body_that_is_no_proper_json_object_is_refused_in_words(
    server: ServerProcess, body: bytes, named: str
) -> None:
    response = post(server, body)
    assert response.status == 400, response
    assert (response.error["code"], response.error["type"]) == ("invalid_request_error",) * 2
    assert named.lower() in response.error["message"].lower(), response.error


@pytest.mark.parametrize(
    "content_type",
    [
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "text/plain",
        "application/xml",
        "application/jsonp",
    ],
)
def test_another_content_type_is_refused_in_words(server: ServerProcess, content_type: str) -> None:
    headers = plain_headers(server.api_key, {"Content-Type": content_type})
    response = post(server, json.dumps(VALID).encode(), headers)
    assert response.status == 400
    assert "application/json" in response.error["message"]


@pytest.mark.parametrize(
    "content_type", ["application/json", "application/json; charset=utf-8", "Application/JSON;charset=UTF-8"]
)
def test_json_may_name_its_charset(server: ServerProcess, content_type: str) -> None:
    headers = plain_headers(server.api_key, {"Content-Type": content_type})
    assert post(server, json.dumps(VALID).encode(), headers).status == 201


def test_a_body_with_a_bad_event_stops_nothing_else(server: ServerProcess, client: OpenAI) -> None:
    session = create_idle(client)
    target = f"/v1/agents/sessions/{session.id}/events"
    for body in (b'{"events": [{"type": "agent.session.input.cancel", "x": "\\ud800"}]}', b"{"):
        response = exchange(server.address, "POST", target, plain_headers(server.api_key), body)
        assert response.status == 400
    with client.beta.agents.sessions.stream(session.id, input="Next.") as stream:
        assert stream.get_final_result().output_text == "You said: Next."


@pytest.mark.parametrize(
    ("change", "param", "said"),
    [
        ({"agnt": 1}, "agnt", "Unknown parameter"),
        ({"agent": {"model": "echo", "modell": 1}}, "agent.modell", "Unknown parameter"),
        ({"agent": "echo"}, "agent", "Invalid type"),
        ({"agent": {"model": "echo", "tools": {}}}, "agent.tools", "Invalid type"),
        ({"agent": {"model": "echo", "tools": ["x"]}}, "agent.tools[0]", "Invalid type"),
        ({"stream": "yes"}, "stream", "Invalid type"),
        ({"stream": 1}, "stream", "Invalid type"),
        ({"metadata": {"k": 1}}, "metadata.k", "Invalid type"),
        (
            {"agent": {"model": "echo", "tools": [{"type": "function", "name": "f", "description": "d"}]}},
            "agent.tools[0].parameters",
            "Missing required parameter",
        ),
    ],
)
def test_the_usual_mistakes_are_named_with_their_place(
    raw: httpx2.Client, change: dict[str, Any], param: str, said: str
) -> None:
    response = raw.post("/agents/sessions", json={**VALID, **change})
    assert response.status_code == 400
    error = response.json()["error"]
    assert error["param"] == param
    assert said in error["message"]
    assert param in error["message"]


def test_a_body_above_the_limit_is_refused_and_one_below_is_taken(client: OpenAI, raw: httpx2.Client) -> None:
    parts = [{"type": "input_text", "text": "x" * 1_000_000} for _ in range(34)]
    response = raw.post("/agents/sessions", json={**VALID, "input": [{"role": "user", "content": parts}]})
    assert response.status_code in (400, 413)
    assert "32 MiB" in response.json()["error"]["message"]
    image = "data:image/gif;base64," + "R0lGODlhAQABAAAA" * 500_000
    content = [{"type": "input_text", "text": "Look."}, {"type": "input_image", "image_url": image}]
    response = raw.post("/agents/sessions", json={**VALID, "input": [{"role": "user", "content": content}]})
    assert response.status_code == 201, response.text[:500]
    until_status(client, response.json()["id"], "idle")


@pytest.mark.parametrize(
    ("content", "param"),
    [
        ([{"type": "input_text", "text": "x" * ((1 << 20) + 1)}], "input[0].content[0].text"),
        (
            [{"type": "input_image", "image_url": f"https://example.com/{n}.png"} for n in range(21)],
            "input[0].content",
        ),
    ],
    ids=["a text above 1 MiB", "more than 20 images"],
)
def test_a_message_above_the_limits_is_refused_where_it_is_too_large(
    raw: httpx2.Client, content: Any, param: str
) -> None:
    response = raw.post("/agents/sessions", json={**VALID, "input": [{"role": "user", "content": content}]})
    assert response.status_code == 400
    assert (response.json()["error"]["param"] or "").startswith(param)


def test_a_text_of_one_mebibyte_is_taken(raw: httpx2.Client) -> None:
    response = raw.post(
        "/agents/sessions", json={**VALID, "agent": {"model": "greeter"}, "input": "x" * (1 << 20)}
    )
    assert response.status_code == 201


def test_an_oversized_body_is_refused_without_being_read(server: ServerProcess) -> None:
    headers = [*plain_headers(server.api_key), ("Content-Length", str(1 << 40))]
    response = exchange(server.address, "POST", "/v1/agents/sessions", headers)
    assert response.status in (400, 413)
    assert response.error["message"]


def test_any_text_goes_in_and_comes_back(client: OpenAI) -> None:
    texts = ["NUL \u0000 inside", "\u0000", "\ufeffmark", "\u2028\u2029", "\U0001f469\u200d\U0001f467"]
    texts += ["\x7f\x1b[", "\ud7ff\ue000\U0010ffff", " ", "\n"]
    session = create_idle(client, "echo", texts[0])
    for text in texts[1:]:
        client.beta.agents.sessions.events.create(session.id, events=[message(text)])
        until_status(client, session.id, "idle")
    assert user_texts(client, session.id) == texts
    assert answers(client, session.id) == [f"You said: {text}" for text in texts]


def test_names_and_metadata_hold_any_text_too(client: OpenAI) -> None:
    odd = 'NUL \u0000 " \\ 世界 \U0001f30d'
    agent = client.beta.agents.create(model="echo", name=odd, instructions=odd, metadata={odd: odd})
    assert client.beta.agents.retrieve(agent.id) == agent
    assert (agent.name, agent.instructions, agent.metadata) == (odd, odd, {odd: odd})
    session = client.beta.agents.sessions.create(
        agent_id=agent.id, environment=NONE, input=odd, metadata={odd: odd}
    )
    assert client.beta.agents.sessions.retrieve(session.id).metadata == {odd: odd}
    assert session.agent.name == odd
    assert session.id in [found.id for found in client.beta.agents.sessions.list(metadata={odd: odd})]


def test_errors_are_not_retried_when_they_would_only_repeat(client: OpenAI, raw: httpx2.Client) -> None:
    for status, response in (
        (400, raw.get("/agents/sessions", params={"limit": 0})),
        (404, raw.get("/agents/sessions/sess_unknown")),
    ):
        assert response.status_code == status
        assert "retry-after" not in response.headers


def test_a_refused_body_creates_nothing(client: OpenAI, raw: httpx2.Client) -> None:
    before = agent_count(client)
    for body in ({"model": "nope"}, {"model": "echo", "tools": "x"}, {}):
        assert raw.post("/agents", json=body).status_code in (400, 404)
    assert agent_count(client) == before


def test_the_api_description_is_complete_json(server: ServerProcess) -> None:
    document = httpx2.get(f"{server.url}/openapi.json").json()
    assert document["openapi"].startswith("3.")
    assert "/v1/agents/sessions/{session_id}/events" in document["paths"]


@pytest.mark.parametrize(
    "query", ["limit=1_0", "limit=%2B5", "limit=%205", "limit=1&limit=2", "order=asc&order=desc"]
)
def test_a_query_is_taken_as_it_is_written_and_once(raw: httpx2.Client, query: str) -> None:
    answer = raw.get(f"/agents/sessions?{query}")
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == query.split("=")[0]


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [("PUT", "/agents/sessions", {"GET", "POST"}), ("PUT", "/agents/sessions/s/events", {"GET", "POST"})],
)
def test_a_refused_method_names_every_allowed_one(
    raw: httpx2.Client, method: str, path: str, allowed: set[str]
) -> None:
    answer = raw.request(method, path)
    assert answer.status_code == 405
    assert set(answer.headers["allow"].split(", ")) == allowed


def test_an_upgrade_to_a_websocket_is_an_ordinary_request(raw: httpx2.Client) -> None:
    headers = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
    }
    answer = raw.get("/agents/nothing", headers=headers)
    assert (answer.status_code, answer.json()["error"]["type"]) == (404, "invalid_request_error")


def test_a_client_that_leaves_in_mid_body_is_no_fault_of_the_server(
    raw: httpx2.Client, server: ServerProcess
) -> None:
    before = server.stderr().count("Traceback")
    head = "\r\n".join(f"{name}: {value}" for name, value in plain_headers(server.api_key))
    with socket.create_connection(server.address) as left:
        request = f"POST /v1/agents/sessions HTTP/1.1\r\nHost: x\r\n{head}\r\nContent-Length: 100"
        left.sendall(f"{request}\r\n\r\n{{".encode())
    # Requests are counted when they end: this one has, once the count says so.
    deadline = time.monotonic() + DEADLINE
    wanted = 'perdure_http_requests_total{code="none",method="POST",route="/v1/agents/sessions"}'
    root = str(raw.base_url).removesuffix("/v1/")
    while wanted not in raw.get(f"{root}/metrics").text:
        assert time.monotonic() < deadline
    assert server.stderr().count("Traceback") == before
