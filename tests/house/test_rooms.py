"""Which room may import which: the table of docs/architecture.md, held against every import."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from .sources import PACKAGE, ROOT, imports_of, modules, package_of, room_of, rooms

EVERY = frozenset(
    {
        "wire", "schema", "config", "secrets", "store", "models", "environments", "tools", "live",
        "harness", "work", "api", "sdk", "inspect", "cli",
    }
)  # fmt: skip

MAY_IMPORT: dict[str, frozenset[str]] = {
    "wire": frozenset(),
    "schema": frozenset(),
    "config": frozenset(),
    "secrets": frozenset({"config"}),
    "store": frozenset({"wire", "secrets", "config"}),
    "models": frozenset({"wire", "config"}),
    "environments": frozenset({"wire", "config", "secrets"}),
    "tools": frozenset({"wire", "schema", "environments"}),
    "live": frozenset({"wire", "config"}),
    "harness": frozenset({"wire", "schema", "config", "store", "models", "tools", "environments", "live"}),
    "work": frozenset({"harness", "store", "config"}),
    "api": EVERY - {"sdk", "cli"},
    "sdk": frozenset({"wire", "schema", "config", "api"}),
    "inspect": frozenset({"wire", "store"}),
    "cli": EVERY,
}


def names(module: Path) -> str:
    return str(module.relative_to(PACKAGE))


def test_every_room_has_rules() -> None:
    assert set(rooms()) <= set(MAY_IMPORT)
    assert set(MAY_IMPORT) == EVERY


def test_the_package_itself_shows_only_the_names_of_the_sdk() -> None:
    for module in PACKAGE.glob("*.py"):
        assert {found.room for found in imports_of(module.read_text("utf-8"), "perdure")} <= {"sdk"}


def test_importing_the_package_loads_nothing_of_it() -> None:
    code = "import sys, perdure; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert {name for name in loaded.split() if name.partition(".")[0] == "perdure"} == {"perdure"}


def test_the_sdk_does_without_the_server_until_one_is_embedded() -> None:
    code = "import sys; from perdure import Agent, Sessions, handoff, tool; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    heavy = {"openai", "httpx2", "fastapi", "sqlalchemy", "aiohttp", "pydantic", "perdure.api"}
    assert heavy.isdisjoint(loaded.split())


@pytest.mark.parametrize("module", [each for each in modules() if room_of(each)], ids=names)
def test_a_module_imports_only_what_its_room_may(module: Path) -> None:
    room = room_of(module)
    assert room is not None
    allowed = MAY_IMPORT[room] | {room}
    wrong = [
        f"line {found.line}: {found.module}"
        for found in imports_of(module.read_text("utf-8"), package_of(module))
        if found.room is not None and found.room not in allowed
    ]
    assert wrong == [], f"{room} may import {', '.join(sorted(MAY_IMPORT[room])) or 'nothing of ours'}"


def test_no_two_rooms_may_import_each_other() -> None:
    mutual = [
        (one, other)
        for one, allowed in MAY_IMPORT.items()
        for other in allowed
        if one < other and one in MAY_IMPORT[other]
    ]
    assert mutual == []


def test_the_plan_states_the_same_rules() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    table = dict(re.findall(r"^\| `(\w+)/` \|.*\| ([^|]+) \|$", text, re.MULTILINE))
    assert set(table) == set(MAY_IMPORT)
    for room, cell in table.items():
        named = frozenset(re.findall(r"`(\w+)`", cell))
        allowed = EVERY - {room} - named if cell.startswith("all but") else named
        allowed = EVERY if cell.startswith("all,") else allowed
        assert allowed - {room} == MAY_IMPORT[room] - {room}, room


def test_the_command_line_starts_without_the_other_rooms() -> None:
    code = "import sys, perdure.cli.main; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert {name.split(".")[1] for name in loaded.split() if name.startswith("perdure.")} == {"cli"}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import perdure.store.rows", ["store"]),
        ("from perdure import __version__", [None]),
        ("from perdure import store", ["store"]),
        ("from perdure.store import rows", ["store"]),
        ("def f():\n    from perdure.models.registry import Registry", ["models"]),
        ("if TYPE_CHECKING:\n    from perdure.api.app import create_app", ["api"]),
        ("from . import rows", ["wire"]),
        ("from ..store import rows", ["store"]),
        ("import importlib\nimportlib.import_module('perdure.live.hub')", ["live"]),
        ("import os, json\nfrom perduring import store", []),
    ],
)
def test_imports_are_found_wherever_they_stand(source: str, found: list[str | None]) -> None:
    assert [each.room for each in imports_of(source, "perdure.wire")] == found
