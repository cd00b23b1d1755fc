"""`perdure serve`: one process, one socket, a clean end."""

from __future__ import annotations

import asyncio
import logging
import math
import signal
import socket
import sys
from types import FrameType

import uvicorn
import uvloop
from fastapi import FastAPI

from perdure.api.app import create_app
from perdure.api.keyring import DEFAULT_PROJECT
from perdure.api.services import open_services
from perdure.config.logging import configure_logging
from perdure.config.settings import Settings
from perdure.secrets import first_start
from perdure.secrets.keys import SCOPES, ApiKey, hint, new_key
from perdure.secrets.redaction import Redactor
from perdure.store.engine import StoreError
from perdure.store.keys import count_keys, insert_key
from perdure.store.migrate import SchemaTooNew
from perdure.store.tx import Tx

log = logging.getLogger(__name__)

EXIT_REFUSED = 2


class Server(uvicorn.Server):
    """uvicorn, which tells when it listens and ends open event streams before it waits for requests."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and sockets:
            host, port = sockets[0].getsockname()[:2]
            shown = f"[{host}]" if ":" in host else host
            print(f"perdure listening on http://{shown}:{port}", flush=True)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # Not uvicorn's own: that raises the signal again at the end, and a clean stop exits with 0.
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True
        app = self.config.app
        if isinstance(app, FastAPI) and hasattr(app.state, "services"):
            asyncio.get_running_loop().call_soon_threadsafe(app.state.services.begin_stopping)


def run(settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit status.

    0: ended cleanly. 1: the server could not start or failed. 2: refused to start with these settings.
    """
    configure_logging(settings.log, Redactor(settings.secret_values()).redact)
    for noisy in ("alembic", "uvicorn"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_serve(settings))
    except _Refused as error:
        print(f"perdure: {error}", file=sys.stderr)
        return EXIT_REFUSED
    except (StoreError, SchemaTooNew, OSError) as error:
        print(f"perdure: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0


async def _serve(settings: Settings) -> int:
    """Own the database, then listen: a second server ends before it takes an address."""
    bootstrap_key = None if settings.api_key is None else settings.api_key.get_secret_value()
    async with open_services(settings, bootstrap_key=bootstrap_key) as services:
        secret = await services.store.write(_ensure_key, settings, bootstrap_key)
        if secret is not None:
            path = settings.data_dir / first_start.KEY_FILE
            print(f"perdure: made an API key and wrote it to {path}", file=sys.stderr)
        listener = _listen(settings.server.host, settings.server.port)
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
                    timeout_graceful_shutdown=math.ceil(settings.server.shutdown_grace),
                    timeout_keep_alive=75,
                )
            )
            await services.work.start()
            await server.serve(sockets=[listener])
            return 0 if server.started else 1
        finally:
            listener.close()


class _Refused(Exception):
    pass


def _ensure_key(tx: Tx, settings: Settings, bootstrap_key: str | None) -> str | None:
    """The rules of a first start: without keys, loopback only, and a key is made; returns its text."""
    tx.serialize("first start")
    decision = first_start.decide_first_start(
        settings.server.host, count_keys(tx.conn), bootstrap_key is not None
    )
    match decision:
        case first_start.Refuse():
            raise _Refused(decision.message)
        case first_start.CreateKey():
            key_id, secret, digest = new_key()
            scopes = frozenset(SCOPES)
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
