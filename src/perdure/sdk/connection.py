"""Which server the sessions live on, named by the application and never guessed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from perdure.sdk.errors import NoServer, SdkError
from perdure.sdk.requests import persistently

if TYPE_CHECKING:
    from openai import AsyncOpenAI

URL_VARIABLE = "PERDURE_URL"
KEY_VARIABLE = "PERDURE_API_KEY"
HOSTED_URL = "https://api.openai.com/v1"
HOSTED_KEY_VARIABLE = "OPENAI_API_KEY"
CAPABILITIES = "/perdure/v1/capabilities"


def connect(
    base_url: str | None, api_key: str | None, *, hosted: bool, environ: Mapping[str, str] = os.environ
) -> AsyncOpenAI:
    """A client of the official kind for a named server.

    Raises NoServer when none is named, or its key is missing. Only `hosted` ever reads `OPENAI_API_KEY`.
    """
    if hosted:
        if base_url is not None:
            raise NoServer("hosted=True and base_url= name two servers; give one.")
        key = api_key or environ.get(HOSTED_KEY_VARIABLE)
        if not key:
            raise NoServer(f"hosted=True needs api_key=, or {HOSTED_KEY_VARIABLE}.")
        return make_client(HOSTED_URL, key, is_official=True)
    url = base_url or environ.get(URL_VARIABLE)
    if not url:
        raise NoServer(
            "No server is named: pass base_url= and api_key=, embedded=True to run one in this process, or "
            f"hosted=True for OpenAI's; or set {URL_VARIABLE}."
        )
    key = api_key or environ.get(KEY_VARIABLE)
    if not key:
        raise NoServer(f"The server {url} needs a key: pass api_key=, or set {KEY_VARIABLE}.")
    return make_client(versioned(url), key)


def versioned(url: str) -> str:
    """The address of the API: `/v1` unless the URL has a path of its own. Raises NoServer."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise NoServer(f"{url!r} is no address of a server; it begins with http:// or https://.")
    return url.rstrip("/") + ("" if parts.path.strip("/") else "/v1")


def make_client(base_url: str, api_key: str, *, is_official: bool = False) -> AsyncOpenAI:
    """A client that repeats nothing by itself: repeating is `requests.py`'s, with keys."""
    try:
        from openai import AsyncOpenAI
    except ImportError as error:
        raise SdkError('The SDK works through the official client: pip install "openai>=3.57"') from error
    client = AsyncOpenAI(base_url=base_url, api_key=api_key, max_retries=0)
    if not is_official:
        # The official client sends these from the environment to whatever server it is given.
        client.organization = client.project = None
    return client


async def keeps_pins(client: AsyncOpenAI, patience: float) -> bool:
    """Whether the server keeps pinned facts through compaction, which it says among its capabilities.

    Raises openai.APIError when it cannot be reached for longer than `patience`, in seconds.
    """
    from openai import APIStatusError

    url = str(client.base_url).rstrip("/")
    if url == HOSTED_URL:
        return False
    try:
        told = await persistently(
            lambda: client.get(url.removesuffix("/v1") + CAPABILITIES, cast_to=object), patience
        )
    except APIStatusError as error:
        if error.status_code >= 500:
            raise
        return False
    features = told.get("features") if isinstance(told, Mapping) else None
    feature = features.get("pinned_facts") if isinstance(features, Mapping) else None
    return isinstance(feature, Mapping) and feature.get("active") is True
