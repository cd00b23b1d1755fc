from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from perdure.config.description import mask_password, password_of
from perdure.config.problems import key_path, known_keys
from perdure.config.settings import SECTIONS, ConfigError, ProviderSettings, Settings, load_settings

HOME = {"HOME": "/home/someone"}


def load(
    tmp_path: Path,
    text: str = "",
    environ: dict[str, str] | None = None,
    overrides: dict[str, object] | None = None,
) -> Settings:
    file = tmp_path / "perdure.toml"
    file.write_text(text, encoding="utf-8")
    return load_settings(file, HOME | (environ or {}), overrides)


def problems(
    tmp_path: Path,
    text: str = "",
    environ: dict[str, str] | None = None,
    overrides: dict[str, object] | None = None,
) -> dict[str, str]:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text, environ, overrides)
    for problem in caught.value.problems:
        assert f"{problem.key}: {problem.message}" in str(caught.value)
    return {problem.key: problem.message for problem in caught.value.problems}


def test_defaults_need_neither_file_nor_environment() -> None:
    settings = load_settings(None, HOME)
    assert settings.server.host == "127.0.0.1"
    assert settings.server.port == 8700
    assert settings.server.stream_buffer == 8 * 1024 * 1024
    assert settings.work.call_timeout is None
    assert settings.limits.model_result_bytes == 262144
    assert settings.data_dir == Path("/home/someone/.local/share/perdure")
    assert settings.database == "sqlite:////home/someone/.local/share/perdure/perdure.db"
    assert [provider.name for provider in settings.providers] == ["scripted"]


def test_the_data_directory_follows_xdg_only_when_it_is_absolute() -> None:
    assert load_settings(None, HOME | {"XDG_DATA_HOME": "/data"}).data_dir == Path("/data/perdure")
    relative = load_settings(None, HOME | {"XDG_DATA_HOME": "data"})
    assert relative.data_dir == Path("/home/someone/.local/share/perdure")


def test_the_database_follows_the_data_directory(tmp_path: Path) -> None:
    settings = load(tmp_path, overrides={"data_dir": tmp_path / "d"})
    assert settings.database == f"sqlite:///{tmp_path}/d/perdure.db"
    assert Settings(data_dir=Path("/x")).database == "sqlite:////x/perdure.db"


def test_command_line_beats_environment_beats_file_beats_default(tmp_path: Path) -> None:
    text = '[server]\nport = 1\nhost = "a"\nkeepalive = 1\n'
    environ = {"PERDURE_SERVER_PORT": "2", "PERDURE_SERVER_HOST": "b"}
    settings = load(tmp_path, text, environ, {"server.port": 3, "server.host": None})
    assert (settings.server.port, settings.server.host, settings.server.keepalive) == (3, "b", 1.0)
    described = settings.describe()["server"]
    assert described["port"] == {"value": 3, "source": "flag"}
    assert described["host"] == {"value": "b", "source": "env"}
    assert described["keepalive"] == {"value": 1.0, "source": "file"}
    assert described["max_body"] == {"value": 33554432, "source": "default"}


def test_the_environment_may_name_the_file(tmp_path: Path) -> None:
    file = tmp_path / "other.toml"
    file.write_text("[server]\nport = 7\n")
    assert load_settings(None, HOME | {"PERDURE_CONFIG": str(file)}).server.port == 7
    assert load_settings(None, HOME | {"PERDURE_CONFIG": ""}).server.port == 8700


SCALARS = [
    (section, key)
    for section, model in SECTIONS.items()
    for key in known_keys(model)
]  # fmt: skip
SAMPLES: dict[str, Any] = {
    "host": "::1",
    "metrics": "open",
    "metrics_host": "::1",
    "obfuscation": False,
    "require_beta_header": False,
    "validate_arguments": False,
    "base_instructions": "Be brief, please.",
    "public_url": "https://a.example",
    "level": "debug",
    "format": "json",
    "stream_buffer": 1 << 20,
    "max_body": 1 << 20,
    "model_result_bytes": 1 << 20,
    "trigger": 0.5,
    "keep": 0.5,
    "default_window": 20_000,
    "summary_model": "short",
    "summary_tokens": 200,
    "depth": 2,
    "reports_wake": True,
    "traces": True,
    "pin_paths": {"order": "$.order_id"},
}


