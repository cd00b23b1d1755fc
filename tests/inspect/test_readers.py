"""A session of a real server reads the same from the server, from its database, and from its file."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI
from tests.conformance.inputs import NONE, cancel, message, tool_failure, tool_result
from tests.conformance.sessions import create, create_idle
from tests.conformance.watch import until_status
from tests.server import ServerProcess, scripted_config

from perdure.inspect import (
    Export,
    ServerReader,
    Unreadable,
    build_chain,
    compare,
    find_path,
    open_store,
    read_export,
    read_file,
)

from .histories import LOOKUP

ORDERS = r"""
[[rule]]
when = { newest = "result" }
answer = [{ text = "I was told: {result}" }]

[[rule]]
when = { user_contains = "fail" }
answer = [{ fault = "authentication_error", message = "The provider refused the key." }]

[[rule]]
when = { user_matches = "(?P<order>[A-Z]-[0-9]{4})" }
answer = [
    { text = "Let me look.", phase = "commentary" },
    { call = "lookup_order", arguments = { order_id = "{order}" } },
]

[otherwise]
answer = [{ text = "You said: {user}" }]
"""

pytestmark = pytest.mark.slow


@contextmanager
def serving(home: Path, **options: Any) -> Iterator[ServerProcess]:
    with ServerProcess(scripted_config(home, {"orders": ORDERS}), home / "data", **options) as process:
        yield process


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with serving(tmp_path_factory.mktemp("inspect")) as process:
        yield process


@pytest.fixture(scope="module")
def client(server: ServerProcess) -> Iterator[OpenAI]:
    with OpenAI(base_url=server.base_url, api_key=server.api_key) as opened:
        yield opened


def asked(client: OpenAI, said: str = "Look up A-1042.") -> Any:
    made = create(client, "orders", said, tools=[LOOKUP])
    return until_status(client, made.id, "requires_action")


def answered(client: OpenAI) -> str:
    waiting = asked(client)
    output = '{"order_id":"A-1042","status":"paid"}'
    client.beta.agents.sessions.events.create(
        waiting.id, events=[tool_result(waiting.required_actions[0], output)]
    )
    until_status(client, waiting.id, "idle")
    return str(waiting.id)


def cancelled(client: OpenAI) -> str:
    waiting = asked(client)
    client.beta.agents.sessions.events.create(waiting.id, events=[cancel()])
    until_status(client, waiting.id, "idle")
    return str(waiting.id)


def refused(client: OpenAI) -> str:
    waiting = asked(client)
    failure = tool_failure(waiting.required_actions[0], "No such order.")
    client.beta.agents.sessions.events.create(waiting.id, events=[failure])
    until_status(client, waiting.id, "idle")
    return str(waiting.id)


def failed(client: OpenAI) -> str:
    return str(create_idle(client, "orders", "Please fail.").id)


def talkative(client: OpenAI) -> str:
    """A session of more items than one page holds."""
    made = create_idle(client, "orders", "Hello 0.")
    for number in range(1, 60):
        client.beta.agents.sessions.events.create(made.id, events=[message(f"Hello {number}.")])
        until_status(client, made.id, "idle")
    return str(made.id)


STORIES = {
    "owed": (lambda client: str(asked(client).id), ["owed"], []),
    "answered": (answered, ["answered"], []),
    "cancelled": (cancelled, ["dropped"], ["call_dropped", "idle_after_cancel"]),
    "refused": (refused, ["failed"], ["tool_failed"]),
    "failed": (failed, [], ["idle_after_failure"]),
    "talkative": (talkative, [], []),
}


def from_server(server: ServerProcess, session_id: str, **options: Any) -> Export:
    return read_export(ServerReader(server.url, server.api_key), session_id, **options)


@pytest.mark.parametrize("story", STORIES)
def test_three_ways_of_reading_agree(
    story: str, server: ServerProcess, client: OpenAI, tmp_path: Path
) -> None:
    tell, states, kinds = STORIES[story]
    session_id = tell(client)
    remote = from_server(server, session_id, events=True)
    with open_store(f"sqlite:///{server.data_dir}/perdure.db") as reader:
        stored = read_export(reader, session_id, events=True)
    file = tmp_path / "export.json"
    file.write_text(json.dumps(remote.document()), encoding="utf-8")
    assert remote == stored == read_file(str(file))
    assert remote.settled
    assert compare(remote, stored).is_empty
    listed = client.beta.agents.sessions.items.list(session_id, order="asc", limit=100)
    assert [item["id"] for item in remote.items] == [item.id for item in listed]
    chain = build_chain(remote)
    assert [call.state for call in chain.calls()] == states
    assert [each.kind for each in chain.findings if each.kind != "id_only_in_chat"] == kinds
    assert [each.key for each in chain.owed] == [
        call.call_id for call in chain.calls() if call.state == "owed"
    ]


def test_ids_in_arguments_and_in_output_texts_are_found(server: ServerProcess, client: OpenAI) -> None:
    document = from_server(server, answered(client)).document()
    hits = find_path("$.items..order_id", document)
    assert [(hit.type, hit.value, hit.inside is None) for hit in hits] == [
        ("function_call", "A-1042", True),
        ("function_call_output", "A-1042", False),
    ]


def test_the_database_is_read_while_no_server_runs_and_left_as_it_was(tmp_path: Path) -> None:
    with serving(tmp_path) as server, OpenAI(base_url=server.base_url, api_key=server.api_key) as client:
        session_id = answered(client)
        live = from_server(server, session_id)
    database = tmp_path / "data" / "perdure.db"
    before = database.read_bytes()
    database.chmod(0o400)
    with open_store(f"sqlite:///{database}") as reader:
        assert read_export(reader, session_id) == live
    assert database.read_bytes() == before


def test_a_postgres_database_is_read_too(tmp_path: Path, postgres_url: str) -> None:
    with (
        serving(tmp_path, database=postgres_url) as server,
        OpenAI(base_url=server.base_url, api_key=server.api_key) as client,
    ):
        session_id = answered(client)
        live = from_server(server, session_id, events=True)
        with open_store(postgres_url) as reader:
            assert read_export(reader, session_id, events=True) == live
        with pytest.raises(Unreadable, match="no session sess_none"), open_store(postgres_url) as reader:
            reader.session("sess_none")


def test_every_project_is_read_from_the_database_and_only_its_own_over_http(
    server: ServerProcess, client: OpenAI
) -> None:
    session_id = answered(client)
    other = server.create_key("--project", "another")
    with pytest.raises(Unreadable, match=f"no session {session_id}"):
        read_export(ServerReader(server.url, other), session_id)
    with OpenAI(base_url=server.base_url, api_key=other) as foreign:
        made = foreign.beta.agents.sessions.create(
            agent={"model": "orders"}, environment=NONE, input="Hello."
        )
        until_status(foreign, made.id, "idle")
        foreign_export = read_export(ServerReader(server.base_url, other), made.id)
    with open_store(f"sqlite:///{server.data_dir}/perdure.db") as reader:
        assert read_export(reader, made.id) == foreign_export


def test_a_wrong_key_and_a_deleted_session_are_said_in_words(server: ServerProcess, client: OpenAI) -> None:
    session_id = failed(client)
    with pytest.raises(Unreadable, match=r"key"):
        read_export(ServerReader(server.url, "wrong"), session_id)
    client.beta.agents.sessions.delete(session_id)
    with pytest.raises(Unreadable, match=f"no session {session_id}"):
        from_server(server, session_id)
    with (
        pytest.raises(Unreadable, match=f"no session {session_id}"),
        open_store(f"sqlite:///{server.data_dir}/perdure.db") as reader,
    ):
        read_export(reader, session_id)


@contextmanager
def answering(status: int, body: bytes, **headers: str) -> Iterator[tuple[str, list[str]]]:
    """A server that answers everything alike; yields its address and the paths it is asked for."""
    paths: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listener:
        thread = threading.Thread(target=listener.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.server_address[1]}", paths
        finally:
            listener.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (200, b"<html>", "does not answer as a server"),
        (200, b"[]", "does not answer as a server"),
        (200, b"{}", "does not answer as a server"),
        (500, b"oops", "refused with status 500"),
        (401, b'{"error": {"message": "Incorrect API key."}}', "Incorrect API key"),
    ],
)
def test_a_server_of_another_kind_is_told(status: int, body: bytes, words: str) -> None:
    with answering(status, body) as (url, _), pytest.raises(Unreadable, match=words):
        ServerReader(url, "key").session("sess_1")


def test_a_redirect_is_not_followed_with_the_key() -> None:
    with answering(200, b"{}") as (elsewhere, asked_elsewhere):
        with (
            answering(302, b"", Location=elsewhere) as (url, _),
            pytest.raises(Unreadable, match="status 302"),
        ):
            ServerReader(url, "key").session("sess_1")
        assert asked_elsewhere == []


def test_a_list_that_never_ends_is_not_followed_for_ever() -> None:
    body = b'{"data": [{"id": "x"}], "has_more": true, "last_id": "x"}'
    with answering(200, body) as (url, paths):
        with pytest.raises(Unreadable, match="again and again"):
            ServerReader(url, "key").items("sess_1", None)
        assert len(paths) == 2


def test_ids_are_names_and_no_paths() -> None:
    with answering(404, b"{}") as (url, paths):
        with pytest.raises(Unreadable):
            ServerReader(url, "key").session("../../x?y")
        assert paths == ["/v1/agents/sessions/..%2F..%2Fx%3Fy"]
