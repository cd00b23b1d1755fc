"""What a server without API keys may do, and the file that holds the key it makes for itself."""

from __future__ import annotations

import ipaddress
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

KEY_FILE = "api-key"
"""Name of the generated key's file in the data directory."""


@dataclass(frozen=True, slots=True)
class Serve:
    """There is a key: start."""


@dataclass(frozen=True, slots=True)
class CreateKey:
    """Start on loopback with a new key, kept in the data directory."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """Do not start; `message` says why and what to do, `status` is the exit status."""

    message: str
    status: int = 2


Decision = Serve | CreateKey | Refuse


def decide_first_start(host: str, key_count: int, has_configured_key: bool) -> Decision:
    """Whether a server may start.

    Args:
        host: the address it is to listen on.
        key_count: keys in the database that are not revoked.
        has_configured_key: whether the configuration itself brings a key (`PERDURE_API_KEY`).
    """
    if has_configured_key or key_count > 0:
        return Serve()
    if is_loopback(host):
        return CreateKey()
    return Refuse(
        f"perdure does not listen on {host} without an API key: everybody who reaches that address could"
        " use your models. Create a key with `perdure keys create`, or set PERDURE_API_KEY, or listen on"
        " 127.0.0.1."
    )


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to the address. Other names than localhost count as public."""
    name = host.strip().removeprefix("[").removesuffix("]").partition("%")[0].lower()
    if name == "localhost":
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def write_key_file(path: Path, secret: str) -> None:
    """Write the key and a line break to `path`, readable by the owner alone, all of it or nothing.

    Makes the directory with mode 0700 when it is missing. Raises OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(f"{secret}\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_directory(path.parent)


def read_key_file(path: Path) -> str | None:
    """The key in the file, or None when there is no such file or nothing in it. Raises OSError."""
    try:
        return path.read_text(encoding="utf-8").strip() or None
    except FileNotFoundError:
        return None


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
