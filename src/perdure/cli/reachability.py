"""Whether the configured providers answer, and take the key."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import aiohttp

from perdure.cli.checkup import Finding
from perdure.config.providers import ANTHROPIC_VERSION
from perdure.config.settings import ProviderSettings

LONGEST_WAIT = 15.0
"""Seconds for one provider's answer."""


def check_reachability(providers: Sequence[ProviderSettings]) -> list[Finding]:
    """Ask every provider that has an address for its models, all at once."""
    return asyncio.run(_ask_all([provider for provider in providers if provider.base_url is not None]))


async def _ask_all(providers: Sequence[ProviderSettings]) -> list[Finding]:
    async with aiohttp.ClientSession() as client:
        return list(await asyncio.gather(*(_ask(client, provider) for provider in providers)))


async def _ask(client: aiohttp.ClientSession, provider: ProviderSettings) -> Finding:
    subject = f"provider {provider.name}"
    wait = min(LONGEST_WAIT, provider.timeout)
    try:
        async with asyncio.timeout(wait):
            # A redirect could carry the key to somebody else.
            async with client.get(
                f"{provider.base_url}/models", headers=_headers(provider), allow_redirects=False
            ) as response:
                status = response.status
    except TimeoutError:
        return Finding("wrong", subject, f"{provider.base_url} did not answer within {wait:g} s")
    except (aiohttp.ClientError, OSError) as error:
        return Finding("wrong", subject, f"{provider.base_url} cannot be reached: {error}")
    if status in (401, 403):
        return Finding("wrong", subject, f"{provider.base_url} refuses the key (status {status})")
    if status >= 500:
        return Finding("wrong", subject, f"{provider.base_url} answers with status {status}")
    return Finding("ok", subject, f"{provider.base_url} answers (status {status})")


def _headers(provider: ProviderSettings) -> dict[str, str]:
    headers = dict(provider.headers)
    if provider.api_key is not None:
        key = provider.api_key.get_secret_value()
        match provider.protocol:
            case "anthropic":
                headers |= {"x-api-key": key, "anthropic-version": ANTHROPIC_VERSION}
            case "gemini":
                headers["x-goog-api-key"] = key
            case _:
                headers["Authorization"] = f"Bearer {key}"
    return headers
