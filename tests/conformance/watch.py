"""Waiting for what a server does: event streams followed on a thread, and reads repeated until a deadline."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, TypeVar

from openai import OpenAI

DEADLINE = 30.0
PAUSE = 0.02

T = TypeVar("T")
Wanted = str | Callable[[Any], bool]


def until(
    read: Callable[[], T],
    accept: Callable[[T], bool],
    timeout: float = DEADLINE,
    explain: Callable[[], str] = str,
) -> T:
    """Repeats `read` until `accept` likes the value, and returns that value.

    `explain` tells more of a failure.
    """
    deadline = time.monotonic() + timeout
    while True:
        value = read()
        if accept(value):
            return value
        assert time.monotonic() < deadline, (
            f"{explain()}\nnot reached within {timeout} s; last seen: {value!r}"
        )
        time.sleep(PAUSE)


def until_status(client: OpenAI, session_id: str, *statuses: str) -> Any:
    """The session, once it has one of the statuses."""
    return until(lambda: client.beta.agents.sessions.retrieve(session_id), lambda s: s.status in statuses)


def until_turn(client: OpenAI, session_id: str, turn_id: str, *statuses: str) -> Any:
    """The turn, once it has one of the statuses."""
    return until(
        lambda: client.beta.agents.sessions.turns.retrieve(turn_id, session_id=session_id),
        lambda turn: turn.status in statuses,
    )


class Watcher:
    """Follows one session's event stream; subscribed when the constructor returns."""

    def __init__(self, client: OpenAI, session_id: str, **options: Any) -> None:
        self._stream = client.beta.agents.sessions.events.stream(session_id, **options)
        self._events: list[Any] = []
        self._ended = False
        self._error: Exception | None = None
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    @property
    def events(self) -> list[Any]:
        with self._changed:
            return list(self._events)

    @property
    def types(self) -> list[str]:
        return [event.type for event in self.events]

    def wait(self, wanted: Wanted, *, after: int = 0, timeout: float = DEADLINE) -> Any:
        """The first wanted event at or behind position `after`, seen or still to come."""
        accept = (lambda event: event.type == wanted) if isinstance(wanted, str) else wanted

        def found() -> bool:
            return self._ended or any(accept(event) for event in self._events[after:])

        with self._changed:
            in_time = self._changed.wait_for(found, timeout)
            for event in self._events[after:]:
                if accept(event):
                    return event
            seen = [event.type for event in self._events]
        reason = "the stream ended" if in_time else f"nothing within {timeout} s"
        raise AssertionError(f"no {wanted!r}: {reason}; error {self._error!r}; seen: {seen}")

    def wait_end(self, timeout: float = DEADLINE) -> list[Any]:
        """All events, once the server has ended the stream in an orderly way."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._ended, timeout), (
                f"still open; seen: {[e.type for e in self._events]}"
            )
            assert self._error is None, f"the stream broke: {self._error!r}"
            return list(self._events)

    def close(self) -> None:
        self._closed = True
        network = self._stream.response.extensions["network_stream"]
        with contextlib.suppress(OSError):
            # Closing alone would leave the thread in recv.
            network.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
        self._thread.join(DEADLINE)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _follow(self) -> None:
        try:
            for event in self._stream:
                with self._changed:
                    self._events.append(event)
                    self._changed.notify_all()
        except Exception as error:  # noqa: BLE001  (reported by the thread that waits)
            self._error = None if self._closed else error
        with self._changed:
            self._ended = True
            self._changed.notify_all()
