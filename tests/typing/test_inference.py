"""Both type checkers infer the documented types, and refuse what is refused."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHECKED = sorted(
    str(path) for path in Path(__file__).parent.glob("*.py") if not path.stem.startswith("test_")
)

pytestmark = pytest.mark.slow


def report(*command: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *command, *CHECKED], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return "" if done.returncode == 0 else f"{done.stdout}\n{done.stderr}"


def test_mypy_infers_the_types(tmp_path: Path) -> None:
    arguments = ("--strict", "--warn-unused-ignores", "--cache-dir", str(tmp_path / "cache"))
    assert report("mypy", *arguments) == ""


@pytest.mark.skipif(shutil.which("node") is None, reason="pyright runs on Node.js")
def test_pyright_infers_the_types(tmp_path: Path) -> None:
    pytest.importorskip("pyright")
    settings = tmp_path / "pyrightconfig.json"
    settings.write_text(
        '{"typeCheckingMode": "strict", "reportUnnecessaryTypeIgnoreComment": true, '
        '"enableTypeIgnoreComments": false, "reportUnusedFunction": false}'
    )
    assert report("pyright", "--project", str(settings), "--pythonpath", sys.executable) == ""
