"""One session's part of a run: read its events, answer what it owes, until it has come to rest."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from perdure.sdk.actions import Action, Decision, FunctionCall, answer_event, typed_action
from perdure.sdk.answering import Answers
from perdure.sdk.errors import ActionRequired, NothingToResume, SessionFailed
from perdure.sdk.events import Event, Recovered
from perdure.sdk.picture import Picture
from perdure.sdk.reading import Reader
from perdure.sdk.requests import new_key, persistently
from perdure.sdk.threads import call

if TYPE_CHECKING:
    from openai.types.beta.agent_session import AgentSession
    from openai.types.beta.agents.sessions.turn import Turn

    from perdure.sdk.session import Session

OnAction: TypeAlias = Callable[[Action], Decision | Awaitable[Decision | None] | None]
"""Decides about an action that is no function call here; None leaves it to somebody else and waits."""


class Leg:
    """Follows one session.

    Args:
        session: which.
        picture: what is known of its turn.
        reader: reads it.
        answers_of: makes what answers its calls, from the journal.
        on_action: decides about actions that are no calls of the agent's functions.
        fail: takes the error that ends the run.
    """

    def __init__(
        self,
        session: Session[Any],
        picture: Picture,
        reader: Reader,
        answers_of: Callable[..., Answers],
        *,
        on_action: OnAction | None,
        fail: Callable[[BaseException], None],
    ) -> None:
        self.session = session
        self.picture = picture
        self._reader = reader
        self._answers_of = answers_of
        self._answers: Answers | None = None
        self._on_action = on_action
        self._fail = fail
        self._asked: dict[str, asyncio.Task[None]] = {}
        self._left_open: list[Action] = []
        self._drained = asyncio.Event()
        self._coming: asyncio.Future[Any] | None = None

    async def events(self, first: Callable[[], Awaitable[Any]], *, catches_up: bool) -> AsyncGenerator[Event]:
        """The events of the session until it rests behind the end of its turn.

        Raises:
            SessionFailed, NothingToResume, ConnectionLost
        """
        source = self._reader.events(first, recover_first=catches_up)
        async with aclosing(source) as reading, self._reading_ends():
            while True:
                event = await self._next(reading)
                if event is None:
                    # The last background call is answered; whether that began a turn, only a look can tell.
                    event = await self._look_again()
                is_news = True
                if isinstance(event, Recovered):
                    await self._recovered(event.session, is_start=catches_up)
                else:
                    is_news = self.picture.accept(event)
                    await self._act_on(event)
                is_over = self.picture.is_idle and not self._has_background
                if is_over and self._answers is not None:
                    await self._answers.finish()
                if is_news:
                    yield event
                if self.picture.has_failed:
                    raise SessionFailed(self.session.id, self.picture.failure)
                if is_over:
                    return

    async def close(self) -> None:
        """Stop answering."""
        for task in self._asked.values():
            task.cancel()
        if self._answers is not None:
            await self._answers.close()

    @asynccontextmanager
    async def _reading_ends(self) -> AsyncIterator[None]:
        try:
            yield
        finally:
            # A generator cannot be closed while somebody waits for its next value.
            if self._coming is not None:
                self._coming.cancel()
                await asyncio.gather(self._coming, return_exceptions=True)

    @property
    def _has_background(self) -> bool:
        return self._answers is not None and self._answers.has_background

    async def _next(self, reading: AsyncIterator[Any]) -> Any:
        """The next event; None when the session is idle and the last background call is answered."""
        if self._coming is None:
            if not self.picture.is_idle:
                return await anext(reading)
            self._coming = asyncio.ensure_future(anext(reading))
        drained = asyncio.ensure_future(self._drained.wait())
        try:
            await asyncio.wait({self._coming, drained}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            drained.cancel()
        if not self._coming.done():
            self._drained.clear()
            return None
        coming, self._coming = self._coming, None
        return coming.result()

    async def _look_again(self) -> Recovered:
        session_id = self.session.id
        return await persistently(lambda: self._reader.catch_up(session_id), self.session.sessions.patience)

    async def _act_on(self, event: Any) -> None:
        match event.type:
            case "agent.session.created":
                await self.session.created(event.session)
            case "agent.session.requires_action":
                await self._serve(event.session)
            case "agent.session.turn.item.added" if event.item.type == "function_call":
                tool = self.session.agent.served.get(event.item.name)
                if tool is not None and tool.background and event.item.status == "in_progress":
                    # A background call does not stop the session, so no event lists what is owed.
                    await self._serve(await self.session.retrieve())
            case "agent.session.in_progress":
                self._left_open = []
            case (
                "agent.session.turn.completed" | "agent.session.turn.failed" | "agent.session.turn.cancelled"
            ):
                if event.turn.subagent_id is None:
                    self._turn_ended(event.turn_id)
            case _:
                pass

    def _turn_ended(self, turn_id: str) -> None:
        self._left_open = []
        if self._answers is not None:
            self._answers.turn_ended(turn_id)

    async def _recovered(self, session: AgentSession, *, is_start: bool) -> None:
        await self.session.created(session)
        turn = self.picture.turn
        if turn is None and is_start and session.status == "idle":
            raise NothingToResume(f"Session {session.id} has no turn yet; run() begins one.", session.id)
        if session.status == "failed":
            raise SessionFailed(session.id, session.error)
        if self.picture.has_ended and turn is not None:
            self._turn_ended(turn.id)
        await self._serve(session)

    async def _serve(self, session: AgentSession) -> None:
        """Begin to answer everything that is owed, as far as it can be answered here."""
        if self._answers is None:
            self._answers = self._answers_of(await self.session.sessions.journal(), self._settled)
        self._left_open = []
        for required in session.required_actions:
            action = typed_action(required)
            if isinstance(action, FunctionCall):
                is_foreign = not await self._is_main_turn(action.turn_id)
                if self._answers.answer(action, from_subagent=is_foreign):
                    continue
            if self._on_action is None:
                self._left_open.append(action)
            elif (key := _key(action)) not in self._asked:
                self._asked[key] = asyncio.create_task(self._ask(action, self._on_action))
        self._check_open()

    async def _is_main_turn(self, turn_id: str) -> bool:
        """Whether a turn is the main agent's, whose functions these are; one not seen yet is looked up."""
        from openai import NotFoundError

        picture, sessions = self.picture, self.session.sessions
        if turn_id not in picture.main_turns | picture.subagent_turns:
            try:
                turn: Turn = await persistently(
                    lambda: sessions.resource.turns.retrieve(turn_id, session_id=self.session.id),
                    sessions.patience,
                )
                is_main = turn.subagent_id is None
            except NotFoundError:
                is_main = False
            (picture.main_turns if is_main else picture.subagent_turns).add(turn_id)
        return turn_id not in picture.subagent_turns

    def _settled(self) -> None:
        """A call was answered."""
        if not self._has_background:
            self._drained.set()
        self._check_open()

    def _check_open(self) -> None:
        """What nobody here answers ends the run, once everything else is answered."""
        is_answering = self._answers is not None and self._answers.are_open
        if self._left_open and not is_answering:
            self._fail(ActionRequired(self.session.id, self._left_open))

    async def _ask(self, action: Action, decide: OnAction) -> None:
        try:
            decision = await call(lambda: decide(action), decide)
            if decision is None:
                return
            answer, key = answer_event(action, decision), new_key()
            await persistently(lambda: self.session.post([answer], key), self.session.sessions.patience)
        except Exception as error:  # noqa: BLE001  # handed to the run, which raises it
            self._fail(error)


def _key(action: Action) -> str:
    return getattr(action, "request_id", None) or getattr(action, "call_id", None) or action.summary
