"""A server inside this process: the same application that `perdure serve` runs, without a socket."""

from __future__ import annotations

import os
import secrets
import tomllib
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from perdure.api.app import create_app
from perdure.api.services import open_services
from perdure.config.settings import load_settings
from perdure.sdk.asgi import AsgiTransport

if TYPE_CHECKING:
    from openai import AsyncOpenAI

ADDRESS = "http://perdure.embedded/v1"
_PLACES = ("HOME", "XDG_DATA_HOME")
"""Without providers in a settings file, these are all the variables that count."""


@asynccontextmanager
async def embedded_server(
    data_dir: Path | str | None, config: Path | str | None
) -> AsyncIterator[AsyncOpenAI]:
    """A running engine over a data directory of its own, and a client of it.

    Without a settings file that names providers, the built-in scripted model is the only one: keys that
    happen to be in the environment are not used.

    Raises:
        ConfigError: the settings are wrong. StoreError: the directory belongs to another server.
    """
    from httpx2 import AsyncClient
    from openai import AsyncOpenAI

    environ: Mapping[str, str] = os.environ
    if config is None or not _names_providers(Path(config)):
        environ = {name: value for name, value in os.environ.items() if name in _PLACES}
    settings = load_settings(
        None if config is None else Path(config),
        environ,
        {"data_dir": None if data_dir is None else str(data_dir)},
    )
    key = secrets.token_urlsafe(32)
    async with open_services(settings, bootstrap_key=key) as services:
        transport = AsgiTransport(create_app(services))
        async with AsyncClient(transport=transport) as http:
            client = AsyncOpenAI(base_url=ADDRESS, api_key=key, max_retries=0, http_client=http)
            client.organization = client.project = None
            await services.work.start()
            try:
                yield client
            finally:
                services.begin_stopping()


def _names_providers(config: Path) -> bool:
    try:
        return bool(tomllib.loads(config.read_text("utf-8")).get("provider"))
    except (OSError, ValueError):
        return True  # what is wrong with the file is told when the settings are loaded
