"""Two servers never work on one data directory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .drive import DEADLINE, Drive
from .forge import Forge
from .model import MODEL, Model
from .scenario import TOOLS, kind_of

pytestmark = pytest.mark.slow


def test_a_second_server_is_refused_and_the_first_goes_on(forge: Forge, model: Model, tmp_path: Path) -> None:
    drive = Drive(forge, model, tmp_path)
    drive.create("Hold the line.", model=MODEL, tools=TOOLS)
    before = drive.until(lambda seen: kind_of(seen.items[-1]) == "assistant")
    second = subprocess.run(
        [
            *(sys.executable, "-m", "perdure.cli.main", "serve", "--port", "0"),
            *("--config", str(drive.config), "--data-dir", str(drive.data_dir)),
        ],
        env={**os.environ, "PERDURE_API_KEY": forge.api_key},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )
    assert second.returncode > 0
    assert "listening" not in second.stdout
    assert "in use by another perdure server" in second.stderr
    assert f"process {forge.pid}" in second.stderr
    assert str(drive.data_dir) in second.stderr
    assert drive.look() == before
    model.hold.release()
    drive.until(lambda seen: seen.status == "idle")
    assert drive.stop() == 0
    assert len(model.provider.requests) == 2
