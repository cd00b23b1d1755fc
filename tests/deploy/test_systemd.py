"""The systemd units: hardened, stopped gently, and understood by systemd where it is there."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .files import UNITS, unit

HARDENED = {
    "NoNewPrivileges": "yes",
    "ProtectSystem": "strict",
    "ProtectHome": "yes",
    "PrivateTmp": "yes",
    "PrivateDevices": "yes",
    "ProtectKernelTunables": "yes",
    "ProtectKernelModules": "yes",
    "ProtectControlGroups": "yes",
    "RestrictSUIDSGID": "yes",
    "RestrictNamespaces": "yes",
    "LockPersonality": "yes",
    "MemoryDenyWriteExecute": "yes",
    "CapabilityBoundingSet": "",
    "DynamicUser": "yes",
    "KillSignal": "SIGTERM",
    "Restart": "on-failure",
    "EnvironmentFile": "/etc/perdure/perdure.env",
}
MOST_EXPOSED = 20  # tenths, of 100

every_unit = pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)


def test_there_is_a_server_and_a_template_of_workers() -> None:
    assert [path.name for path in UNITS] == ["perdure-worker@.service", "perdure.service"]


@every_unit
def test_a_unit_is_hardened(path: Path) -> None:
    parsed = unit(path)
    assert {key: parsed.one(key) for key in HARDENED} == HARDENED
    assert parsed.one("WantedBy", "Install") == "multi-user.target"


@every_unit
def test_a_unit_writes_to_its_state_directory_alone(path: Path) -> None:
    parsed = unit(path)
    state = f"/var/lib/{parsed.one('StateDirectory')}"
    assert parsed.one("WorkingDirectory") == state
    assert f"PERDURE_DATA_DIR={state}" in parsed.all("Service", "Environment")
    assert parsed.all("Service", "ReadWritePaths") == []


def test_workers_of_one_template_share_nothing() -> None:
    parsed = unit(UNITS[0])
    for key in ("User", "StateDirectory", "WorkingDirectory"):
        assert "%i" in parsed.one(key)


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The units as they would be on a machine where perdure is installed."""
    program = Path(sys.executable).parent / "perdure"
    assert program.exists()
    for path in UNITS:
        text = path.read_text("utf-8").replace("/opt/perdure/bin/perdure", str(program))
        (tmp_path / path.name).write_text(text, encoding="utf-8")
    return tmp_path


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd")
@every_unit
def test_systemd_understands_the_unit(path: Path, installed: Path) -> None:
    checked = subprocess.run(
        ["systemd-analyze", "verify", installed / path.name], capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stderr.replace(str(installed), "")) == (0, "")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd")
@every_unit
def test_the_unit_exposes_little(path: Path, installed: Path) -> None:
    command = ["systemd-analyze", "security", "--offline=true", f"--threshold={MOST_EXPOSED}"]
    checked = subprocess.run([*command, installed / path.name], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout
