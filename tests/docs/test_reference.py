"""The reference says what the docstrings say."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys

import pytest

from .documents import ROOT

SCRIPT = ROOT / "scripts" / "reference"
REFERENCE = ROOT / "docs" / "reference.md"


def test_the_reference_is_current() -> None:
    checked = subprocess.run(
        [sys.executable, "-I", SCRIPT, "--check"], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize("package", ["perdure.sdk", "perdure.schema", "perdure.inspect"])
def test_every_public_name_has_an_entry(package: str) -> None:
    # A heading is `### class Agent`, `### tool()`, or `### KINDS`.
    headings = set(re.findall(r"^### (?:class )?(\w+)(?:\(\))?$", REFERENCE.read_text("utf-8"), re.MULTILINE))
    assert set(importlib.import_module(package).__all__) - headings == set()
