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
from fastapi import FastAPI

from perdure.api.app import create_app
from perdure.api.keyring import DEFAULT_PROJECT
from perdure.config.logging import configure_logging
from perdure.config.settings import Settings
from perdure.secrets import first_start
from perdure.secrets.keys import SCOPES, ApiKey, hint, new_key
from perdure.secrets.redaction import Redactor
from perdure.store.engine import StoreError, now_us, open_sync_connection
from perdure.store.keys import count_keys, insert_key
from perdure.store.migrate import SchemaTooNew

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
            asyncio.get_running_loop().call_soon_threadsafe(app.state.services.hub.close)


def run(settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit status.

    0: ended cleanly. 1: the server could not start or failed. 2: refused to start with these settings.
    """
    configure_logging(settings.log, Redactor(settings.secret_values()).redact)
    for noisy in ("alembic", "uvicorn"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    bootstrap_key = None if settings.api_key is None else settings.api_key.get_secret_value()
    try:
        _ensure_key(settings, bootstrap_key)
        listener = _listen(settings.server.host, settings.server.port)
    except _Refused as error:
        print(f"perdure: {error}", file=sys.stderr)
        return EXIT_REFUSED
    except (StoreError, SchemaTooNew, OSError) as error:
        print(f"perdure: {error}", file=sys.stderr)
        return 1
    config = uvicorn.Config(
        create_app(settings, bootstrap_key=bootstrap_key),
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        lifespan="on",
        timeout_graceful_shutdown=math.ceil(settings.server.shutdown_grace),
        timeout_keep_alive=75,
        h11_max_incomplete_event_size=65536,
    )
    server = Server(config)
    try:
        server.run(sockets=[listener])
    except KeyboardInterrupt:
        pass
    finally:
        listener.close()
    return 0 if server.started else 1


class _Refused(Exception):
    pass


def _ensure_key(settings: Settings, bootstrap_key: str | None) -> None:
    """The rules of a first start: without keys, loopback only, and a key is made and said."""
    with open_sync_connection(settings.database) as conn:
        decision = first_start.decide_first_start(
            settings.server.host, count_keys(conn), bootstrap_key is not None
        )
        match decision:
            case first_start.Refuse():
                raise _Refused(decision.message)
            case first_start.CreateKey():
                key_id, secret, digest = new_key()
                key = ApiKey(
                    key_id, DEFAULT_PROJECT, "first start", frozenset(SCOPES), now_us(), None, hint(secret)
                )
                path = settings.data_dir / first_start.KEY_FILE
                first_start.write_key_file(path, secret)
                insert_key(conn, key, digest)
                print(f"perdure: made an API key and wrote it to {path}", file=sys.stderr)
            case first_start.Serve():
                pass


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
