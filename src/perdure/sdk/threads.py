"""Functions of the application, called without holding up the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import threading
from collections.abc import Callable
from typing import Any


async def call(bound: Callable[[], Any], function: Callable[..., Any]) -> Any:
    """Call `bound`, which calls `function`: here if that is asynchronous, else in a thread of its own.

    Each call has its own thread, so that one that hangs takes no place from others and keeps no process from
    ending. Cancelling does not stop a thread; its result is then dropped.
    """
    if is_asynchronous(function):
        return await bound()
    value = await in_thread(bound)
    # A callable that returns an awaitable without saying so.
    return await value if inspect.isawaitable(value) else value


def is_asynchronous(function: Callable[..., Any]) -> bool:
    """Whether calling it gives a coroutine, as far as it says so."""
    inner: Any = function
    while hasattr(inner, "func"):
        inner = inner.func
    return inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(
        getattr(inner, "__call__", None)  # noqa: B004  # an object with an asynchronous `__call__`
    )


async def in_thread(function: Callable[[], Any]) -> Any:
    """Call a function in a new daemon thread, with the context variables of the caller."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def settle(value: Any, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)

    def work() -> None:
        value: Any = None
        error: BaseException | None = None
        try:
            value = context.run(function)
        except StopIteration as stop:
            error = RuntimeError("the function raised StopIteration")
            error.__cause__ = stop
        except BaseException as raised:  # noqa: BLE001  # handed to whoever awaits
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop is closed, so nobody waits any more
            loop.call_soon_threadsafe(settle, value, error)

    threading.Thread(target=work, name="perdure-tool", daemon=True).start()
    return await future
