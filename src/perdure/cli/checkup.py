"""The checks of `perdure doctor`. They change nothing, and create neither directory nor database."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from perdure.config.settings import ConfigError, ProviderSettings, Settings
from perdure.secrets.first_start import CreateKey, Refuse, decide_first_start

State = Literal["ok", "note", "wrong"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the examination; only `wrong` ones make the command fail."""

    state: State
    subject: str
    text: str


def check_data_dir(path: Path) -> Finding:
    """Whether the server can write where its files are to be."""
    subject = "data directory"
    # Unlike Path.exists, this one takes a forbidden parent for "no".
    if not os.path.exists(path):
        parent = next(folder for folder in path.parents if os.path.exists(folder))
        if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
            return Finding("wrong", subject, f"{path} does not exist and cannot be made in {parent}")
        return Finding("ok", subject, f"{path} will be made at the first start")
    if not path.is_dir():
        return Finding("wrong", subject, f"{path} is not a directory")
    if not os.access(path, os.W_OK | os.X_OK):
        return Finding("wrong", subject, f"{path} is not writable")
    if stat.S_IMODE(path.stat().st_mode) & 0o077:
        return Finding("note", subject, f"{path} is open to other users of this machine; chmod 700 closes it")
    return Finding("ok", subject, f"{path} is writable")


def check_database(settings: Settings) -> Iterator[Finding]:
    """Whether the database opens, its schema is one this version knows, and a server may start on it."""
    from perdure.store.engine import StoreError, open_engine, sqlite_path
    from perdure.store.keys import count_keys

    path = sqlite_path(settings.database)
    if path is not None and not path.exists():
        yield Finding("ok", "database", f"{path} will be made at the first start")
        yield _check_keys(settings, 0)
        return
    try:
        engine = open_engine(settings.database)
        try:
            with engine.connect() as conn:
                schema = _check_schema(conn)
                yield schema
                if schema.state == "ok":
                    yield _check_keys(settings, count_keys(conn))
        finally:
            engine.dispose()
    except StoreError as error:
        yield Finding("wrong", "database", str(error))
    except DBAPIError as error:
        yield Finding("wrong", "database", f"cannot be opened: {error.orig}")


def _check_schema(conn: Connection) -> Finding:
    from perdure.store.migrate import HEAD, MIGRATIONS, current_revision

    revision = current_revision(conn)
    if revision == HEAD:
        return Finding("ok", "database", f"opens; schema {revision} is current")
    from alembic.script import ScriptDirectory

    if revision is None:
        return Finding("note", "database", f"opens; it is empty and gets schema {HEAD} at the next start")
    if revision in {script.revision for script in ScriptDirectory(str(MIGRATIONS)).walk_revisions()}:
        return Finding("note", "database", f"opens; schema {revision} becomes {HEAD} at the next start")
    return Finding(
        "wrong", "database", f"schema {revision} was written by a newer perdure; this one knows {HEAD}"
    )


def _check_keys(settings: Settings, count: int) -> Finding:
    match decide_first_start(settings.server.host, count, settings.api_key is not None):
        case Refuse(message):
            return Finding("wrong", "API keys", message)
        case CreateKey():
            return Finding("note", "API keys", "there are none; the server makes one at its start")
        case _:
            configured = ", and the configured one" if settings.api_key is not None else ""
            return Finding("ok", "API keys", f"{count} in the database{configured}")


def check_models(settings: Settings) -> Iterator[Finding]:
    """Whether this version speaks every protocol, and every script can be played."""
    from perdure.models.registry import Registry

    try:
        Registry(settings)
    except ConfigError as error:
        for problem in error.problems:
            yield Finding("wrong", problem.key, problem.message)


def check_provider(provider: ProviderSettings) -> Finding:
    """Whether the provider's key is there."""
    subject = f"provider {provider.name}"
    if provider.key_is_missing:
        return Finding("wrong", subject, f"the environment variable {provider.api_key_env} is not set")
    if provider.protocol == "scripted":
        return Finding("ok", subject, "needs no key")
    if provider.api_key is None:
        return Finding("note", subject, f"{provider.base_url} is called without a key")
    return Finding("ok", subject, f"has a key for {provider.base_url}")
