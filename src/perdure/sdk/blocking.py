"""The same sessions for programs without an event loop: one runs in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, overload

from perdure.sdk.blocking_tree import (
    BlockingAgent,
    BlockingTreeNode,
    blocking_subagents,
    blocking_tree,
)
from perdure.sdk.errors import SdkError
from perdure.sdk.sessions import Sessions
from perdure.sdk.subagents import Order, Subagent

if TYPE_CHECKING:
    from openai.types.beta.agent_session import AgentSession
    from openai.types.beta.agent_session_item import AgentSessionItem

    from perdure.sdk.actions import Action, Decision
    from perdure.sdk.agent import Agent
    from perdure.sdk.events import Event
    from perdure.sdk.ledger import LedgerRecord
    from perdure.sdk.ledger_edit import Change
    from perdure.sdk.leg import OnAction
    from perdure.sdk.messages import Input
    from perdure.sdk.reconcile import Drift
    from perdure.sdk.results import RunResult
    from perdure.sdk.session import Session

T = TypeVar("T")
OutputT_co = TypeVar("OutputT_co", covariant=True)


class _Loop:
    """An event loop in a thread. Safe for threads."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="perdure", daemon=True)
        self._thread.start()

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end; an interrupt of the caller cancels it."""
        if threading.current_thread() is self._thread:
            work.close()
            raise SdkError("An asynchronous function cannot wait for a blocking session; use Sessions there.")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class BlockingSessions:
    """`Sessions` as a plain context manager, with the same arguments; its methods wait.

    with BlockingSessions(base_url=…, api_key=…) as sessions:
        print(sessions.start(agent).run("Where is A-1042?").final_output)
    """

    def __init__(self, **options: Any) -> None:
        self.sessions = Sessions(**options)
        self._loop: _Loop | None = None

    def __enter__(self) -> Self:
        loop = _Loop()
        try:
            loop.wait_for(self.sessions.__aenter__())
        except BaseException:
            loop.stop()
            raise
        self._loop = loop
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._loop is not None:
            loop, self._loop = self._loop, None
            try:
                loop.wait_for(self.sessions.__aexit__(kind, error, trace))
            finally:
                loop.stop()

    def start(self, agent: Agent[T], **options: Any) -> BlockingSession[T]:
        """See `Sessions.start`."""
        return BlockingSession(self, self.sessions.start(agent, **options))

    def attach(self, session_id: str, agent: Agent[T], *, ledger_type: Any = None) -> BlockingSession[T]:
        """See `Sessions.attach`."""
        return BlockingSession(self, self.sessions.attach(session_id, agent, ledger_type=ledger_type))

    @overload
    def resume(self, session_id: str, agent: Agent[T], **options: Any) -> RunResult[T]: ...
    @overload
    def resume(self, session_id: str, agent: None = None, **options: Any) -> RunResult[Any]: ...
    def resume(self, session_id: str, agent: Agent[Any] | None = None, **options: Any) -> RunResult[Any]:
        """See `Sessions.resume`."""
        return self.wait_for(self._resume(session_id, agent, options))

    async def _resume(
        self, session_id: str, agent: Agent[Any] | None, options: dict[str, Any]
    ) -> RunResult[Any]:
        if agent is None:
            return await self.sessions.resume(session_id, **options)
        return await self.sessions.resume(session_id, agent, **options)

    def save(self, agent: Agent[T]) -> Agent[T]:
        """See `Sessions.save`."""
        return self.wait_for(self.sessions.save(agent))

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine of the sessions underneath. Raises SdkError outside of the context."""
        if self._loop is None:
            work.close()
            raise SdkError("Use `with BlockingSessions(…) as sessions`.")
        return self._loop.wait_for(work)


class BlockingSession(Generic[OutputT_co]):
    """`Session`, with methods that wait. `session` is the one underneath."""

    def __init__(self, sessions: BlockingSessions, session: Session[OutputT_co]) -> None:
        self.session = session
        self._sessions = sessions

    @property
    def id(self) -> str:
        """See `Session.id`."""
        return self.session.id

    def run(self, input: Input, *, on_action: OnAction | None = None) -> RunResult[OutputT_co]:
        """See `Session.run`."""
        return self._sessions.wait_for(self.session.run(input, on_action=on_action))

    @contextmanager
    def stream(
        self, input: Input, *, on_action: OnAction | None = None
    ) -> Iterator[BlockingStream[OutputT_co]]:
        """See `Session.stream`."""
        stream = self.session.stream(input, on_action=on_action)
        self._sessions.wait_for(stream.__aenter__())
        try:
            yield BlockingStream(self._sessions, stream)
        finally:
            self._sessions.wait_for(stream.__aexit__(None, None, None))

    def follow(self, *, on_action: OnAction | None = None) -> RunResult[OutputT_co]:
        """See `Session.follow`."""
        return self._sessions.wait_for(self.session.follow(on_action=on_action))

    def send(self, input: Input) -> None:
        """See `Session.send`."""
        self._sessions.wait_for(self.session.send(input))

    def cancel(self) -> None:
        """See `Session.cancel`."""
        self._sessions.wait_for(self.session.cancel())

    def answer(self, action: Action, decision: Decision) -> None:
        """See `Session.answer`."""
        self._sessions.wait_for(self.session.answer(action, decision))

    def retrieve(self) -> AgentSession:
        """See `Session.retrieve`."""
        return self._sessions.wait_for(self.session.retrieve())

    def items(self) -> list[AgentSessionItem]:
        """See `Session.items`."""
        return self._sessions.wait_for(self.session.items())

    def subagents(self, *, order: Order = "asc") -> Iterator[BlockingAgent[Subagent]]:
        """See `Session.subagents`."""
        return blocking_subagents(self._sessions.wait_for, lambda: self.session.subagents(order=order))

    def tree(self) -> Iterator[BlockingTreeNode]:
        """See `Session.tree`."""
        return blocking_tree(self._sessions.wait_for, self.session.tree)

    def delete(self) -> None:
        """See `Session.delete`."""
        self._sessions.wait_for(self.session.delete())

    def ledger(self) -> LedgerRecord | None:
        """See `Session.ledger`."""
        return self._sessions.wait_for(self.session.ledger())

    def update_ledger(
        self, change: Change | None = None, /, *, expected: int | None = None, **fields: Any
    ) -> LedgerRecord:
        """See `Session.update_ledger`."""
        return self._sessions.wait_for(self.session.update_ledger(change, expected=expected, **fields))

    def reconcile(self) -> list[Drift]:
        """See `Session.reconcile`."""
        return self._sessions.wait_for(self.session.reconcile())


class BlockingStream(Generic[OutputT_co]):
    """`RunStream` as a plain iterator."""

    def __init__(self, sessions: BlockingSessions, stream: Any) -> None:
        self._sessions = sessions
        self._stream = stream

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        event: Event | None = self._sessions.wait_for(self._next())
        if event is None:
            raise StopIteration
        return event

    def result(self) -> RunResult[OutputT_co]:
        """See `RunStream.result`."""
        result: RunResult[OutputT_co] = self._sessions.wait_for(self._stream.result())
        return result

    async def _next(self) -> Event | None:
        # StopAsyncIteration cannot be handed through a future.
        return await anext(self._stream, None)
