"""One request as it is counted: by its route's template, and until its last byte or its stream's first."""

from __future__ import annotations

import time

from starlette.types import Message, Scope

from perdure.config.metrics import HttpMetrics

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
# For what reached no route (unknown, or refused at the gate), and for an exchange without an answer.
NONE = "none"


class RequestMeter:
    """Begun when a request arrives; `sends` sees each message of the answer, `end` the end of it all."""

    __slots__ = ("_began", "_code", "_http", "_scope", "_streams")

    def __init__(self, http: HttpMetrics, scope: Scope) -> None:
        self._http = http
        self._scope = scope
        self._code = NONE
        self._streams = False
        self._began = time.perf_counter()
        http.in_flight.inc()

    def sends(self, message: Message) -> None:
        """Note the status, and what an event stream sends."""
        if self._streams:
            self._http.sent += len(message.get("body", b""))
        elif message["type"] == "http.response.start":
            self._code = str(message["status"])
            if any(
                name == b"content-type" and value.startswith(b"text/event-stream")
                for name, value in message["headers"]
            ):
                self._count()
                self._streams = True
                self._http.in_flight.dec()
                self._http.streams_open.inc()

    def end(self) -> None:
        """The answer is sent, or will never be."""
        if self._streams:
            self._http.streams_open.dec()
        else:
            self._count()
            self._http.in_flight.dec()

    def _count(self) -> None:
        method = self._scope["method"] if self._scope["method"] in METHODS else "other"
        route: str = getattr(self._scope.get("route"), "path", NONE)
        self._http.requests.labels(method, route, self._code).inc()
        self._http.duration.labels(method, route).observe(time.perf_counter() - self._began)
