"""The image: what is copied exists, what is installed is offered, and nobody is root."""

from __future__ import annotations

import fnmatch
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from .files import DOCKERFILE, ROOT, instructions

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
KNOWN = {
    "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL", "RUN", "STOPSIGNAL",
    "USER", "VOLUME", "WORKDIR",
}  # fmt: skip


def values(name: str) -> list[str]:
    return [each.value for each in instructions() if each.name == name]


def copied() -> list[str]:
    """The paths that are copied from the build's context."""
    return [path for value in values("COPY") if "--from" not in value for path in value.split()[:-1]]


def test_every_instruction_is_known_and_commands_are_in_exec_form() -> None:
    assert {each.name for each in instructions()} <= KNOWN
    for name in ("ENTRYPOINT", "CMD"):
        (value,) = values(name)
        assert value.startswith("[")
    (check,) = values("HEALTHCHECK")
    assert re.search(r"CMD \[", check)


def test_what_is_copied_exists_and_is_in_the_context() -> None:
    rules = (ROOT / ".dockerignore").read_text("utf-8").split("\n")
    kept = [rule.removeprefix("!") for rule in rules if rule.startswith("!")]
    assert "*" in rules
    for path in copied():
        assert (ROOT / path).exists(), path
        assert any(fnmatch.fnmatch(path.removeprefix("./"), rule) for rule in kept), path
    assert set(kept) == {path.removeprefix("./") for path in copied()}


def test_what_the_build_reads_is_copied() -> None:
    read = {"pyproject.toml", PROJECT["readme"], *PROJECT["license-files"], "src"}
    assert {path.removeprefix("./") for path in copied()} == read


def test_the_extras_are_offered() -> None:
    (extras,) = re.findall(r"pip install \"?\.\[([\w,]+)\]", DOCKERFILE.read_text("utf-8"))
    assert set(extras.split(",")) == {"postgres", "nats"}
    assert set(extras.split(",")) <= set(PROJECT["optional-dependencies"])


def test_the_python_is_one_that_the_project_names() -> None:
    (version,) = re.findall(r"PYTHON_VERSION=([\d.]+)", DOCKERFILE.read_text("utf-8"))
    assert f"Programming Language :: Python :: {version}" in PROJECT["classifiers"]
    assert len([value for value in values("FROM") if value.startswith("python:${PYTHON_VERSION}-slim")]) == 2


def test_nobody_is_root_and_a_stop_is_a_term() -> None:
    names = [each.name for each in instructions()]
    assert names[-1] == "CMD"
    (user,) = values("USER")
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user)
    assert user.split(":")[0] in DOCKERFILE.read_text("utf-8").partition("--uid ")[2][:8]
    assert names.index("USER") < names.index("ENTRYPOINT")
    assert values("STOPSIGNAL") == ["SIGTERM"]


def test_no_secret_is_baked() -> None:
    for value in (*values("ENV"), *values("ARG")):
        assert not re.search(r"(KEY|PASSWORD|SECRET|TOKEN)\w*=", value)


@pytest.mark.skipif(
    shutil.which("hadolint", path=str(Path(sys.executable).parent)) is None, reason="needs hadolint"
)
def test_a_linter_finds_nothing() -> None:
    program = Path(sys.executable).parent / "hadolint"
    checked = subprocess.run([program, DOCKERFILE], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout
