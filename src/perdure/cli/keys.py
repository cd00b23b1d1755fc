"""`perdure keys`: create, list and revoke API keys, beside a running server or without one."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from perdure.cli.options import (
    AsJson,
    ConfigFile,
    Database,
    DataDir,
    effective_settings,
    fail,
)
from perdure.cli.tables import print_table

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from perdure.config.settings import Settings
    from perdure.secrets.keys import Scope

commands = typer.Typer(help="Create, list and revoke API keys.", no_args_is_help=True)


@commands.command("create")
def create_key(
    project: Annotated[str, typer.Option(help="Project the key belongs to.")] = "default",
    scope: Annotated[
        list[str] | None,
        typer.Option(help="read, write, metrics or limits; repeat it. Without it: read and write."),
    ] = None,
    name: Annotated[str, typer.Option(help="A name to recognise the key by.")] = "",
    config: ConfigFile = None,
    data_dir: DataDir = None,
    database: Database = None,
) -> None:
    """Create an API key. Its text is printed on standard output, once; it cannot be shown again."""
    from perdure.secrets.keys import ApiKey, hint, new_key
    from perdure.store import keys as key_rows

    if not project.strip():
        raise typer.BadParameter("is empty", param_hint="--project")
    scopes = _scopes(scope)
    settings = effective_settings(config, data_dir=data_dir, database=database)
    key_id, secret, digest = new_key()
    key = ApiKey(key_id, project, name, frozenset(scopes), time.time_ns() // 1000, None, hint(secret))
    with _rows(settings) as conn:
        key_rows.insert_key(conn, key, digest)
    typer.echo(f"Created {key.id} for project {project} with {', '.join(scopes)}.", err=True)
    typer.echo("This is the only time the key is shown:", err=True)
    typer.echo(secret)


@commands.command("list")
def list_keys(
    project: Annotated[str | None, typer.Option(help="Only keys of this project.")] = None,
    config: ConfigFile = None,
    data_dir: DataDir = None,
    database: Database = None,
    as_json: AsJson = False,
) -> None:
    """List API keys, revoked ones included. Only a hint of each text is known."""
    from perdure.store import keys as key_rows

    with _rows(effective_settings(config, data_dir=data_dir, database=database)) as conn:
        keys = key_rows.list_keys(conn, project)
    if as_json:
        typer.echo(
            json.dumps(
                [asdict(key) | {"scopes": sorted(key.scopes)} for key in keys], indent=2, ensure_ascii=False
            )
        )
        return
    if not keys:
        typer.echo("There are no keys.", err=True)
        return
    print_table(
        ("Id", "Name", "Project", "Scopes", "Created", "Revoked", "Key"),
        (
            (key.id, key.name, key.project_id, " ".join(sorted(key.scopes)), _time(key.created_us),
             _time(key.revoked_us), key.hint)
            for key in keys
        ),
    )  # fmt: skip


@commands.command("revoke")
def revoke_key(
    key_id: Annotated[str, typer.Argument(metavar="KEY_ID", help="The id that `perdure keys list` shows.")],
    config: ConfigFile = None,
    data_dir: DataDir = None,
    database: Database = None,
) -> None:
    """Revoke an API key: within seconds every request with it is refused."""
    from perdure.store import keys as key_rows

    with _rows(effective_settings(config, data_dir=data_dir, database=database)) as conn:
        revoked = key_rows.revoke_key(conn, key_id, time.time_ns() // 1000)
    if not revoked:
        fail(f"There is no working key {key_id}. `perdure keys list` shows them all.")
    typer.echo(f"Revoked {key_id}.", err=True)


@contextmanager
def _rows(settings: Settings) -> Iterator[Connection]:
    from sqlalchemy.exc import DBAPIError

    from perdure.store.engine import StoreError, open_sync_connection
    from perdure.store.migrate import SchemaTooNew

    try:
        with open_sync_connection(settings.database) as conn:
            yield conn
    except (StoreError, SchemaTooNew) as error:
        fail(str(error))
    except OSError as error:
        fail(f"The database cannot be used: {error}")
    except DBAPIError as error:
        fail(f"The database cannot be used: {error.orig}")


def _scopes(words: list[str] | None) -> tuple[Scope, ...]:
    from perdure.secrets.keys import EVERY_SCOPE, SCOPES, scope_of

    if not words:
        return SCOPES
    try:
        wanted = {scope_of(word) for word in words}
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--scope") from error
    return tuple(scope for scope in EVERY_SCOPE if scope in wanted)


def _time(us: int | None) -> str:
    return "–" if us is None else datetime.fromtimestamp(us / 1e6, UTC).strftime("%Y-%m-%d %H:%M UTC")
