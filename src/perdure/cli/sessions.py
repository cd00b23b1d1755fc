"""`perdure sessions`: what a running server's sessions are doing, and ending one."""

from __future__ import annotations

import json
import os
import time
import urllib.error
import urllib.request
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import typer

from perdure.cli.options import AsJson, ConfigFile, DataDir, effective_settings, fail
from perdure.cli.tables import print_table

commands = typer.Typer(help="See what sessions of a running server do, and stop one.", no_args_is_help=True)

Url = Annotated[
    str | None, typer.Option("--url", help="The server [env: PERDURE_URL; default: the configured address].")
]


@commands.command("ps")
def list_running(
    everything: Annotated[bool, typer.Option("--all", help="Idle and failed sessions too.")] = False,
    as_json: AsJson = False,
    url: Url = None,
    config: ConfigFile = None,
    data_dir: DataDir = None,
) -> None:
    """List sessions with work to do: age, owner, last progress, tokens, cost."""
    # Left out, it means all with work to do: those that are idle while subagents run are among them.
    statuses = ["in_progress", "requires_action", "idle", "failed"] if everything else []
    query = "&".join(["limit=100", *(f"status={status}" for status in statuses)])
    server = _Server(url, config, data_dir)
    rows: list[dict[str, Any]] = []
    after = ""
    while True:
        page = server.ask("GET", f"/perdure/v1/sessions?{query}{after}")
        rows += page["data"]
        if not page["has_more"]:
            break
        after = f"&after={page['last_id']}"
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    now = time.time()
    headings = (
        *("Session", "Status", "Model", "Turn", "Subagents", "Age"),
        *("Progress", "Calls", "Tokens", "Cost", "Owner"),
    )
    print_table(headings, [_cells(row, now) for row in rows])


@commands.command("stop")
def stop_session(
    session_id: Annotated[str, typer.Argument(help="The session's id.")],
    url: Url = None,
    config: ConfigFile = None,
    data_dir: DataDir = None,
) -> None:
    """Cancel a session's turn and drop what it still waits for; the session stays."""
    _Server(url, config, data_dir).ask("POST", f"/perdure/v1/sessions/{session_id}/stop")
    typer.echo(f"Stopping {session_id}.", err=True)


class _Server:
    """A running server, with the key of this machine's data directory or of the environment."""

    def __init__(self, url: str | None, config: Path | None, data_dir: Path | None) -> None:
        settings = effective_settings(config, data_dir=data_dir)
        host, port = settings.server.host, settings.server.port
        local = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        self._url = (url or os.environ.get("PERDURE_URL") or settings.server.public_url or local).rstrip("/")
        self._key = "" if settings.api_key is None else settings.api_key.get_secret_value()
        if not self._key:
            from perdure.secrets.first_start import KEY_FILE, read_key_file

            self._key = read_key_file(settings.data_dir / KEY_FILE) or ""
        if not self._key:
            fail("There is no API key: set PERDURE_API_KEY, or name the server's --data-dir.")

    def ask(self, method: str, path: str) -> Any:
        """The JSON of an answer; ends the command with the server's own words when it refuses."""
        request = urllib.request.Request(
            self._url + path, method=method, headers={"Authorization": f"Bearer {self._key}"}
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                body = answer.read()
        except urllib.error.HTTPError as error:
            fail(f"{self._url}: {_reason(error.read())}")
        except OSError as error:
            fail(f"{self._url} cannot be reached: {getattr(error, 'reason', error)}")
        return json.loads(body) if body else None


def _reason(body: bytes) -> str:
    try:
        return str(json.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return "the server refused the request"


def _cells(row: dict[str, Any], now: float) -> tuple[str, ...]:
    turn = row["turn"] or {}
    subagents = row.get("subagents") or []
    usage = turn.get("usage") or row["usage"]
    began = [each["created_at"] for each in (turn, *(one["turn"] for one in subagents)) if each]
    return (
        row["id"],
        row["status"],
        row["model"],
        turn.get("status", "-"),
        str(len(subagents)) if subagents else "-",
        _span(now - min(began, default=row["created_at"])),
        _span(now - row["last_active_at"]),
        f"{turn['model_calls']}/{turn['tool_calls']}" if turn else "-",
        "-" if usage is None else f"{usage['total_tokens']:,}",
        "-" if row.get("cost") is None else f"{row['cost']:,.4f}",
        _owner(row["owner"]),
    )


def _owner(owner: dict[str, Any] | None) -> str:
    """The process that runs a session; a worker that was forgotten has only its id."""
    if owner is None:
        return "-"
    return owner["id"] if owner["host"] is None else f"{owner['host']}:{owner['pid']}"


def _span(seconds: float) -> str:
    """A length of time in its two largest units."""
    rest = max(0, int(seconds))
    units = ((86_400, "d"), (3600, "h"), (60, "m"), (1, "s"))
    for (size, unit), (part, smaller) in pairwise(units):
        if rest >= size:
            return f"{rest // size}{unit} {rest % size // part}{smaller}"
    return f"{rest}s"
