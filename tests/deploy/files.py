"""The deployment files, parsed, and the processes that they start."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
DOCKERFILE = DEPLOY / "Dockerfile"
COMPOSE = DEPLOY / "compose.yaml"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
MANIFESTS = sorted([*(DEPLOY / "kubernetes").glob("*.yaml"), *(DEPLOY / "kubernetes").glob("*.example")])
PLACEHOLDER = "aVeryLongSecret"

_VARIABLE = re.compile(r"\$\{(?P<name>\w+)(?::[?-](?P<rest>[^}]*))?\}")


@dataclass(frozen=True)
class Launch:
    """One process: the arguments of `perdure`, its variables, and how many seconds it has to stop."""

    where: str
    arguments: tuple[str, ...]
    environ: Mapping[str, str] = field(default_factory=dict)
    grace: float | None = None

    def __str__(self) -> str:
        return f"{self.where}: {' '.join(self.arguments)}"


@dataclass(frozen=True)
class Instruction:
    """One instruction of a Dockerfile, its continuation lines joined."""

    line: int
    name: str
    value: str


def instructions(path: Path = DOCKERFILE) -> list[Instruction]:
    """Every instruction; raises ValueError for a line that is none."""
    found: list[Instruction] = []
    begun: tuple[int, str] | None = None
    for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        start, before = begun or (number, "")
        joined = f"{before} {text}".strip()
        if joined.endswith("\\"):
            begun = (start, joined.removesuffix("\\").strip())
            continue
        begun = None
        match = re.fullmatch(r"([A-Z]+)\s+(.+)", joined)
        if match is None:
            raise ValueError(f"{path.name}:{start}: no instruction: {joined}")
        found.append(Instruction(start, match[1], match[2]))
    if begun is not None:
        raise ValueError(f"{path.name}: the last line is continued")
    return found


def image_environment() -> dict[str, str]:
    """What the final stage sets."""
    environ: dict[str, str] = {}
    for each in instructions():
        if each.name == "FROM":
            environ = {}
        elif each.name == "ENV":
            environ |= dict(word.split("=", 1) for word in shlex.split(each.value))
    return environ


def compose() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(COMPOSE.read_text("utf-8"))
    return document


def interpolated(text: str) -> str:
    """A value with its variables filled in, those that must be set with a placeholder."""
    return _VARIABLE.sub(lambda found: found["rest"] if ":-" in found[0] else PLACEHOLDER, text)


def seconds(text: str) -> float:
    """A duration such as `90s` or `2m`; a bare number is seconds."""
    match = re.fullmatch(r"(\d+)(s|m|min)?", text.strip())
    if match is None:
        raise ValueError(f"no duration: {text!r}")
    return int(match[1]) * (60 if match[2] in ("m", "min") else 1)


@dataclass(frozen=True)
class Unit:
    """A unit file; a key may be given several times."""

    path: Path
    entries: tuple[tuple[str, str, str], ...]

    def all(self, section: str, key: str) -> list[str]:
        return [value for s, k, value in self.entries if (s, k) == (section, key)]

    def one(self, key: str, section: str = "Service") -> str:
        (value,) = self.all(section, key)
        return value


def unit(path: Path) -> Unit:
    """A unit file, parsed; raises ValueError for a line that is neither section, key nor comment."""
    section = None
    entries: list[tuple[str, str, str]] = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
        if not line.strip() or line.startswith(("#", ";")):
            continue
        if match := re.fullmatch(r"\[(\w+)\]", line):
            section = match[1]
        elif section is not None and (match := re.fullmatch(r"(\w+)=(.*)", line)):
            entries.append((section, match[1], match[2]))
        else:
            raise ValueError(f"{path.name}:{number}: {line!r}")
    return Unit(path, tuple(entries))


def environment_file(path: Path) -> dict[str, str]:
    """The variables of an example file, those that are commented out too; empty ones are filled in."""
    found = {}
    for line in path.read_text("utf-8").splitlines():
        if match := re.fullmatch(r"#?([A-Z][A-Z0-9_]*)=(.*)", line):
            found[match[1]] = match[2] or PLACEHOLDER
    return found


def manifests() -> list[tuple[Path, dict[str, Any]]]:
    """Every Kubernetes object with the file it stands in."""
    return [
        (path, document)
        for path in MANIFESTS
        for document in yaml.safe_load_all(path.read_text("utf-8"))
        if document is not None
    ]


def objects(kind: str) -> list[dict[str, Any]]:
    return [document for _, document in manifests() if document["kind"] == kind]


def launches() -> Iterator[Launch]:
    """Every process that a deployment file starts."""
    yield from _of_image()
    yield from _of_compose()
    yield from _of_units()
    yield from _of_kubernetes()


def _of_image() -> Iterator[Launch]:
    commands = {
        each.name: yaml.safe_load(each.value) for each in instructions() if each.name in ("ENTRYPOINT", "CMD")
    }
    program, *arguments = [*commands["ENTRYPOINT"], *commands["CMD"]]
    assert program == "perdure"
    yield Launch("Dockerfile", tuple(arguments), image_environment() | {"PERDURE_API_KEY": PLACEHOLDER})


def _of_compose() -> Iterator[Launch]:
    for name, service in compose()["services"].items():
        if service["image"] == "perdure":
            environ = {key: interpolated(value) for key, value in service["environment"].items()}
            yield Launch(
                f"compose {name}",
                tuple(service["command"]),
                image_environment() | environ,
                seconds(service["stop_grace_period"]),
            )


def _of_units() -> Iterator[Launch]:
    file = environment_file(DEPLOY / "systemd" / "perdure.env.example")
    for path in UNITS:
        parsed = unit(path)
        program, *arguments = shlex.split(parsed.one("ExecStart").replace("%i", "1"))
        assert program == "/opt/perdure/bin/perdure"
        own = dict(value.replace("%i", "1").split("=", 1) for value in parsed.all("Service", "Environment"))
        yield Launch(path.name, tuple(arguments), file | own, seconds(parsed.one("TimeoutStopSec")))


def _of_kubernetes() -> Iterator[Launch]:
    data: dict[str, str] = {}
    for each in (*objects("ConfigMap"), *objects("Secret")):
        data |= each.get("data", {}) | each.get("stringData", {})
    for deployment in objects("Deployment"):
        pod = deployment["spec"]["template"]["spec"]
        for container in (*pod["initContainers"], *pod["containers"]):
            stopping = container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
            yield Launch(
                f"{deployment['metadata']['name']} {container['name']}",
                tuple(container["args"]),
                image_environment() | data,
                pod["terminationGracePeriodSeconds"] - stopping,
            )
