"""Settings as people may see them: each value with its source, no secret among them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pydantic import SecretStr

from perdure.config.sections import Section

MASK = "********"


def describe_section(section: Section, path: str, sources: Mapping[str, str]) -> dict[str, Any]:
    """The entries of a table; `path` is its key path, under which `sources` knows its keys."""
    entries = {}
    for name in type(section).model_fields:
        value = getattr(section, name)
        if name == "headers":
            value = dict.fromkeys(value, MASK)
        entries[name] = describe_value(value, f"{path}.{name}", sources)
    return entries


def describe_value(value: Any, path: str, sources: Mapping[str, str]) -> dict[str, Any]:
    """One entry: the value as JSON, and where it comes from."""
    return {"value": _plain(value), "source": sources.get(path, "default")}


def mask_password(url: str) -> str:
    """A database URL without its password."""
    password = urlsplit(url).password if password_of(url) else None
    return url.replace(f":{password}@", f":{MASK}@", 1) if password else url


def password_of(url: str) -> str | None:
    """The decoded password of a URL, if it has one."""
    try:
        password = urlsplit(url).password
    except ValueError:
        return None
    return unquote(password) if password else None


def mask_credentials(urls: str) -> str:
    """URLs with commas between them, without their passwords; a user without one is a token."""
    return ",".join(_mask_user(url) for url in urls.split(","))


def credentials_of(urls: str) -> list[str]:
    """The decoded passwords and tokens of URLs with commas between them."""
    found = []
    for url in urls.split(","):
        parts = urlsplit(url.strip())
        if secret := parts.password or parts.username:
            found.append(unquote(secret))
    return found


def _mask_user(url: str) -> str:
    parts = urlsplit(url.strip())
    if parts.password:
        return mask_password(url)
    return url.replace(f"//{parts.username}@", f"//{MASK}@", 1) if parts.username else url


def _plain(value: Any) -> Any:
    match value:
        case SecretStr():
            return MASK
        case Path():
            return str(value)
        case tuple():
            return [_plain(item) for item in value]
        case dict():
            return {key: _plain(item) for key, item in value.items()}
        case Section():
            return {key: _plain(item) for key, item in value.model_dump(exclude_none=True).items()}
        case _:
            return value
