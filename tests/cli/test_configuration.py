from __future__ import annotations

import json

import pytest
from tests.cli.conftest import Perdure

SECRET = "sk-Very-Secret-0123456789"


def test_the_effective_configuration_is_shown_with_its_sources(
    perdure: Perdure, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.setenv("PERDURE_WORK_LEASE", "5")
    config = perdure.config("[server]\nport = 9\n")
    outcome = perdure("config", "--config", config, "--data-dir", perdure.home / "d")
    rows = {tuple(line.split()) for line in outcome.stdout.splitlines()}
    assert ("server.port", "9", "file") in rows
    assert ("work.lease", "5.0", "env") in rows
    assert ("data_dir", f"{perdure.home}/d", "flag") in rows
    assert ("log.level", "info", "default") in rows
    assert ("work.call_timeout", "–", "default") in rows
    assert ("provider.openai.api_key", "********", "env") in rows
    # Brackets are content here, not markup.
    assert '"o[0-9]*"' in outcome.stdout
    assert SECRET not in outcome.stdout + outcome.stderr


def test_the_configuration_as_json_has_value_and_source_of_each_key(perdure: Perdure) -> None:
    described = json.loads(perdure("config", "--json").stdout)
    assert described["server"]["port"] == {"value": 8700, "source": "default"}
    assert described["provider"][0]["name"] == {"value": "scripted", "source": "default"}


def test_an_unusable_configuration_ends_with_status_2(perdure: Perdure) -> None:
    outcome = perdure("config", "--config", perdure.home / "absent.toml", status=2)
    assert outcome.stdout == ""
    assert "absent.toml: the settings file cannot be read" in outcome.stderr
