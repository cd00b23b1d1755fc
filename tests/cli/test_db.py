"""The database's own commands: a copy beside a running server comes back as it was."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from openai import OpenAI
from tests.postgres import PostgresServer
from tests.server import ServerProcess, scripted_config
from typer.testing import CliRunner

from perdure.cli.main import app
from perdure.store.engine import open_engine
from perdure.store.migrate import migrate

SCRIPT = '[otherwise]\nanswer = [{ text = "You said: {user}" }]\n'


def run(*arguments: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["db", *map(str, arguments)])
    return result.exit_code, result.output


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "data" / "perdure.db"
    engine = open_engine(f"sqlite:///{path}")
    migrate(engine)
    engine.dispose()
    return path


def test_a_copy_made_beside_a_running_server_is_what_a_restored_server_goes_on_from(tmp_path: Path) -> None:
    data, copy = tmp_path / "data", tmp_path / "copy.db"
    config = scripted_config(tmp_path, {"echo": SCRIPT})
    with ServerProcess(config, data) as server:
        client = OpenAI(base_url=server.base_url, api_key=server.api_key, max_retries=0)
        sessions = client.beta.agents.sessions
        with sessions.create(
            agent={"model": "echo"}, environment={"type": "none"}, input="Before.", stream=True
        ) as stream:
            session_id = stream.get_final_result().session_id
        assert run("backup", copy, "--data-dir", data)[0] == 0
        with sessions.stream(session_id, input="Behind the copy.") as later:
            later.until_done()
        status, text = run("restore", copy, "--data-dir", data)
        assert (status, "in use by another perdure" in text) == (1, True)
        assert server.terminate() == 0
        status, text = run("restore", copy, "--data-dir", data)
        assert (status, "replaced-1" in text) == (0, True), text
        assert run("check", "--data-dir", data) == (0, "The database is sound.\n")
        server.restart()
        client = OpenAI(base_url=server.base_url, api_key=server.api_key, max_retries=0)
        with client.beta.agents.sessions.stream(session_id, input="Again.") as again:
            assert again.get_final_result().output_text == "You said: Again."
        texts = [
            item.content[0].text
            for item in client.beta.agents.sessions.items.list(session_id, order="asc")
            if item.type == "message" and item.role == "user"
        ]
        assert texts == ["Before.", "Again."]


def test_a_copy_moves_sessions_from_a_file_to_postgres_and_back(
    tmp_path: Path, postgres: PostgresServer, postgres_url: str
) -> None:
    config = scripted_config(tmp_path, {"echo": SCRIPT})
    first, second = tmp_path / "first.db", tmp_path / "second.db"
    said = "Nul \u0000, é and 𝄞."
    with ServerProcess(config, tmp_path / "file") as server:
        client = OpenAI(base_url=server.base_url, api_key=server.api_key, max_retries=0)
        with client.beta.agents.sessions.create(
            agent={"model": "echo"},
            environment={"type": "none"},
            input=said,
            metadata={"order": "A-1042"},
            stream=True,
        ) as stream:
            session_id = stream.get_final_result().session_id
        history = [item.model_dump() for item in client.beta.agents.sessions.items.list(session_id)]
        assert run("backup", first, "--data-dir", server.data_dir)[0] == 0
    assert run("restore", first, "--database", postgres_url) == (0, f"Restored {first}.\n")
    assert run("check", "--database", postgres_url) == (0, "The database is sound.\n")
    status, text = run("restore", first, "--database", postgres_url)
    assert (status, "holds data already" in text) == (1, True)
    with ServerProcess(config, tmp_path / "moved", database=postgres_url) as server:
        client = OpenAI(base_url=server.base_url, api_key=server.api_key, max_retries=0)
        assert [item.model_dump() for item in client.beta.agents.sessions.items.list(session_id)] == history
        with client.beta.agents.sessions.stream(session_id, input="Again.") as again:
            assert again.get_final_result().output_text == "You said: Again."
        history = [item.model_dump() for item in client.beta.agents.sessions.items.list(session_id)]
        assert run("backup", second, "--database", postgres_url)[0] == 0
    assert "Restored" in run("restore", second, "--data-dir", tmp_path / "back")[1]
    with ServerProcess(config, tmp_path / "back") as server:
        client = OpenAI(base_url=server.base_url, api_key=server.api_key, max_retries=0)
        assert [item.model_dump() for item in client.beta.agents.sessions.items.list(session_id)] == history
        found = client.beta.agents.sessions.list(metadata={"order": "A-1042"})
        assert [each.id for each in found] == [session_id]


def test_a_postgres_database_without_tables_is_named(postgres_url: str, tmp_path: Path) -> None:
    status, text = run("check", "--database", postgres_url)
    assert (status, "no perdure tables" in text) == (1, True)
    status, text = run("backup", tmp_path / "copy.db", "--database", postgres_url)
    assert (status, "no perdure tables" in text) == (1, True)
    assert list(tmp_path.iterdir()) == []


def test_a_database_server_that_is_away_is_named_without_its_password(tmp_path: Path) -> None:
    away = "postgresql://perdure:secret-word@127.0.0.1:1/perdure"
    for command in (["upgrade"], ["check"], ["backup", tmp_path / "c.db"]):
        status, text = run(*command, "--database", away)
        assert (status, "cannot be used" in text, "secret-word" in text) == (1, True, False), text


def test_a_damaged_copy_is_not_restored(database: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.db"
    bad.write_bytes(b"not a database at all" * 100)
    before = database.read_bytes()
    status, text = run("restore", bad, "--data-dir", database.parent)
    assert (status, "cannot be restored" in text) == (1, True)
    assert database.read_bytes() == before


def test_a_copy_never_overwrites_a_file(database: Path, tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("mine")
    status, text = run("backup", taken, "--data-dir", database.parent)
    assert (status, "exists already" in text, taken.read_text()) == (1, True, "mine")


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("UPDATE alembic_version SET version_num = '9999'", "newer perdure"),
        ("DROP TABLE alembic_version", "no perdure tables"),
    ],
)
def test_a_database_that_cannot_be_served_is_named(database: Path, statement: str, words: str) -> None:
    with sqlite3.connect(database) as conn:
        conn.execute(statement)
    conn.close()
    status, text = run("check", "--data-dir", database.parent)
    assert (status, words in text) == (1, True), text


def test_an_absent_database_is_named_and_none_is_made(tmp_path: Path) -> None:
    status, text = run("check", "--data-dir", tmp_path / "nowhere")
    assert (status, "There is no database" in text) == (1, True)
    assert not (tmp_path / "nowhere").exists()


def test_the_schema_is_upgraded_from_nothing_and_then_left_alone(tmp_path: Path) -> None:
    assert "Upgraded from nothing" in run("upgrade", "--data-dir", tmp_path)[1]
    assert "The schema is" in run("upgrade", "--data-dir", tmp_path)[1]
