"""`perdure worker` and `--workers`: what SQLite cannot do is refused in words."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def run(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "perdure.cli.main", *arguments, "--data-dir", str(directory / "data")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_worker_refuses_sqlite(tmp_path: Path) -> None:
    ended = run(tmp_path, "worker")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "A worker needs PostgreSQL" in ended.stderr
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_server_on_sqlite_is_one_process_that_runs_its_sessions(tmp_path: Path, workers: str) -> None:
    ended = run(tmp_path, "serve", "--port", "0", "--workers", workers)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert f"{workers} workers need PostgreSQL" in ended.stderr
    assert not (tmp_path / "data").exists()
