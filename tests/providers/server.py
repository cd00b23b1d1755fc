"""The HTTP server under every fake provider: it checks, records, and plays planned answers."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from aiohttp import web
from tests.providers.answers import Answer, Pacing, Plan, Raw, Refusal, Silence, Text
from tests.providers.rules import Violation

from perdure.config.settings import ProviderSettings

KEY = "test-key"


@dataclass(frozen=True)
class Recorded:
    """One request as it arrived.

    `connection` is the client's port: equal numbers mean one kept-alive connection. `left` is set once
    the client went away before the answer was complete, `served` once the answer was complete.
    """

    body: dict[str, Any]
    headers: Mapping[str, str]
    connection: int
    left: asyncio.Event = field(default_factory=asyncio.Event, compare=False)
    served: asyncio.Event = field(default_factory=asyncio.Event, compare=False)


Planner = Callable[[Recorded], Plan | Awaitable[Plan]]


class FakeProvider:
    """A provider on an ephemeral port of this machine, as an async context manager.

    It plays `plans` in order, or what the callable `planner` returns for a request; without either it
    repeats what the user said. A request that breaks a rule is answered with the provider's own error,
    uses up no plan, and is told in `violations`; one that is too large is counted in `overflows`.

    Args:
        api_key: expected key; None expects none.
        strict: False checks nothing.
        max_body: bytes of a request, beyond which it is refused with 413.
        context_window: tokens of a request (four bytes each), beyond which the context overflows.
    """

    PROTOCOL: str
    PATH: str

    def __init__(
        self,
        *plans: Plan,
        planner: Planner | None = None,
        api_key: str | None = KEY,
        strict: bool = True,
        max_body: int = 64 * 1024 * 1024,
        context_window: int = 1_000_000,
    ) -> None:
        self.requests: list[Recorded] = []
        self.violations: list[str] = []
        self.overflows = 0
        self.planner = planner
        self.strict = strict
        self._plans = deque(plans)
        self._api_key = api_key
        self._max_body = max_body
        self._context_window = context_window
        self._arrival = asyncio.Condition()
        self._runner: web.AppRunner | None = None
        self._port = 0

    # ---- what protocols supply -----------------------------------------------------------------

    def examine(self, body: dict[str, Any]) -> None:
        """Raise `Violation` if the provider would refuse the request."""
        raise NotImplementedError

    def frames(self, body: dict[str, Any], planned: Answer) -> Iterator[bytes]:
        """The frames of an answer, each with its closing empty line."""
        raise NotImplementedError

    def last_user_text(self, body: dict[str, Any]) -> str:
        raise NotImplementedError

    def route(self, app: web.Application) -> None:
        """Add the endpoints that the protocol has besides."""

    def is_authorized(self, headers: Mapping[str, str], key: str) -> bool:
        return headers.get("Authorization") == f"Bearer {key}"

    def addressed(self, request: web.Request, body: dict[str, Any]) -> dict[str, Any]:
        """The body, with what the protocol says in the address instead."""
        return body

    def error_body(self, refusal: Refusal) -> Any:
        """The JSON of an HTTP error."""
        error = {
            "message": refusal.message,
            "type": refusal.type or "invalid_request_error",
            "param": refusal.param,
            "code": refusal.code,
        }
        return {"error": error}

    # ---- for tests -----------------------------------------------------------------------------

    def queue(self, *plans: Plan) -> None:
        self._plans.extend(plans)

    async def request(self, number: int) -> Recorded:
        """The request with this number, counted from 0, once it has arrived."""
        async with self._arrival:
            await self._arrival.wait_for(lambda: len(self.requests) > number)
        return self.requests[number]

    @property
    def unplayed(self) -> int:
        return len(self._plans)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._port}/v1"

    def settings(self, name: str = "fake", **changes: Any) -> ProviderSettings:
        """Settings of a provider at this server."""
        values = {
            "name": name,
            "protocol": self.PROTOCOL,
            "base_url": self.base_url,
            "api_key": self._api_key,
        }
        return ProviderSettings.model_validate({**values, **changes})

    async def start(self, port: int = 0) -> None:
        app = web.Application(client_max_size=1 << 30)
        app.router.add_post(f"/v1{self.PATH}", self._handle)
        self.route(app)
        self._runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1, keepalive_timeout=600
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", port)
        await site.start()
        self._port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    # ---- one request ---------------------------------------------------------------------------

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        recorded = await self.receive(request, self.requests, self.examine)
        if isinstance(recorded, web.Response):
            return recorded
        try:
            return await self._play(request, recorded, await self._next_plan(recorded))
        except (asyncio.CancelledError, ConnectionError):
            recorded.left.set()
            raise

    async def receive(
        self, request: web.Request, kept: list[Recorded], examine: Callable[[dict[str, Any]], None]
    ) -> Recorded | web.Response:
        """A request that is sound, kept among those of its endpoint; or how it is refused."""
        data = await request.read()
        if self._api_key is not None and not self.is_authorized(request.headers, self._api_key):
            return self._refuse(Refusal(401, "invalid_api_key", "Incorrect API key provided: wrong-***."))
        if len(data) > self._max_body:
            self.overflows += 1
            return self._refuse(Refusal(413, None, "Request body is too large."))
        try:
            body = self.addressed(request, json.loads(data))
        except ValueError:
            return self._reject(Violation("We could not parse the JSON body of your request."))
        peer = request.transport.get_extra_info("peername") if request.transport else (None, 0)
        recorded = Recorded(body, request.headers.copy(), peer[1])
        async with self._arrival:
            kept.append(recorded)
            self._arrival.notify_all()
        if len(data) // 4 > self._context_window:
            self.overflows += 1
            message = (
                f"Your input exceeds the context window of this model: it has {len(data) // 4} tokens,"
                f" the maximum context length is {self._context_window} tokens."
            )
            return self._refuse(Refusal(400, "context_length_exceeded", message, param="input"))
        if self.strict:
            try:
                examine(body)
            except Violation as violation:
                return self._reject(violation)
        return recorded

    def _reject(self, violation: Violation) -> web.Response:
        self.violations.append(f"{violation.param}: {violation.message}")
        return self._refuse(
            Refusal(400, violation.code, violation.message, "invalid_request_error", violation.param)
        )

    def _refuse(self, refusal: Refusal) -> web.Response:
        body = refusal.body
        if body is None:
            body = json.dumps(self.error_body(refusal)).encode()
        headers = {"Content-Type": refusal.content_type, **refusal.headers}
        return web.Response(status=refusal.status, body=body, headers=headers)

    async def _next_plan(self, recorded: Recorded) -> Plan:
        if self._plans:
            return self._plans.popleft()
        if self.planner is None:
            return Answer((Text(f"You said: {self.last_user_text(recorded.body)[:200]}"),))
        plan = self.planner(recorded)
        return await plan if inspect.isawaitable(plan) else plan

    async def _play(self, request: web.Request, recorded: Recorded, plan: Plan) -> web.StreamResponse:
        match plan:
            case Refusal():
                return self._refuse(plan)
            case Silence():
                await (plan.release or asyncio.Event()).wait()
                _abort(request)
                return web.Response()
            case Raw():
                frames, kind, pacing = _raw_frames(plan), plan.content_type, plan.pacing
            case Answer():
                frames, kind, pacing = self.frames(recorded.body, plan), "text/event-stream", plan.pacing
        response = web.StreamResponse(headers={"Content-Type": kind, "Cache-Control": "no-cache"})
        await response.prepare(request)
        async for data in _paced(frames, pacing):
            await response.write(data)
        if pacing.cut_after is not None and pacing.reset:
            _abort(request)
        else:
            await response.write_eof()
        recorded.served.set()
        return response


def _abort(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()


def _raw_frames(plan: Raw) -> Iterator[bytes]:
    for frame in plan.frames:
        yield frame if isinstance(frame, bytes) else b"data: " + json.dumps(frame).encode() + b"\n\n"


async def _paced(frames: Iterator[bytes], pacing: Pacing) -> AsyncIterator[bytes]:
    pending = pacing.preamble
    for number, frame in enumerate(frames):
        if number == pacing.cut_after:
            break
        if number == pacing.hang_after:
            if pending:
                yield pending
                pending = b""
            await (pacing.release or asyncio.Event()).wait()
        if pacing.delay:
            await asyncio.sleep(pacing.delay)
        pending += frame if pacing.newline == b"\n" else frame.replace(b"\n", pacing.newline)
        size = pacing.write_size or len(pending)
        while len(pending) >= size > 0:
            yield pending[:size]
            pending = pending[size:]
            # Gives the reader a turn, so that it sees these bytes alone.
            if pacing.write_size:
                await asyncio.sleep(0)
    if pending:
        yield pending


def text_of(content: Any) -> str:
    """The text of a message's content, given as a string or as parts."""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