@pytest.mark.parametrize(("section", "key"), SCALARS, ids=".".join)
def test_every_key_of_every_section_can_be_set_in_the_file_and_in_the_environment(
    tmp_path: Path, section: str, key: str
) -> None:
    value = SAMPLES.get(key, 20)
    # An inline table of TOML is written like an object of JSON, but for its colons.
    written = json.dumps(value).replace('": ', '" = ')
    from_file = load(tmp_path, f"[{section}]\n{key} = {written}\n")
    assert getattr(getattr(from_file, section), key) == value
    text = value if isinstance(value, str) else json.dumps(value)
    from_env = load(tmp_path, "", {f"PERDURE_{section.upper()}_{key.upper()}": text})
    assert getattr(getattr(from_env, section), key) == value
    assert from_env.describe()[section][key]["source"] == "env"


@pytest.mark.parametrize(
    ("text", "meant"),
    [("1", True), ("Yes", True), ("on", True), ("FALSE", False), ("off", False), ("0", False)],
)
def test_switches_in_the_environment_are_read_as_people_write_them(
    tmp_path: Path, text: str, meant: bool
) -> None:
    assert load(tmp_path, "", {"PERDURE_SERVER_OBFUSCATION": text}).server.obfuscation is meant


@pytest.mark.parametrize(("text", "meant"), [('"8 MiB"', 8 << 20), ('"64KiB"', 64 << 10), ("65536", 65536)])
def test_sizes_may_be_written_with_a_unit(tmp_path: Path, text: str, meant: int) -> None:
    assert load(tmp_path, f"[server]\nstream_buffer = {text}\n").server.stream_buffer == meant
    assert load(tmp_path, "", {"PERDURE_SERVER_STREAM_BUFFER": text.strip('"')}).server.stream_buffer == meant


def test_none_clears_a_key_and_an_empty_variable_does_not_count(tmp_path: Path) -> None:
    text = "[work]\ncall_timeout = 5\n"
    assert load(tmp_path, text, {"PERDURE_WORK_CALL_TIMEOUT": "none"}).work.call_timeout is None
    assert load(tmp_path, text, {"PERDURE_WORK_CALL_TIMEOUT": ""}).work.call_timeout == 5


