"""The examples of the documents do what the documents say.

Python blocks of a document are one program: they run in order, against a server as the README starts
it; the functions called `test_…` that they define are called at the end. A comment
`<!-- not run: reason -->` above a block leaves it out. A block under `<!-- prints -->` holds what the
block before it prints. JavaScript blocks are a program each.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import NODE_CLIENT
from tests.server import ServerProcess
from typer.testing import CliRunner

from perdure.cli.main import app
from perdure.config.settings import load_settings
from perdure.models.script_file import parse_script

from .documents import DOCUMENTS, Block, blocks

WRITTEN_ADDRESS = "http://127.0.0.1:8700"
PROGRAMS = [document for document in DOCUMENTS if any(block.is_run for block in blocks(document, "python"))]
JAVASCRIPT = [block for document in DOCUMENTS for block in blocks(document, "js") if block.is_run]
TOML = [block for document in DOCUMENTS for block in blocks(document, "toml") if block.is_run]
SHELL = [block for document in DOCUMENTS for block in blocks(document, "sh")]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server without settings: it has the built-in scripted model and no other."""
    home = tmp_path_factory.mktemp("documents")
    config = home / "perdure.toml"
    config.write_text("")
    nobody = dict.fromkeys(("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENROUTER_API_KEY", "OLLAMA_HOST"), "")
    with ServerProcess(config, home / "data", environ=nobody) as process:
        yield process


@pytest.mark.slow
@pytest.mark.parametrize("document", PROGRAMS, ids=lambda document: document.name)
def test_the_python_of_a_document_runs(
    document: Path, server: ServerProcess, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PERDURE_API_KEY", server.api_key)
    monkeypatch.setenv("PERDURE_JOURNAL", str(tmp_path / "journal.db"))
    monkeypatch.setenv("PATH", os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])))
    namespace: dict[str, object] = {"__name__": document.stem}
    printed = ""
    for block in blocks(document):
        if block.note == "prints":
            assert printed == block.text, block
        elif block.language == "python" and block.is_run:
            source = "\n" * (block.line - 1) + block.text.replace(WRITTEN_ADDRESS, server.url)
            with contextlib.redirect_stdout(io.StringIO()) as output:
                exec(compile(source, document, "exec", dont_inherit=True), namespace)
            printed = output.getvalue()
    for name, value in namespace.items():
        if name.startswith("test_") and callable(value):
            value()


@pytest.mark.node
@pytest.mark.parametrize("block", JAVASCRIPT, ids=str)
def test_the_javascript_of_a_document_runs(block: Block, server: ServerProcess, tmp_path: Path) -> None:
    (tmp_path / "node_modules").symlink_to(NODE_CLIENT.parent)
    program = tmp_path / "example.mjs"
    program.write_text(block.text.replace(WRITTEN_ADDRESS, server.url), encoding="utf-8")
    node = shutil.which("node")
    assert node is not None
    environ = {**os.environ, "PERDURE_API_KEY": server.api_key}
    ran = subprocess.run(
        [node, program], capture_output=True, text=True, timeout=60, env=environ, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip()


@pytest.mark.parametrize("block", TOML, ids=str)
def test_the_toml_of_a_document_is_understood(block: Block, tmp_path: Path) -> None:
    if re.search(r"^\[(\[rule\]|otherwise)\]", block.text, re.MULTILINE):
        parse_script(block.text)
        return
    file = tmp_path / "perdure.toml"
    file.write_text(block.text, encoding="utf-8")
    assert load_settings(file, {"HOME": "/home/someone"}).providers


@pytest.mark.parametrize("block", SHELL, ids=str)
def test_the_commands_of_a_document_exist(block: Block) -> None:
    checked = subprocess.run(["bash", "-n"], input=block.text, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    for line in re.findall(r"(?:^|[=\s])(?:perdure) (.*)$", block.text, re.MULTILINE):
        words = line.partition("#")[0].split()
        names = [word for word in words if re.fullmatch(r"[a-z]+", word)]
        known = _help(names)
        for option in (word.partition("=")[0] for word in words if word.startswith("--")):
            assert option in known, line


def _help(names: list[str]) -> str:
    shown = CliRunner().invoke(app, [*names, "--help"], env={"COLUMNS": "200"})
    assert shown.exit_code == 0, shown.output
    return shown.output
