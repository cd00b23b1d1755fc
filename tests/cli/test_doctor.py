from __future__ import annotations

import http.server
import sqlite3
import threading
from collections.abc import Iterator
from typing import ClassVar

import pytest
from tests.cli.conftest import Perdure

SECRET = "sk-Very-Secret-0123456789"


class Provider(http.server.BaseHTTPRequestHandler):
    """Answers by the path: `/<status>/models`."""

    seen: ClassVar[list[str | None]] = []

    def do_GET(self) -> None:
        self.seen.append(self.headers["Authorization"])
        self.send_response(int(self.path.split("/")[1]))
        self.send_header("Content-Length", "0")
        self.send_header("Location", "/200/models")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Keeps the test's output clean."""


@pytest.fixture
def provider() -> Iterator[str]:
    Provider.seen.clear()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Provider) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def findings(text: str) -> list[list[str]]:
    return [
        line.split(maxsplit=1) for line in text.splitlines() if line.split() and line.split()[0] in STATES
    ]


STATES = ("ok", "note", "wrong")


def states(text: str) -> set[str]:
    return {finding[0] for finding in findings(text)}


def test_a_fresh_machine_is_fine_and_stays_untouched(perdure: Perdure) -> None:
    text = perdure("doctor").stdout
    assert states(text) == {"ok", "note"}
    assert "will be made at the first start" in text
    assert "the server makes one at its start" in text
    assert list(perdure.home.iterdir()) == []


def test_a_database_in_use_is_examined(perdure: Perdure) -> None:
    perdure("keys", "create")
    text = perdure("doctor").stdout
    assert states(text) == {"ok"}
    assert "is current" in text
    assert "1 in the database" in text


def test_every_problem_of_the_configuration_is_a_finding(perdure: Perdure) -> None:
    text = perdure("doctor", "--config", perdure.config("[server]\nport = -1\nx = 1\n"), status=1).stdout
    assert [finding[0] for finding in findings(text)] == ["wrong", "wrong"]


def test_a_public_address_without_keys_is_wrong(perdure: Perdure) -> None:
    config = perdure.config('[server]\nhost = "0.0.0.0"\n')
    assert "API keys" in perdure("doctor", "--config", config, status=1).stdout
    perdure("keys", "create")
    perdure("doctor", "--config", config)


def test_a_configured_key_is_enough(perdure: Perdure) -> None:
    config = perdure.config('api_key = "0123456789"\n[server]\nhost = "0.0.0.0"\n')
    assert "and the configured one" in perdure("doctor", "--config", config).stdout


def test_a_data_directory_that_is_a_file_is_wrong(perdure: Perdure) -> None:
    (perdure.home / "d").write_text("")
    text = perdure("doctor", "--data-dir", perdure.home / "d", status=1).stdout
    assert "is not a directory" in text
    text = perdure("doctor", "--data-dir", perdure.home / "d" / "e", status=1).stdout
    assert "cannot be made" in text


def test_an_open_data_directory_is_noted(perdure: Perdure) -> None:
    (perdure.home / "d").mkdir(mode=0o755)
    assert "open to other users" in perdure("doctor", "--data-dir", perdure.home / "d").stdout


def test_a_file_that_is_no_database_is_wrong(perdure: Perdure) -> None:
    file = perdure.home / "x.db"
    file.write_text("no database " * 50)
    text = perdure("doctor", "--database", f"sqlite:///{file}", status=1).stdout
    assert "file is not a database" in text


def test_a_database_of_a_newer_version_is_wrong_and_an_empty_one_is_not(perdure: Perdure) -> None:
    file = perdure.home / "x.db"
    url = f"sqlite:///{file}"
    sqlite3.connect(file).close()
    file.touch()
    assert "it is empty" in perdure("doctor", "--database", url).stdout
    with sqlite3.connect(file) as database:
        database.execute("CREATE TABLE alembic_version (version_num TEXT)")
        database.execute("INSERT INTO alembic_version VALUES ('9999')")
    database.close()
    assert "newer perdure" in perdure("doctor", "--database", url, status=1).stdout


def test_providers_without_their_key_or_script_or_with_a_foreign_protocol_are_wrong(perdure: Perdure) -> None:
    config = perdure.config("""
    [[provider]]
    name = "a"
    protocol = "responses"
    api_key_env = "ABSENT_KEY"
    [[provider]]
    name = "b"
    protocol = "scripted"
    script = "absent.toml"
    """)
    text = perdure("doctor", "--config", config, status=1).stdout
    assert "the environment variable ABSENT_KEY is not set" in text
    assert "absent.toml" in text


def test_the_network_is_only_used_on_request(perdure: Perdure, provider: str) -> None:
    config = perdure.config(
        f'[[provider]]\nname = "p"\nprotocol = "chat"\nbase_url = "{provider}/200"\napi_key = "{SECRET}"\n'
    )
    text = perdure("doctor", "--config", config).stdout
    assert Provider.seen == []
    assert SECRET not in text
    text = perdure("doctor", "--network", "--config", config).stdout
    assert Provider.seen == [f"Bearer {SECRET}"]
    assert "answers (status 200)" in text
    assert SECRET not in text


@pytest.mark.parametrize(
    ("status", "exit_status", "says"),
    [
        (404, 0, "answers (status 404)"),
        (302, 0, "answers (status 302)"),
        (401, 1, "refuses the key"),
        (503, 1, "answers with status 503"),
    ],
)
def test_a_providers_answer_is_judged(
    perdure: Perdure, provider: str, status: int, exit_status: int, says: str
) -> None:
    config = perdure.config(
        f'[[provider]]\nname = "p"\nprotocol = "chat"\nbase_url = "{provider}/{status}"\n'
        f'api_key = "{SECRET}"\n'
    )
    text = perdure("doctor", "--network", "--config", config, status=exit_status).stdout
    assert says in text
    assert len(Provider.seen) == 1


def test_a_provider_that_cannot_be_reached_is_wrong(perdure: Perdure, provider: str) -> None:
    config = perdure.config(
        '[[provider]]\nname = "p"\nprotocol = "chat"\nbase_url = "http://127.0.0.1:9/v1"\n'
    )
    assert "cannot be reached" in perdure("doctor", "--network", "--config", config, status=1).stdout
