"""The bus between processes: which URLs it takes, and that its secrets are not shown."""

from __future__ import annotations

from typing import Any

import pytest

from perdure.config.description import MASK
from perdure.config.settings import ConfigError, Settings, load_settings

DATABASE = "postgresql://me@db/perdure"


def load(bus: str | None, database: str | None = DATABASE) -> Settings:
    overrides: dict[str, Any] = {"bus": bus, "database": database}
    return load_settings(environ={"HOME": "/home/someone"}, overrides=overrides)


@pytest.mark.parametrize(
    "urls",
    [
        "nats://host",
        "nats://host:4222/",
        "tls://me:secret@host:4222",
        "nats://a:4222, nats://b:4222,tls://token@c",
    ],
)
def test_servers_of_a_cluster_are_taken(urls: str) -> None:
    assert load(urls).bus == urls


@pytest.mark.parametrize(
    "urls",
    ["", "host", "http://host", "redis://host", "nats://", "nats://host:no", "nats://host,", "nats://a/path"],
)
def test_what_is_no_nats_server_is_refused(urls: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_settings(environ={}, overrides={"bus": urls, "database": DATABASE})
    assert "nats://<user>:<password>@<host>:<port>" in str(refused.value)


def test_a_bus_beside_sqlite_is_refused() -> None:
    with pytest.raises(ConfigError, match="has no use with SQLite"):
        load("nats://host", None)


def test_the_environment_names_it_too() -> None:
    environ = {"PERDURE_BUS": "nats://host", "PERDURE_DATABASE": DATABASE}
    assert load_settings(environ=environ).bus == "nats://host"
    assert load_settings(environ={**environ, "PERDURE_BUS": "none"}).bus is None


def test_passwords_and_tokens_are_neither_shown_nor_printed() -> None:
    settings = load("nats://me:pass%40word@a:4222, nats://token-of-ours@b")
    shown = settings.describe()["bus"]["value"]
    assert shown == f"nats://me:{MASK}@a:4222, nats://{MASK}@b"
    assert {"pass@word", "token-of-ours"} <= set(settings.secret_values())
    assert "pass" not in repr(settings)
    assert "token-of-ours" not in repr(settings)


def test_a_bus_that_is_refused_is_not_repeated() -> None:
    with pytest.raises(ConfigError) as refused:
        load("redis://me:secret-word@host")
    assert "secret-word" not in str(refused.value)