def test_every_problem_is_reported_at_once_with_its_key_and_what_is_allowed(tmp_path: Path) -> None:
    found = problems(
        tmp_path,
        """
        colour = "red"
        work = 3
        [server]
        port = 65536
        hots = "x"
        keepalive = "soon"
        obfuscation = 1
        public_url = "agents.example.com"
        [retry]
        base_delay = 60
        [limits]
        model_calls_per_turn = 2.5
        [log]
        level = "loud"
        [[provider]]
        name = "Mine"
        protocol = "smoke"
        models = []
        context_window = 0
        [provider.model."m"]
        efforts = ["huge"]
        context = 3
        [[provider]]
        name = "other"
        protocol = "chat"
        """,
        {"PERDURE_SERVER_MAX_BODY": "much", "PERDURE_LIMITS_SPEED": "9"},
    )
    assert found == {
        "colour": "unknown key; allowed: api_key, bus, context, data_dir, database, database_connections,"
        " limits, log, price, provider, retry, server, subagents, telemetry, work",
        "work": "3 is not allowed; allowed: a table",
        "server.port": "65536 is not allowed; allowed: a whole number from 0 to 65535",
        "server.hots": "unknown key; did you mean host? allowed: base_instructions, host, keepalive,"
        " max_body, metrics, obfuscation, port, public_url, require_beta_header, shutdown_grace,"
        " stream_buffer",
        "server.keepalive": "'soon' is not allowed; allowed: a number of seconds above 0 to 3600",
        "server.obfuscation": "1 is not allowed; allowed: true or false",
        "server.public_url": "is not usable; allowed: a URL that begins with http:// or https://, without"
        " user name, query or fragment",
        "server.max_body": "'much' is not allowed; allowed: a whole number of bytes from 1024 to 1073741824,"
        ' also written as "8 MiB"',
        "retry.max_delay": "30.0 is below base_delay; allowed: a number of seconds from 60.0",
        "limits.model_calls_per_turn": "2.5 is not allowed; allowed: a whole number from 1 to 1000000000,"
        " or none",
        "PERDURE_LIMITS_SPEED": "unknown key; allowed: active_seconds_per_session, active_seconds_per_turn,"
        " model_calls_per_session, model_calls_per_turn, model_result_bytes, output_repairs, repaired_calls,"
        " repeated_calls, repeated_calls_any_result, spend_per_session, spend_per_turn,"
        " tool_calls_per_session, tool_calls_per_turn, total_tokens_per_session, total_tokens_per_turn,"
        " uncached_input_tokens_per_session, uncached_input_tokens_per_turn, validate_arguments",
        "log.level": "'loud' is not allowed; allowed: one of debug, info, warning, error",
        "provider.Mine.name": "'Mine' is not allowed; allowed: lower-case letters, digits, _ and -, at most"
        " 64 of them",
        "provider.Mine.protocol": "'smoke' is not allowed; allowed: one of responses, chat, anthropic,"
        " gemini, scripted",
        "provider.Mine.models": "is empty; allowed: at least one model name or pattern, none of them empty",
        "provider.Mine.context_window": "0 is not allowed; allowed: a whole number from 1, or none",
        "provider.Mine.model.m.efforts": "'huge' is not allowed; allowed: a list; each one of none, minimal,"
        " low, medium, high, xhigh, max, or none",
        "provider.Mine.model.m.context": "unknown key; did you mean context_window? allowed: context_window,"
        " efforts, images, max_output_tokens, parallel_calls, structured_output, upstream",
        "provider.other.base_url": 'is required for protocol = "chat"; allowed: such as'
        ' "http://127.0.0.1:11434/v1"',
    }


@pytest.mark.parametrize(
    ("line", "allowed"),
    [
        ("keepalive = inf", "a number of seconds"),
        ("keepalive = nan", "a number of seconds"),
        ("keepalive = 0", "above 0"),
        ("port = -1", "from 0"),
        ("port = true", "a whole number"),
        ('port = "8700"', "a whole number"),
        ('host = ""', "text that is not empty"),
        ("host = 5", "text"),
    ],
)
def test_types_are_not_guessed_and_numbers_are_finite(tmp_path: Path, line: str, allowed: str) -> None:
    found = problems(tmp_path, f"[server]\n{line}\n")
    assert list(found) == [f"server.{line.split()[0]}"]
    assert allowed in next(iter(found.values()))


@pytest.mark.parametrize(
    "url",
    ["postgresql:x", "sqlite://", "sqlite:///:memory:", "sqlite:///", "perdure.db", "mysql:///x"],
)
def test_a_database_that_would_not_keep_anything_is_refused(tmp_path: Path, url: str) -> None:
    found = problems(tmp_path, overrides={"database": url})
    assert "sqlite:///<path of a file>" in found["database"]


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://db",
        "postgresql://u:p@db:port/x",
        "postgresql://db/x?password=hidden",
        "postgres://d b/x",
    ],
)
def test_a_postgres_url_needs_a_database_and_keeps_its_password_in_one_place(
    tmp_path: Path, url: str
) -> None:
    found = problems(tmp_path, overrides={"database": url})
    assert "postgresql://<user>:<password>@<host>:<port>/<database>" in found["database"]
    assert "hidden" not in found["database"]


def test_postgres_urls_are_taken_as_they_are(tmp_path: Path) -> None:
    for url in ("postgresql://u:p%40ss@db:5432/perdure?sslmode=require", "postgres:///perdure"):
        assert load_settings(None, HOME, {"database": url}).database == url


