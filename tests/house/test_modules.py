"""Names, sizes and unfinished business."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from .sources import PACKAGE, ROOT, modules

MOST_LINES = 400
SHAPELESS = {"utils", "util", "helpers", "helper", "common", "manager", "base", "misc"}
UNFINISHED = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
SCRIPTS = sorted(
    path
    for folder in ("scripts", ".ci", "bench")
    for path in (ROOT / folder).iterdir()
    if path.is_file() and not path.suffix
)
REGISTRIES = ("pypi.org", "pythonhosted.org", "npmjs.org", "npmjs.com")


def names(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("module", modules(), ids=names)
def test_a_module_fits_its_room(module: Path) -> None:
    source = module.read_text("utf-8")
    lines = source.count("\n")
    assert lines <= MOST_LINES
    assert module.stem not in SHAPELESS
    assert UNFINISHED.findall(source) == []


def test_no_room_is_shapeless() -> None:
    assert {folder.name for folder in PACKAGE.rglob("*") if folder.is_dir()}.isdisjoint(SHAPELESS)


def test_every_module_has_a_docstring() -> None:
    bare = [
        names(module) for module in modules() if (text := module.read_text("utf-8")) and text[:3] != '"""'
    ]
    assert bare == []


@pytest.mark.parametrize("script", SCRIPTS, ids=names)
def test_a_script_can_be_run(script: Path) -> None:
    text = script.read_text("utf-8")
    assert script.stat().st_mode & 0o111, "not executable"
    first = text.partition("\n")[0]
    assert first.startswith("#!/usr/bin/env ")
    if first.endswith("bash"):
        checked = subprocess.run(["bash", "-n", script], capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked.stderr
        assert "set -euo pipefail" in text
    assert not [host for host in REGISTRIES if host in text]


def test_the_scripts_people_are_told_about_are_there() -> None:
    assert {names(script) for script in SCRIPTS} >= {
        "scripts/demo",
        "scripts/setup",
        "scripts/test",
        ".ci/run",
    }
