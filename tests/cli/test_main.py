from __future__ import annotations

import subprocess
import sys
import types
from pathlib import Path

import pytest
from tests.cli.conftest import Perdure

from perdure.cli.main import app
from perdure.config.settings import ConfigError, Problem, Settings


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """The settings of every server that was to run; each ends with status 7."""
    seen: list[Settings] = []
    module = types.ModuleType("perdure.api.server")

    def run(settings: Settings) -> int:
        seen.append(settings)
        if settings.server.port == 1:
            raise ConfigError([Problem("provider.x.script", "is no script")])
        return 7

    module.run = run  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "perdure.api.server", module)
    return seen


def test_serve_runs_with_the_flags_and_ends_with_the_servers_status(
    perdure: Perdure, served: list[Settings]
) -> None:
    config = perdure.config("[server]\nport = 9\nkeepalive = 2\n")
    perdure(
        "serve", "--host", "::1", "--port", "0", "--config", config,
        "--data-dir", perdure.home / "d", "--database", "sqlite:////x/y.db", status=7,
    )  # fmt: skip
    (settings,) = served
    assert (settings.server.host, settings.server.port, settings.server.keepalive) == ("::1", 0, 2.0)
    assert settings.data_dir == perdure.home / "d"
    assert settings.database == "sqlite:////x/y.db"


def test_serve_without_flags_uses_the_defaults(perdure: Perdure, served: list[Settings]) -> None:
    perdure("serve", status=7)
    assert served[0].server.port == 8700
    assert served[0].data_dir == perdure.data_dir


def test_serve_with_an_unusable_configuration_starts_nothing_and_ends_with_status_2(
    perdure: Perdure, served: list[Settings]
) -> None:
    outcome = perdure("serve", "--config", perdure.config("[server]\nport = -1\n[work]\nx = 1\n"), status=2)
    assert served == []
    assert outcome.stdout == ""
    assert "server.port: -1 is not allowed" in outcome.stderr
    assert "work.x: unknown key" in outcome.stderr
    assert "Traceback" not in outcome.stderr


def test_serve_with_a_configuration_that_only_the_server_can_judge_ends_with_status_2(
    perdure: Perdure, served: list[Settings]
) -> None:
    outcome = perdure("serve", "--port", "1", status=2)
    assert "provider.x.script: is no script" in outcome.stderr


@pytest.mark.parametrize("arguments", [["version"], ["--version"]])
def test_the_version_is_printed(perdure: Perdure, arguments: list[str]) -> None:
    assert perdure(*arguments).stdout == "perdure 0.1.0\n"


def test_help_names_every_command(perdure: Perdure) -> None:
    text = perdure("--help").stdout
    for command in ("serve", "config", "keys", "doctor", "version"):
        assert command in text


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys\nfrom perdure.cli.main import app\n"
        "try:\n    app(['--help'])\nexcept SystemExit:\n    pass\n"
        "print([m for m in ('pydantic', 'sqlalchemy', 'fastapi', 'aiohttp', 'uvicorn', 'alembic')"
        " if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stderr.strip() == "[]"


def test_a_crash_does_not_print_local_variables() -> None:
    assert app.pretty_exceptions_enable is False


def test_the_installed_command_works(tmp_path: Path) -> None:
    command = Path(sys.executable).with_name("perdure")
    done = subprocess.run([command, "--version"], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "perdure 0.1.0\n"
