"""The HTTP client under every model wire: one POST, and the answer as batches of JSON events."""

from __future__ import annotations

import asyncio
import contextlib
import io
import urllib.request
from collections.abc import AsyncIterator, Mapping
from typing import Any, Self
from urllib.parse import urlsplit

import aiohttp

from perdure import __version__
from perdure.config.settings import ProviderSettings
from perdure.models import faults
from perdure.models.jsontext import decode, encode
from perdure.models.sse import FrameSplitter, FrameTooLarge

DONE = b"[DONE]"
MAX_ERROR_BODY = 256 * 1024
ERROR_BODY_SECONDS = 10.0
MAX_BODY = 64 * 1024 * 1024
DRAIN_SECONDS = 1.0
MAX_HEADER = 64 * 1024
LARGE_BODY = 1024 * 1024

HEADERS = {
    "Accept": "text/event-stream",
    # Compressed streams are held back by intermediaries, and cost more than they save.
    "Accept-Encoding": "identity",
    "Content-Type": "application/json",
    "User-Agent": f"perdure/{__version__}",
}


class Transport:
    """A pool of kept-alive connections, made on first use and shared by all adapters of one event loop."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None
        self._proxies: dict[str, str | None] = {}
        self._draining: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def post(
        self, provider: ProviderSettings, url: str, headers: Mapping[str, str], body: Any
    ) -> AsyncIterator[Answer]:
        """Send `body` as JSON and give the streamed answer; leaving early closes the connection.

        `headers` come on top of the usual ones, and those of the provider's settings win over both.

        Raises:
            ModelError: no connection, no answer in time, or an answer that is no success. Reading the
                answer raises it too.
        """
        given = (HEADERS, headers, provider.headers)
        sent = {name.lower(): value for part in given for name, value in part.items()}
        response = await self._send(provider, url, sent, encode(body))
        try:
            if response.status >= 300:
                raise await _refusal(provider, response)
            answer = Answer(provider, response)
            yield answer
        except BaseException:
            response.close()
            raise
        self._retire(response)

    async def close(self) -> None:
        """Close all connections; the transport may be used again afterwards."""
        for task in self._draining:
            task.cancel()
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _send(
        self, provider: ProviderSettings, url: str, headers: Mapping[str, str], data: bytes
    ) -> aiohttp.ClientResponse:
        timeout = aiohttp.ClientTimeout(
            total=None,
            connect=provider.connect_timeout,
            sock_connect=provider.connect_timeout,
            sock_read=provider.timeout,
        )
        try:
            return await self._client().post(
                url,
                # A large body is written piece by piece, so that it does not hold up the event loop.
                data=data if len(data) < LARGE_BODY else io.BytesIO(data),
                headers=headers,
                timeout=timeout,
                proxy=self._proxy(url),
                # A redirect would repeat the key and the conversation to an address nobody configured.
                allow_redirects=False,
            )
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise faults.broken(provider, error) from error

    def _client(self) -> aiohttp.ClientSession:
        if self._session is None or self._session.closed:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, ttl_dns_cache=60),
                cookie_jar=aiohttp.DummyCookieJar(),
                max_line_size=MAX_HEADER,
                max_field_size=MAX_HEADER,
            )
        return self._session

    def _proxy(self, url: str) -> str | None:
        """The proxy that the usual environment variables name for a URL, looked up once."""
        if url not in self._proxies:
            parts = urlsplit(url)
            proxy = urllib.request.getproxies().get(parts.scheme)
            bypassed = urllib.request.proxy_bypass(parts.hostname or "")
            if proxy and "://" not in proxy:
                proxy = f"http://{proxy}"
            self._proxies[url] = proxy if proxy and not bypassed else None
        return self._proxies[url]

    def _retire(self, response: aiohttp.ClientResponse) -> None:
        """Give the connection back once the end of the body is read; nobody waits for that."""
        if response.content.at_eof():
            response.release()
            return
        task = asyncio.create_task(_drain(response))
        self._draining.add(task)
        task.add_done_callback(self._draining.discard)


class Answer:
    """A streamed answer: an async iterator of non-empty batches of JSON values, one batch per read.

    Set `patience` (seconds) when all that matters has arrived: silence then ends the answer.
    """

    __slots__ = ("_ended", "_kind", "_provider", "_response", "_splitter", "patience")

    def __init__(self, provider: ProviderSettings, response: aiohttp.ClientResponse) -> None:
        self._provider = provider
        self._response = response
        self._kind = response.content_type
        self._splitter = FrameSplitter()
        self._ended = False
        self.patience: float | None = None

    @property
    def headers(self) -> Mapping[str, str]:
        """The answer's headers; names in any case."""
        return self._response.headers

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[Any]:
        while not self._ended:
            chunk = await self._read()
            if self._kind in ("application/json", "text/html"):
                if not chunk.lstrip().startswith((b"data:", b"event:", b":")):
                    return [await self._whole(chunk)]
                self._kind = "text/event-stream"
            try:
                payloads = self._splitter.feed(chunk) if chunk else self._last()
            except FrameTooLarge as error:
                raise faults.garbled(
                    self._provider, "sent an event without an end", retryable=False
                ) from error
            if payloads and (batch := self._parse(payloads)):
                return batch
        raise StopAsyncIteration

    async def _read(self) -> bytes:
        content = self._response.content
        try:
            async with asyncio.timeout(self.patience):
                return await content.readany()
        except (aiohttp.ClientError, OSError) as error:
            # What arrived before the connection broke is still there, but readany() raises first, and
            # there is no public way to it.
            read_rest = getattr(content, "_read_nowait", None)
            arrived: bytes = b"" if read_rest is None else read_rest(-1)
            if arrived or self.patience is not None:
                return arrived
            raise faults.broken(self._provider, error) from error

    def _last(self) -> list[bytes]:
        self._ended = True
        rest = self._splitter.flush()
        # Half a frame is how a cut stream ends; the wire notices that its closing event is missing.
        return [payload for payload in rest if payload == DONE or _is_json(payload)]

    def _parse(self, payloads: list[bytes]) -> list[Any]:
        batch = []
        for payload in payloads:
            if payload == DONE:
                self._ended = True
                break
            if not payload:
                continue
            try:
                batch.append(decode(payload))
            except ValueError as error:
                raise faults.garbled(self._provider, "sent an event that is not JSON") from error
        return batch

    async def _whole(self, chunk: bytes) -> Any:
        """The one JSON value of an answer that was not streamed, which may be an error."""
        if self._kind == "text/html":
            raise faults.misaddressed(self._provider, "answered with a web page")
        self._ended = True
        body = bytearray(chunk)
        while chunk and len(body) <= MAX_BODY:
            chunk = await self._read()
            body += chunk
        try:
            return decode(bytes(body))
        except ValueError as error:
            raise faults.garbled(self._provider, "sent an answer that is not JSON") from error


def _is_json(payload: bytes) -> bool:
    try:
        decode(payload)
    except ValueError:
        return False
    return True


async def _refusal(provider: ProviderSettings, response: aiohttp.ClientResponse) -> Exception:
    if response.status < 400:
        return faults.misaddressed(provider, f"answered {response.status}, a redirect, which is not followed")
    body = bytearray()
    try:
        async with asyncio.timeout(ERROR_BODY_SECONDS):
            async for chunk in response.content.iter_any():
                body += chunk
                if len(body) > MAX_ERROR_BODY:
                    break
    except (aiohttp.ClientError, OSError):
        # The status says enough; what is here of the body may still explain it.
        pass
    return faults.refused(provider, response.status, response.headers, bytes(body))


async def _drain(response: aiohttp.ClientResponse) -> None:
    try:
        async with asyncio.timeout(DRAIN_SECONDS):
            while await response.content.readany():
                pass
    except (aiohttp.ClientError, OSError):
        pass
    finally:
        response.close()
