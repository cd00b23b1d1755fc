"""Rules for the parts of an environment: paths, host names, variables, archives."""

from __future__ import annotations

import binascii
import ipaddress
import re
from collections.abc import Sequence
from typing import Annotated

from pydantic import AfterValidator, Field

from perdure.wire.shapes import refusal

WORKSPACE = "/workspace"
MAX_PATH = 4096
MAX_FILES = 50
MAX_INLINE_FILE = 5 << 20
MAX_INLINE_TOTAL = 10 << 20
MAX_FILE_BASE64 = 6_990_508
MAX_ARCHIVE_BASE64 = 70_254_592
MAX_CAPABILITY_DIRECTORIES = 32
MAX_DOMAINS = 100

_LABEL = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED_VARIABLES = ("PATH", "OPENAI_API_KEY")
_RESERVED_DIRECTORIES = (".codex", ".managed-agents")


def _check_absolute(path: str) -> str:
    if not path.startswith("/") or "\x00" in path or "\\" in path:
        raise refusal("Invalid '{param}': expected an absolute path, without backslashes or NUL.")
    if any(part in (".", "..") for part in path.split("/")):
        raise refusal("Invalid '{param}': the path must not contain '.' or '..'.")
    return path


def _check_workspace_path(path: str) -> str:
    _check_absolute(path)
    parts = path.split("/")
    if "" in parts[1:]:
        raise refusal("Invalid '{param}': the path must not contain empty components.")
    if len(parts) < 3 or parts[1] != "workspace":
        raise refusal(f"Invalid '{{param}}': expected a path inside {WORKSPACE}.")
    if parts[2].startswith(_RESERVED_DIRECTORIES) or parts[2:] == ["outputs"]:
        raise refusal("Invalid '{param}': this destination is reserved. Choose another path.")
    return path


def _check_host(host: str) -> str:
    labels = host.split(".")
    if len(host) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise refusal(
            "Invalid '{param}': expected an exact host name, without scheme, port, path or wildcard."
        )
    return host.lower()


def _check_credential_host(host: str) -> str:
    if re.fullmatch(r"[0-9.]+", host):
        try:
            return str(ipaddress.IPv4Address(host))
        except ValueError:
            raise refusal("Invalid '{param}': this is not an IPv4 address.") from None
    return _check_host(host)


def _check_environment(variables: dict[str, str]) -> dict[str, str]:
    for name, value in variables.items():
        if not _VARIABLE.fullmatch(name):
            raise refusal("Invalid '{param}': expected names of environment variables as keys.")
        if name in _RESERVED_VARIABLES or name.startswith("CODEX_"):
            raise refusal("Invalid '{param}': this variable is reserved. Choose another name.", name)
        if "\x00" in value:
            raise refusal("Invalid '{param}': a value must not contain NUL.", name)
    return variables


def _check_directories(directories: list[str]) -> list[str]:
    seen: set[str] = set()
    for index, directory in enumerate(directories):
        if directory in seen:
            raise refusal("Invalid '{param}': the directory is given twice.", index)
        seen.add(directory)
    return directories


AbsolutePath = Annotated[str, Field(min_length=1, max_length=MAX_PATH), AfterValidator(_check_absolute)]
WorkspacePath = Annotated[
    str, Field(min_length=1, max_length=MAX_PATH), AfterValidator(_check_workspace_path)
]
Host = Annotated[str, AfterValidator(_check_host)]
CredentialHost = Annotated[str, AfterValidator(_check_credential_host)]
EnvironmentVariables = Annotated[dict[str, str], AfterValidator(_check_environment)]
CapabilityDirectories = Annotated[
    list[AbsolutePath], Field(max_length=MAX_CAPABILITY_DIRECTORIES), AfterValidator(_check_directories)
]


def base64_size(data: str) -> int | None:
    """The number of bytes that standard base64 stands for, or None if it is not standard base64."""
    try:
        return len(binascii.a2b_base64(data, strict_mode=True))
    except ValueError:
        return None


def nested_destination(paths: Sequence[str]) -> int | None:
    """The index of the first path that repeats another one or lies below it, or has it below itself."""
    taken: set[str] = set()
    parents: set[str] = set()
    for index, path in enumerate(paths):
        parts = path.split("/")
        above = {"/".join(parts[:depth]) for depth in range(2, len(parts))}
        if path in taken or path in parents or taken & above:
            return index
        taken.add(path)
        parents |= above
    return None
