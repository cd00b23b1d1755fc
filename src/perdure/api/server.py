"""`perdure serve`: a socket, the application behind it, a clean end."""

from __future__ import annotations

import asyncio
import logging
import math
import signal
import socket
import sys
from collections.abc import Callable
from types import FrameType

import uvicorn
from fastapi import FastAPI

from perdure.api.app import create_app
from perdure.api.keyring import DEFAULT_PROJECT
from perdure.api.metrics import open_port
from perdure.api.process import Refused, explain, run_process
from perdure.api.services import open_services
from perdure.config.settings import Settings
from perdure.secrets import first_start
from perdure.secrets.keys import EVERY_SCOPE, ApiKey, hint, new_key
from perdure.store.engine import is_sqlite
from perdure.store.keys import count_keys, insert_key
from perdure.store.tx import Tx

log = logging.getLogger(__name__)

Listening = Callable[[socket.socket], None]


class Server(uvicorn.Server):
    """uvicorn, which tells when it listens and ends open event streams before it waits for requests."""

    def __init__(self, config: uvicorn.Config, listening: Listening) -> None:
        super().__init__(config)
        self._listening = listening

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and sockets:
            self._listening(sockets[0])

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # Not uvicorn's own: that raises the signal again at the end, and a clean stop exits with 0.
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True
        app = self.config.app
        if isinstance(app, FastAPI) and hasattr(app.state, "services"):
            services = app.state.services
            stop = services.work.hurry if self.force_exit else services.begin_stopping
            asyncio.get_running_loop().call_soon_threadsafe(stop)


def run(settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT, in as many processes as there are workers; returns the exit status.

    0: ended cleanly. 1: the server could not start or failed. 2: refused to start with these settings.
    """
    workers = settings.work.workers
    if workers != 1 and is_sqlite(settings.database):
        return explain(
            Refused(
                f"{workers} workers need PostgreSQL: one process owns a SQLite database. "
                "Leave out --workers (work.workers), or name a --database postgresql://…"
            )
        )
    if workers <= 1:
        return run_process(settings, lambda: serve(settings))
    from perdure.api.fleet import run_fleet

    try:
        listener = _listen(settings.server.host, settings.server.port)
    except OSError as error:
        return explain(error)
    with listener:
        return run_fleet(
            workers,
            lambda ready: run_process(settings, lambda: serve(settings, listener, lambda _: ready())),
            lambda: say_listening(listener),
        )


def say_listening(listener: socket.socket) -> None:
    """Print the address, for whoever started the server."""
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    print(f"perdure listening on http://{shown}:{port}", flush=True)


async def serve(
    settings: Settings, shared: socket.socket | None = None, listening: Listening = say_listening
) -> int:
    """Own the database, then listen: a second server ends before it takes an address.

    Args:
        shared: a socket that listens already and that other processes accept from, too.
        listening: called when requests are answered.
    """
    bootstrap_key = None if settings.api_key is None else settings.api_key.get_secret_value()
    works = settings.work.workers > 0
    async with open_services(settings, bootstrap_key=bootstrap_key, runs_sessions=works) as services:
        secret = await services.store.write(_ensure_key, settings, bootstrap_key)
        if secret is not None:
            path = settings.data_dir / first_start.KEY_FILE
            print(f"perdure: made an API key and wrote it to {path}", file=sys.stderr)
        listener = shared or _listen(settings.server.host, settings.server.port)
        try:
            server = Server(
                uvicorn.Config(
                    create_app(services),
                    log_config=None,
                    access_log=False,
                    server_header=False,
                    proxy_headers=False,  # nothing here looks at the client's address
                    date_header=False,
                    lifespan="off",
                    ws="none",
                    timeout_graceful_shutdown=math.ceil(settings.server.shutdown_grace),
                    timeout_keep_alive=75,
                ),
                listening,
            )
            with open_port(services):
                await services.work.start()
                await server.serve(sockets=[listener])
            return 0 if server.started else 1
        finally:
            listener.close()


def _ensure_key(tx: Tx, settings: Settings, bootstrap_key: str | None) -> str | None:
    """The rules of a first start: without keys, loopback only, and a key is made; returns its text."""
    tx.serialize("first start")
    decision = first_start.decide_first_start(
        settings.server.host, count_keys(tx.conn), bootstrap_key is not None
    )
    match decision:
        case first_start.Refuse():
            raise Refused(decision.message)
        case first_start.CreateKey():
            key_id, secret, digest = new_key()
            scopes = frozenset(EVERY_SCOPE)
            key = ApiKey(key_id, DEFAULT_PROJECT, "first start", scopes, tx.now_us, None, hint(secret))
            first_start.write_key_file(settings.data_dir / first_start.KEY_FILE, secret)
            insert_key(tx.conn, key, digest)
            return secret
        case first_start.Serve():
            return None


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise OSError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
    listener.listen(2048)
    listener.setblocking(False)
    return listener
