"""What a session is created with, the same at every try."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from perdure.sdk import links
from perdure.sdk.messages import facts_of
from perdure.sdk.requests import new_key

if TYPE_CHECKING:
    from perdure.sdk.agent import Agent
    from perdure.sdk.sessions import Sessions


class Creation:
    """One session that is to be. However often it is asked for, there is one ledger and one key.

    `ledger_key` names the ledger once it is recorded.

    The ledger is in the journal before the request leaves, and its key in the session's metadata; so a crash
    between the two leaves nothing that cannot be tied together again.
    """

    def __init__(
        self,
        sessions: Sessions,
        agent: Agent[Any],
        *,
        environment: str | Mapping[str, Any],
        metadata: Mapping[str, str] | None,
        key: str | None,
        ledger: Any,
        ledger_type: Any,
        more: Mapping[str, Any],
    ) -> None:
        self._sessions = sessions
        self._agent = agent
        self._environment = {"type": environment} if isinstance(environment, str) else dict(environment)
        self._metadata = {links.AGENT: agent.name, **(metadata or {})}
        self._key = key or new_key()
        self._ledger = ledger
        self._ledger_type = ledger_type
        self._more = dict(more)
        self._facts: list[dict[str, Any]] = []
        self.ledger_key: str | None = None

    @asynccontextmanager
    async def request(
        self, input: list[dict[str, Any]]
    ) -> AsyncIterator[tuple[dict[str, Any], dict[str, str]]]:
        """Members and headers of the request, which is made inside of the context."""
        from openai import APIStatusError

        await self._record_ledger()
        agent: dict[str, Any] = {}
        if self._agent.agent_id is not None:
            agent["agent_id"] = self._agent.agent_id
        else:
            agent["agent"] = self._agent.configuration
        body = {
            **agent,
            "environment": self._environment,
            "metadata": self._metadata,
            "input": [*self._facts, *input],
            **self._more,
        }
        try:
            yield body, {"Idempotency-Key": self._key}
        except APIStatusError as error:
            if 400 <= error.status_code < 500:
                await self._forget_ledger()
            raise

    async def _record_ledger(self) -> None:
        if self._ledger is not None and self.ledger_key is None:
            from perdure.sdk.ledger import LEDGER_METADATA

            journal = await self._sessions.journal()
            record = await journal.run(journal.journal.ledgers.create, self._ledger, self._ledger_type)
            self._metadata[LEDGER_METADATA] = self.ledger_key = record.key
            self._facts = facts_of(record)

    async def _forget_ledger(self) -> None:
        """The server has refused, so there is no session, and another try begins anew."""
        from perdure.sdk.ledger import LEDGER_METADATA

        if self.ledger_key is not None:
            journal = await self._sessions.journal()
            await journal.run(journal.journal.ledgers.discard, self.ledger_key)
            del self._metadata[LEDGER_METADATA]
            self.ledger_key, self._facts = None, []
        self._key = new_key()
