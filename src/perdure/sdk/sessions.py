"""`Sessions`: where sessions live. A server, or an engine in this process."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

from perdure.sdk import links
from perdure.sdk.agent import Agent
from perdure.sdk.agent_tool import AgentTool
from perdure.sdk.connection import connect, keeps_pins
from perdure.sdk.creation import Creation
from perdure.sdk.errors import NoServer, SdkError, UnknownAgent
from perdure.sdk.requests import new_key, persistently
from perdure.sdk.session import Session

if TYPE_CHECKING:
    from openai import AsyncOpenAI
    from openai.resources.beta.agents.sessions.sessions import AsyncSessions

    from perdure.sdk.journal import Journal
    from perdure.sdk.journal_async import AsyncJournal
    from perdure.sdk.leg import OnAction
    from perdure.sdk.results import RunResult

T = TypeVar("T")

PATIENCE = 120.0
CONCURRENT_TOOLS = 8


class Sessions:
    """An async context manager; inside of it, sessions are started, resumed and run.

    Args:
        base_url: a server, with or without `/v1`; `PERDURE_URL` by default.
        api_key: its key; `PERDURE_API_KEY` by default.
        embedded: run the engine in this process, over a data directory of its own.
        hosted: use OpenAI's own service, with `api_key` or `OPENAI_API_KEY`. Nothing else ever does.
        client: a client that is set up already; it is not closed.
        data_dir: of the embedded engine; that of `perdure serve` by default. One engine at a time.
        config: a settings file of the embedded engine. Without one, the scripted model is the only model.
        journal: where calls and ledgers are recorded: a file, a database URL, or an open `Journal`. By
            default what `PERDURE_JOURNAL` names, or a file beside the server's data. Processes that may
            resume each other's sessions share one.
        agents: whose sessions may be resumed by nothing but their id.
        max_concurrent_tools: calls of one session that run at a time.
        patience: seconds that a server may be away before a run ends with ConnectionLost.

    Raises NoServer when no server is named, or several are. What is named in `base_url`, `embedded`,
    `hosted` or `client` is used alone; a variable of the environment never overrides it.
    """

    def __init__(
        self,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        embedded: bool = False,
        hosted: bool = False,
        client: AsyncOpenAI | None = None,
        data_dir: Path | str | None = None,
        config: Path | str | None = None,
        journal: Journal | Path | str | None = None,
        agents: Iterable[Agent[Any]] = (),
        max_concurrent_tools: int = CONCURRENT_TOOLS,
        patience: float = PATIENCE,
    ) -> None:
        if sum((base_url is not None, embedded, hosted, client is not None)) > 1:
            raise NoServer("base_url, embedded, hosted and client each name a server; give one of them.")
        if not embedded and (data_dir is not None or config is not None):
            raise NoServer("data_dir and config are of the embedded engine; pass embedded=True.")
        if embedded and api_key is not None:
            raise NoServer("The embedded engine takes no api_key; nobody else can reach it.")
        if max_concurrent_tools < 1:
            raise ValueError("max_concurrent_tools is at least 1.")
        self.max_concurrent_tools = max_concurrent_tools
        self.patience = patience
        # OpenAI's service makes a second session from a repeated creation, so a lost answer is not repeated.
        self.creation_patience = 0.0 if hosted else patience
        self._embedded = embedded
        self._place = (data_dir, config)
        self._owns_client = client is None
        self._client = client
        if client is None and not embedded:
            self._client = connect(base_url, api_key, hosted=hosted)
        self._given_journal = journal
        self._journal: Journal | None = None
        self._opening_journal = asyncio.Lock()
        self._keeps_pins: bool | None = None
        self._agents: dict[str, Agent[Any]] = {}
        self._stack = AsyncExitStack()
        for agent in agents:
            self._remember(agent)

    async def __aenter__(self) -> Self:
        if self._embedded:
            from perdure.sdk.embedded import embedded_server

            self._client = await self._stack.enter_async_context(embedded_server(*self._place))
        elif self._owns_client and self._client is not None:
            await self._stack.enter_async_context(self._client)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._journal is not None and self._journal is not self._given_journal:
            await asyncio.to_thread(self._journal.close)
            self._journal = None
        await self._stack.aclose()

    @property
    def client(self) -> AsyncOpenAI:
        """The official client underneath, for everything that is not here."""
        if self._client is None:
            raise SdkError("Use `async with Sessions(embedded=True) as sessions`.")
        return self._client

    @property
    def resource(self) -> AsyncSessions:
        """`client.beta.agents.sessions`."""
        return self.client.beta.agents.sessions

    def start(
        self,
        agent: Agent[T],
        *,
        environment: str | Mapping[str, Any] = "none",
        ledger: Any = None,
        ledger_type: Any = None,
        pinned: Iterable[str] = (),
        metadata: Mapping[str, str] | None = None,
        **more: Any,
    ) -> Session[T]:
        """A new session. Its first run creates it: without an environment, input is part of the creation.

        Args:
            agent: who answers.
            environment: a type, such as "none", or the whole environment of the protocol.
            ledger: the first value of the session's ledger, of any schema form.
            ledger_type: what it is typed by, if not by its own type; needed for a dict.
            pinned: fields of the ledger that the model must not lose, besides those typed as `Pinned`.
            metadata: up to 16 pairs, of which this library uses some whose names begin with `perdure_`, and
                one for each pinned field.
            more: further members of the creation, such as `vault_ids`.

        Raises:
            LedgerError, LedgerInvalid, FormRefused, SchemaRefused: the ledger or its form will not do.
        """
        return self.begin(
            agent,
            environment=environment,
            metadata=metadata,
            key=None,
            ledger=ledger,
            ledger_type=ledger_type,
            pinned=pinned,
            **more,
        )

    def begin(
        self,
        agent: Agent[T],
        *,
        environment: str | Mapping[str, Any],
        metadata: Mapping[str, str] | None,
        key: str | None,
        ledger: Any = None,
        ledger_type: Any = None,
        pinned: Iterable[str] = (),
        **more: Any,
    ) -> Session[T]:
        """Like `start`, under a key of the caller's: one key, one session."""
        self._remember(agent)
        form = type(ledger) if ledger_type is None and ledger is not None else ledger_type
        creation = Creation(
            self,
            agent,
            environment=environment,
            metadata=metadata,
            key=key,
            ledger=ledger,
            ledger_type=ledger_type,
            pinned=pinned,
            more=more,
        )
        return Session(self, agent, creation=creation, ledger_type=form)

    def attach(self, session_id: str, agent: Agent[T], *, ledger_type: Any = None) -> Session[T]:
        """A session that exists. No request is made.

        `agent` is whose functions answer; the session keeps the configuration it was created with.
        """
        self._remember(agent)
        return Session(self, agent, session_id, ledger_type=ledger_type)

    @overload
    async def resume(
        self,
        session_id: str,
        agent: Agent[T],
        *,
        ledger_type: Any = None,
        on_action: OnAction | None = None,
    ) -> RunResult[T]: ...
    @overload
    async def resume(
        self,
        session_id: str,
        agent: None = None,
        *,
        ledger_type: Any = None,
        on_action: OnAction | None = None,
    ) -> RunResult[Any]: ...
    async def resume(
        self,
        session_id: str,
        agent: Agent[Any] | None = None,
        *,
        ledger_type: Any = None,
        on_action: OnAction | None = None,
    ) -> RunResult[Any]:
        """Pick a session up by its id: answer what is owed, follow it to its end, return the result.

        What is owed is read from `required_actions`, not from the history. A call that has a result in the
        journal is answered with that result; none is run twice.

        Args:
            session_id: which.
            agent: whose functions answer; without it, the one of `agents` that the session was begun with.
            ledger_type: what the session's ledger is typed by.
            on_action: decides about approvals and other actions.

        Raises:
            UnknownAgent: no agent is given, and the session's is not known here.
            and what `RunStream.result` raises, for the turn that it finds.
        """
        found = agent or await self._agent_of(session_id)
        return await self.attach(session_id, found, ledger_type=ledger_type).follow(on_action=on_action)

    async def save(self, agent: Agent[T]) -> Agent[T]:
        """Save the agent's configuration on the server; returns the agent that uses it."""
        headers = {"Idempotency-Key": new_key()}
        saved = await persistently(
            lambda: self.client.beta.agents.create(
                name=agent.name, **agent.configuration, extra_headers=headers
            ),
            self.creation_patience,
        )
        return agent.saved_as(saved.id)

    async def keeps_pins(self) -> bool:
        """Whether the server keeps pinned facts through compaction; asked once. perdure does."""
        if self._keeps_pins is None:
            self._keeps_pins = await keeps_pins(self.client, self.patience)
        return self._keeps_pins

    async def journal(self) -> AsyncJournal:
        """The open journal, as coroutines. Raises JournalError."""
        async with self._opening_journal:
            if self._journal is None:
                self._journal = await asyncio.to_thread(self._open_journal)
        return self._journal.aio

    @property
    def has_journal(self) -> bool:
        """Whether a journal was needed so far."""
        return self._journal is not None

    def _open_journal(self) -> Journal:
        from perdure.sdk.journal import Journal
        from perdure.sdk.journal_database import VARIABLE

        given = self._given_journal
        if isinstance(given, Journal):
            return given
        data_dir = self._place[0]
        if given is None and data_dir is not None and not os.environ.get(VARIABLE):
            given = Path(data_dir) / "journal.db"
        return Journal.open(given)

    async def _agent_of(self, session_id: str) -> Agent[Any]:
        session = await self.resource.retrieve(session_id)
        name = session.metadata.get(links.AGENT) or session.agent.name
        if name is None or name not in self._agents:
            raise UnknownAgent(
                f"Session {session_id} was begun with the agent {name!r}, which is not known here: pass it "
                "to resume(), or to Sessions(agents=[…]).",
                session_id,
            )
        return self._agents[name]

    def _remember(self, agent: Agent[Any]) -> None:
        """Know an agent, and those it can call or hand over to, by name."""
        if self._agents.get(agent.name) is agent:
            return
        self._agents[agent.name] = agent
        for handoff in agent.handoffs:
            self._remember(handoff.agent)
        for each in agent.served.values():
            if isinstance(each, AgentTool):
                self._remember(each.agent)
