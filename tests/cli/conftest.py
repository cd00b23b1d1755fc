from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import pytest
from typer.testing import CliRunner

from perdure.cli.main import app


class Outcome(Protocol):
    """What a command left behind."""

    @property
    def exit_code(self) -> int: ...

    @property
    def stdout(self) -> str: ...

    @property
    def stderr(self) -> str: ...


class Perdure:
    """Runs commands in a home of their own, with no settings from outside."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.data_dir = home / ".local" / "share" / "perdure"

    def __call__(self, *arguments: str | Path, status: int = 0) -> Outcome:
        outcome = CliRunner().invoke(app, [str(argument) for argument in arguments])
        assert outcome.exit_code == status, outcome.output
        return outcome

    def config(self, text: str) -> Path:
        file = self.home / "perdure.toml"
        file.write_text(text, encoding="utf-8")
        return file


def clean_environment() -> Sequence[str]:
    """The variables that would change what a command does."""
    prefixes = ("PERDURE_", "OPENAI_", "OPENROUTER_", "OLLAMA_", "XDG_")
    return [name for name in os.environ if name.startswith(prefixes)]


@pytest.fixture
def perdure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Perdure:
    for name in clean_environment():
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    return Perdure(tmp_path)
