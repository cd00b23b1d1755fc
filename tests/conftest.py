"""Options of every test run: `--long`, and the tests that need Node.js."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

NODE_CLIENT = Path(__file__).parent / "node" / "node_modules" / "openai"
"""The official Node.js client, once scripts/test has fetched it."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run the exhaustive variants too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--long"):
        long = [item for item in items if item.get_closest_marker("long") is not None]
        if long:
            config.hook.pytest_deselected(items=long)
            items[:] = [item for item in items if item not in long]
    if shutil.which("node") is None or not NODE_CLIENT.exists():
        absent = pytest.mark.skip(reason="needs Node.js and its official client, which scripts/test fetches")
        for item in items:
            if item.get_closest_marker("node") is not None:
                item.add_marker(absent)
