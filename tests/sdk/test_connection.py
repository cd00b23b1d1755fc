"""A server is named, or there is none: nothing is guessed from the environment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perdure import Agent, NoServer, SdkError, Sessions
from perdure.sdk.connection import connect

EVERYTHING = {
    "OPENAI_API_KEY": "sk-paid",
    "OPENAI_BASE_URL": "https://paid.example/v1",
    "OPENAI_ORG_ID": "org_1",
    "OPENAI_PROJECT_ID": "proj_1",
}


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PERDURE_URL", "PERDURE_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in EVERYTHING.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "No server is named"),
        ({"api_key": "k"}, "No server is named"),
        ({"base_url": "http://127.0.0.1:8700"}, "needs a key"),
        ({"base_url": "127.0.0.1:8700", "api_key": "k"}, "begins with http"),
        ({"base_url": "http://127.0.0.1:8700", "embedded": True}, "give one of them"),
        ({"hosted": True, "embedded": True}, "give one of them"),
        ({"base_url": "http://127.0.0.1:8700", "api_key": "k", "data_dir": "x"}, "embedded=True"),
        ({"embedded": True, "api_key": "k"}, "takes no api_key"),
    ],
)
def test_what_names_no_server_or_several_is_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(NoServer, match=reason):
        Sessions(**options)


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("http://127.0.0.1:8700", "http://127.0.0.1:8700/v1/"),
        ("http://127.0.0.1:8700/", "http://127.0.0.1:8700/v1/"),
        ("http://127.0.0.1:8700/v1", "http://127.0.0.1:8700/v1/"),
        ("https://agents.example/team/v1", "https://agents.example/team/v1/"),
    ],
)
def test_an_address_may_leave_the_version_out(given: str, used: str) -> None:
    client = Sessions(base_url=given, api_key="k").client
    assert str(client.base_url) == used
    assert client.api_key == "k"


def test_the_variables_of_perdure_name_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERDURE_URL", "http://127.0.0.1:8700")
    monkeypatch.setenv("PERDURE_API_KEY", "own")
    client = Sessions().client
    assert (str(client.base_url), client.api_key) == ("http://127.0.0.1:8700/v1/", "own")
    # What is named in the code is used alone.
    assert str(Sessions(base_url="http://localhost:1").client.base_url) == "http://localhost:1/v1/"


def test_nothing_of_openai_reaches_another_server() -> None:
    client = Sessions(base_url="http://127.0.0.1:8700", api_key="own").client
    sent = " ".join(map(str, {**client.default_headers, **client.auth_headers}.values()))
    for secret in EVERYTHING.values():
        assert secret not in sent


def test_the_hosted_service_is_used_when_it_is_named() -> None:
    client = connect(None, None, hosted=True)
    assert (str(client.base_url), client.api_key) == ("https://api.openai.com/v1/", "sk-paid")
    hosted = Sessions(hosted=True, api_key="other")
    assert hosted.client.api_key == "other"
    # That service takes a repeated creation for another one.
    assert hosted.creation_patience == 0
    with pytest.raises(NoServer, match="needs api_key"):
        connect(None, None, hosted=True, environ={})


@pytest.mark.parametrize("has_settings", [False, True])
async def test_the_embedded_engine_uses_no_key_of_the_environment(tmp_path: Path, has_settings: bool) -> None:
    settings = tmp_path / "perdure.toml"
    settings.write_text("[limits]\noutput_repairs = 0\n")
    config = settings if has_settings else None
    async with Sessions(embedded=True, data_dir=tmp_path, config=config) as sessions:
        with pytest.raises(Exception, match="gpt-6-astra"):
            await sessions.start(Agent(model="gpt-6-astra")).run("Hello")
        result = await sessions.start(Agent(model="scripted")).run("Hello")
    assert result.final_output
    assert (tmp_path / "perdure.db").exists()


async def test_the_embedded_engine_has_its_journal_beside_its_data(tmp_path: Path) -> None:
    async with Sessions(embedded=True, data_dir=tmp_path) as sessions:
        journal = await sessions.journal()
        assert journal.journal.where == str(tmp_path / "journal.db")


def test_the_embedded_engine_runs_inside_of_its_context_alone(tmp_path: Path) -> None:
    with pytest.raises(SdkError, match="async with"):
        Sessions(embedded=True, data_dir=tmp_path).start(Agent(model="m")).sessions.client  # noqa: B018


async def test_an_embedded_session_outlives_its_engine(tmp_path: Path) -> None:
    agent = Agent(model="scripted")
    async with Sessions(embedded=True, data_dir=tmp_path) as sessions:
        first = await sessions.start(agent).run("Hello")
    async with Sessions(embedded=True, data_dir=tmp_path, agents=[agent]) as sessions:
        again = await sessions.resume(first.session_id)
        assert again.final_output == first.final_output
        assert (await again.session.run("And again")).turn_id != first.turn_id
