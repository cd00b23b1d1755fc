"""A server that cannot serve does nothing: not to another's data, and not to its own."""

from __future__ import annotations

import os
import socket
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from .drive import DEADLINE, Drive
from .forge import Forge
from .model import MODEL, Model
from .scenario import TOOLS, kind_of

pytestmark = pytest.mark.slow


def serve(drive: Drive, forge: Forge, port: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            *(sys.executable, "-m", "perdure.cli.main", "serve", "--port", port),
            *("--config", str(drive.config), "--data-dir", str(drive.storage.data_dir)),
        ],
        env={**os.environ, "PERDURE_API_KEY": forge.api_key},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )


def test_a_second_server_is_refused_and_the_first_goes_on(forge: Forge, model: Model, tmp_path: Path) -> None:
    drive = Drive(forge, model, tmp_path)
    drive.create("Hold the line.", model=MODEL, tools=TOOLS)
    # Its text is saved a moment later, and nothing changes from then on.
    before = drive.until(lambda seen: kind_of(seen.items[-1]) == "assistant" and seen.items[-1]["content"])
    second = serve(drive, forge, "0")
    assert second.returncode == 1
    assert "Traceback" not in second.stderr
    assert "listening" not in second.stdout
    assert "in use by another perdure server" in second.stderr
    assert f"process {forge.pid}" in second.stderr
    assert str(drive.storage.data_dir) in second.stderr
    assert drive.look() == before
    model.hold.release()
    drive.until(lambda seen: seen.status == "idle")
    assert drive.stop() == 0
    assert len(model.provider.requests) == 2


def test_a_server_whose_port_is_taken_leaves_unfinished_turns_alone(
    forge: Forge, model: Model, tmp_path: Path
) -> None:
    drive = Drive(forge, model, tmp_path)
    drive.create("Hold the line.", model=MODEL, tools=TOOLS)
    drive.until(lambda seen: kind_of(seen.items[-1]) == "assistant")
    forge.kill()
    asked = len(model.provider.requests)
    with (
        closing(sqlite3.connect(drive.storage.data_dir / "perdure.db")) as database,
        socket.socket() as taken,
    ):
        before = database.execute("SELECT epoch FROM sessions").fetchall()
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        refused = serve(drive, forge, str(taken.getsockname()[1]))
        assert refused.returncode == 1
        assert "cannot listen on" in refused.stderr
        assert database.execute("SELECT epoch FROM sessions").fetchall() == before
    assert len(model.provider.requests) == asked
