"""One session: what an application says to it, and what it answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from perdure.sdk import links
from perdure.sdk.actions import Action, Decision, answer_event
from perdure.sdk.errors import SdkError, SessionBusy, SessionFailed
from perdure.sdk.handoff import HandoffNote, HandoffRecord
from perdure.sdk.messages import Input, messages
from perdure.sdk.picture import Picture
from perdure.sdk.pins import Pins
from perdure.sdk.reading import SILENCE, Reader
from perdure.sdk.requests import new_key, persistently
from perdure.sdk.stream import RunStream, follow_from_start
from perdure.sdk.subagents import Order, Subagent, subagents_of
from perdure.sdk.tree import TreeNode, tree_of

if TYPE_CHECKING:
    from openai.types.beta.agent_session import AgentSession
    from openai.types.beta.agent_session_item import AgentSessionItem
    from openai.types.beta.agents.sessions.turn import Turn

    from perdure.sdk.agent import Agent
    from perdure.sdk.context import ToolContext
    from perdure.sdk.creation import Creation
    from perdure.sdk.handoff import Handoff
    from perdure.sdk.ledger import LedgerRecord
    from perdure.sdk.ledger_edit import Change, LedgerEdit
    from perdure.sdk.leg import OnAction
    from perdure.sdk.reconcile import Drift
    from perdure.sdk.results import RunResult
    from perdure.sdk.sessions import Sessions

OutputT_co = TypeVar("OutputT_co", covariant=True)


class Session(Generic[OutputT_co]):
    """A session of `Sessions`. Get one from `start` or `attach`.

    Attributes:
        sessions: where it lives.
        agent: who answers, and whose functions answer its calls.
        ledger_type: what its ledger is typed by, if that was said.
    """

    def __init__(
        self,
        sessions: Sessions,
        agent: Agent[OutputT_co],
        session_id: str | None = None,
        *,
        creation: Creation | None = None,
        ledger_type: Any = None,
    ) -> None:
        self.sessions = sessions
        self.agent = agent
        self._id = session_id
        self.ledger_type = ledger_type
        self.pins = Pins(self)
        self._creation = creation
        self._is_creating = False
        self._is_known = False
        self._has_ledger = False
        self._handing_over = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<Session {self._id or 'not created yet'} of {self.agent.name}>"

    @property
    def id(self) -> str:
        """The session's id, which is all that another process needs. Raises SdkError before it exists."""
        if self._id is None:
            raise SdkError("The session does not exist yet; its first run creates it.")
        return self._id

    @property
    def exists(self) -> bool:
        """Whether the first run has created it."""
        return self._id is not None

    # ---- running

    async def run(self, input: Input, *, on_action: OnAction | None = None) -> RunResult[OutputT_co]:
        """Say something, answer the calls that follow, and return when the session has come to rest.

        Args:
            input: text, or messages with images. The session must be idle.
            on_action: decides about approvals and other actions; without it they raise ActionRequired.

        Raises:
            SessionBusy: the session is not idle.
            and what `RunStream.result` raises.
        """
        async with self.stream(input, on_action=on_action) as events:
            return await events.result()

    def stream(self, input: Input, *, on_action: OnAction | None = None) -> RunStream[OutputT_co]:
        """The same as `run`, with the events on the way."""
        if self._id is None:
            return RunStream(self, self._creating(input), on_action=on_action, catches_up=False)
        return RunStream(self, self._saying(input), on_action=on_action, catches_up=False)

    async def follow(self, *, on_action: OnAction | None = None) -> RunResult[OutputT_co]:
        """Answer what is owed and follow the newest turn to its end, saying nothing.

        For a session that is idle already it returns what its last turn came to.
        """
        async with self.follow_stream(on_action=on_action) as events:
            return await events.result()

    def follow_stream(self, *, on_action: OnAction | None = None) -> RunStream[OutputT_co]:
        """The same as `follow`, with the events from now on."""
        assert self.id
        return RunStream(self, follow_from_start, on_action=on_action, catches_up=True)

    async def send(self, input: Input) -> None:
        """Say something without waiting for an answer: it steers a running turn, or begins one."""
        await self._submit({"type": "agent.session.input.message", "input": messages(input)})

    async def cancel(self) -> None:
        """End the running turn; the session and what was done stay. Without a turn it does nothing."""
        await self._submit({"type": "agent.session.input.cancel"})

    async def answer(self, action: Action, decision: Decision) -> None:
        """Answer an approval or a sign-in. Raises TypeError for a decision that does not fit."""
        await self._submit(answer_event(action, decision))

    # ---- reading

    async def retrieve(self) -> AgentSession:
        """The session as it is now, with `required_actions`: what is owed, and nothing else says so."""
        session_id = self.id
        return await persistently(lambda: self.sessions.resource.retrieve(session_id), self.sessions.patience)

    async def items(self) -> list[AgentSessionItem]:
        """Every item of the main agent, oldest first."""
        listed = self.sessions.resource.items.list(self.id, order="asc", limit=100)
        return [item async for item in listed]

    def subagents(self, *, order: Order = "asc") -> AsyncIterator[Subagent]:
        """Every subagent, nested and closed ones included, page by page; oldest first by default."""
        return subagents_of(self, order)

    def tree(self) -> AsyncIterator[TreeNode]:
        """The main agent and its subagents, depth first, each below the one that created it.

        The list is read when it is reached, and turns and items when they are asked for.
        """
        return tree_of(self)

    async def delete(self) -> None:
        """Delete the session. A cancel that is still settling is waited for."""
        session_id = self.id
        await persistently(
            lambda: self.sessions.resource.delete(session_id), self.sessions.patience, settles=True
        )

    async def ledger(self) -> LedgerRecord | None:
        """The session's ledger as it was recorded last; None without one."""
        return await (await self.sessions.journal()).ledger(self.id)

    async def update_ledger(
        self, change: Change | None = None, /, *, expected: int | None = None, **fields: Any
    ) -> LedgerRecord:
        """Change the ledger outside of any tool, and the session's pinned facts with it.

        Args:
            change: a function of the value; it is applied to the newest one.
            expected: the version the change is based on; without it, the newest.
            fields: fields to set, in place of a function.

        Raises:
            LedgerConflict, LedgerInvalid, LedgerError: the change cannot be made; nothing was changed.
            openai.APIError: the ledger has changed, and the facts could not follow; `reconcile` repairs that.
        """
        journal = await self.sessions.journal()
        update = journal.journal.ledgers.update
        record = await journal.run(
            update, self.id, change, form=self.ledger_type, expected=expected, **fields
        )
        await self.pins.keep()
        return record

    async def reconcile(self) -> list[Drift]:
        """What does not fit between items, required actions, journal and ledger; empty when all agrees.

        Pinned facts that differ from the ledger are told, and put right. Nothing else is changed.
        """
        from perdure.sdk.reconcile import read_session_async, reconcile

        session_id = self.id
        journal = await self.sessions.journal()
        facts = await read_session_async(self.sessions.client, session_id)
        ledger = await journal.ledger(session_id)
        is_kept = ledger is not None and bool(ledger.pinned) and await self.sessions.keeps_pins()
        found = reconcile(facts, ledger, await journal.calls(session_id), keeps_pins=is_kept)
        if any(drift.kind == "pin_differs" for drift in found):
            await self.pins.repair()
        return found

    # ---- for the modules beside this one

    async def post(self, events: list[dict[str, Any]], key: str) -> None:
        """Submit input events once."""
        typed: Any = events
        await self.sessions.resource.events.create(self.id, events=typed, idempotency_key=key)

    async def created(self, session: AgentSession) -> None:
        """The session was seen: remember its id, and tie its ledger to it."""
        from perdure.sdk.ledger import LEDGER_METADATA

        self._id = session.id
        if self._is_known:
            return
        if LEDGER_METADATA in session.metadata:
            journal = await self.sessions.journal()
            ledgers = journal.journal.ledgers
            key = None if self._creation is None else self._creation.ledger_key
            if key is not None:
                await journal.run(ledgers.bind, key, session.id)
                self._has_ledger = True
            else:
                self._has_ledger = await journal.run(ledgers.adopt, session.id, session.metadata) is not None
        self._is_known = True
        if self._has_ledger:
            await self.pins.seen(session)

    async def ledger_edit(self) -> LedgerEdit[Any] | None:
        """What a call may change of the ledger."""
        if not self._has_ledger:
            return None
        journal = await self.sessions.journal()
        return await journal.run(journal.journal.ledgers.edit, self.id, self.ledger_type)

    async def turn_ended(self, turn: Turn | None, items: Sequence[AgentSessionItem]) -> None:
        """Nothing more of a turn will be submitted; `items` show which results the server took."""
        if turn is not None and self.sessions.has_journal:
            answered = [item.call_id for item in items if item.type == "function_call_output"]
            await (await self.sessions.journal()).turn_ended(self.id, turn.id, answered=answered)

    async def run_linked(
        self, agent: Agent[Any], text: str, context: ToolContext[Any], environment: Any
    ) -> RunResult[Any]:
        """Run another agent for a call of this session, in a session that belongs to the call."""
        from perdure.sdk.handing_over import linked_session

        pair = context.pair
        if context.is_repeat and (found := await linked_session(self, "agent_tool", pair)) is not None:
            return await self.sessions.attach(found, agent).follow()
        linked = self.sessions.begin(
            agent,
            environment=environment,
            metadata=links.backward("agent_tool", pair),
            key=links.creation_key("agent_tool", pair),
        )
        return await linked.run(text)

    async def hand_over(
        self, handoff: Handoff[Any], context: ToolContext[Any], details: Any, note: HandoffNote
    ) -> HandoffRecord:
        """Begin the target's session and tie both together. Raises ToolError for a second one in a turn."""
        from perdure.sdk.handing_over import hand_over

        async with self._handing_over:
            ledger = await self.ledger() if self._has_ledger else None
            return await hand_over(self, handoff, context, details, note, ledger)

    async def create(self, input: Input) -> str:
        """Create the session with its first input, without following it; returns the id.

        Raises SdkError for a session that was attached: that one exists.
        """
        if self._creation is None:
            raise SdkError(f"Session {self.id} exists already; run() or send() says something to it.")
        async with self._creation.request(messages(input)) as (body, headers):
            session: AgentSession = await persistently(
                lambda: self.sessions.resource.create(**body, extra_headers=headers),
                self.sessions.creation_patience,
            )
        await self.created(session)
        return session.id

    # ---- beginning a turn

    def _creating(self, input: Input) -> Callable[[Picture, Reader], Callable[[], Awaitable[Any]]]:
        def open_first(_: Picture, __: Reader) -> Callable[[], Awaitable[Any]]:
            return first

        is_ours = False

        async def first() -> Any:
            from httpx2 import Timeout

            nonlocal is_ours
            if not is_ours and (self._is_creating or self.exists):
                raise SessionBusy(self._id or "", "being created")
            self._is_creating = is_ours = True
            assert self._creation is not None
            try:
                async with self._creation.request(messages(input)) as (body, headers):
                    return await persistently(
                        lambda: self.sessions.resource.create(
                            **body,
                            stream=True,
                            stream_options={"include_obfuscation": False},
                            extra_headers=headers,
                            timeout=Timeout(SILENCE, connect=10.0),
                        ),
                        self.sessions.creation_patience,
                    )
            except BaseException:
                self._is_creating = is_ours = False
                raise

        return open_first

    def _saying(self, input: Input) -> Callable[[Picture, Reader], Callable[[], Awaitable[Any]]]:
        key = new_key()
        said = messages(input)

        def open_first(picture: Picture, reader: Reader) -> Callable[[], Awaitable[Any]]:
            async def first() -> Any:
                session_id = self.id
                # The stream first: what happens before a subscription is never told.
                stream = await reader.open(session_id)
                try:
                    session, newest = await asyncio.gather(self.retrieve(), reader.newest_turn(session_id))
                    if session.status == "failed":
                        raise SessionFailed(session_id, session.error)
                    if session.status != "idle":
                        raise SessionBusy(session_id, session.status)
                    await self.created(session)
                    picture.begin_after(None if newest is None else newest.id)
                    facts = await self.pins.kept_or_told() if self._has_ledger else []
                    message = {"type": "agent.session.input.message", "input": [*facts, *said]}
                    await persistently(lambda: self.post([message], key), self.sessions.patience)
                except BaseException:
                    with suppress(OSError):
                        await stream.close()
                    raise
                return stream

            return first

        return open_first

    async def _submit(self, event: dict[str, Any]) -> None:
        key = new_key()
        assert self.id
        await persistently(lambda: self.post([event], key), self.sessions.patience)