def test_a_file_that_is_missing_or_no_toml_is_a_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_settings(tmp_path / "absent.toml", HOME)
    with pytest.raises(ConfigError, match="line 1"):
        load(tmp_path, "port = = 3")
    (tmp_path / "latin.toml").write_bytes(b'data_dir = "\xe4"')
    with pytest.raises(ConfigError, match="not valid TOML"):
        load_settings(tmp_path / "latin.toml", HOME)


def test_paths_in_the_file_are_relative_to_it_and_others_to_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = 'data_dir = "data"\n[[provider]]\nname = "demo"\nprotocol = "scripted"\nscript = "a/b.toml"\n'
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    settings = load(tmp_path, text)
    assert settings.data_dir == tmp_path / "data"
    assert settings.providers[-1].script == tmp_path / "a/b.toml"
    assert load(tmp_path, text, {"PERDURE_DATA_DIR": "data"}).data_dir == elsewhere / "data"
    assert load(tmp_path, text, overrides={"data_dir": Path("d")}).data_dir == elsewhere / "d"


def test_bytes_that_are_no_text_are_reported_without_repeating_what_is_around_them(tmp_path: Path) -> None:
    environ = {
        "PERDURE_API_KEY": "0123456789",
        "PERDURE_SERVER_HOST": "\udcff",
        "OPENAI_API_KEY": "sk-0123456789\udcff",
    }
    found = problems(tmp_path, "", environ, {"data_dir": Path("/d/\udcff")})
    assert found == dict.fromkeys(
        ["data_dir", "server.host", "provider.openai.api_key"],
        "holds bytes that are no text; allowed: UTF-8",
    )


def test_service_links_of_a_cluster_are_no_settings(tmp_path: Path) -> None:
    links = {
        "PERDURE_SERVER_PORT": "tcp://10.0.0.7:8700",
        "PERDURE_SERVER_SERVICE_HOST": "10.0.0.7",
        "PERDURE_SERVER_SERVICE_PORT": "8700",
        "PERDURE_SERVER_SERVICE_PORT_HTTP": "8700",
        "PERDURE_SERVER_PORT_8700_TCP": "tcp://10.0.0.7:8700",
        "PERDURE_SERVER_PORT_8700_TCP_ADDR": "10.0.0.7",
        "PERDURE_PORT": "tcp://10.0.0.8:80",
    }
    assert load(tmp_path, "", links).server.port == 8700


def test_settings_cannot_be_changed(tmp_path: Path) -> None:
    settings = load(tmp_path)
    with pytest.raises(ValidationError):
        settings.server.port = 1  # type: ignore[misc]


def test_settings_can_be_made_without_a_file_for_embedding() -> None:
    settings = Settings(
        data_dir=Path("/d"), providers=(ProviderSettings(name="p", protocol="scripted", models=("x",)),)
    )
    assert settings.providers[0].serves("x")
    assert settings.describe()["server"]["port"] == {"value": 8700, "source": "default"}


def test_the_description_is_json_and_covers_every_key(tmp_path: Path) -> None:
    described = load(tmp_path, environ={"OPENAI_API_KEY": "sk-0123456789"}).describe()
    assert json.loads(json.dumps(described)) == described
    assert set(described) == set(known_keys(Settings))
    for section, model in SECTIONS.items():
        assert set(described[section]) == set(known_keys(model))
    assert [set(table) for table in described["provider"]] == [set(known_keys(ProviderSettings))] * 2


@pytest.mark.parametrize(
    ("url", "shown", "password"),
    [
        ("postgresql://me:p%40ss@db/x", "postgresql://me:********@db/x", "p@ss"),
        ("postgresql://me@db/x", "postgresql://me@db/x", None),
        ("sqlite:////d/a:b@c.db", "sqlite:////d/a:b@c.db", None),
    ],
)
def test_the_password_of_a_database_url_is_masked(url: str, shown: str, password: str | None) -> None:
    assert mask_password(url) == shown
    assert password_of(url) == password


def test_key_paths_read_as_in_the_file() -> None:
    assert key_path(("provider", 0, "model", "gpt", "efforts")) == "provider[0].model.gpt.efforts"
