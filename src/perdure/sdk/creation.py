"""What a session is created with, the same at every try."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from perdure.sdk import links
from perdure.sdk.messages import facts_of
from perdure.sdk.requests import new_key

if TYPE_CHECKING:
    from perdure.sdk.agent import Agent
    from perdure.sdk.ledger import LedgerForm, LedgerRecord
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
        pinned: Iterable[str],
        more: Mapping[str, Any],
    ) -> None:
        self._sessions = sessions
        self._agent = agent
        self._environment = {"type": environment} if isinstance(environment, str) else dict(environment)
        self._metadata = {links.AGENT: agent.name, **(metadata or {})}
        self._key = key or new_key()
        self._ledger = ledger
        self._form = None if ledger is None else _checked_form(ledger, ledger_type, pinned)
        self._more = dict(more)
        self._facts: list[dict[str, Any]] = []
        self._pins: dict[str, str] = {}
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
            "metadata": {**self._metadata, **self._pins},
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

            keeps_pins = await self._has_room_for_pins()
            journal = await self._sessions.journal()
            record = await journal.run(journal.journal.ledgers.create, self._ledger, self._form)
            self._metadata[LEDGER_METADATA] = self.ledger_key = record.key
            self._tell(record, keeps_pins=keeps_pins)

    async def _has_room_for_pins(self) -> bool:
        """Whether the server keeps pinned facts. Raises LedgerError if metadata could not hold them all."""
        from perdure.sdk.ledger import LEDGER_METADATA
        from perdure.sdk.pinned import PIN, check_room

        if self._form is None or not self._form.pinned or not await self._sessions.keeps_pins():
            return False
        # Also for those without a value, and for the names of a session that this one is handed over to.
        pins = {PIN + name: "" for name in self._form.pinned}
        later = len(links.FORWARD) if self._agent.handoffs else 0
        check_room({**self._metadata, LEDGER_METADATA: "", **pins}, later)
        return True

    def _tell(self, record: LedgerRecord, *, keeps_pins: bool) -> None:
        from perdure.sdk.pinned import with_pins

        if keeps_pins:
            self._pins = with_pins({}, record)
        else:
            self._facts = facts_of(record)

    async def _forget_ledger(self) -> None:
        """The server has refused, so there is no session, and another try begins anew."""
        from perdure.sdk.ledger import LEDGER_METADATA

        if self.ledger_key is not None:
            journal = await self._sessions.journal()
            await journal.run(journal.journal.ledgers.discard, self.ledger_key)
            del self._metadata[LEDGER_METADATA]
            self.ledger_key, self._facts, self._pins = None, [], {}
        self._key = new_key()


def _checked_form(ledger: Any, ledger_type: Any, pinned: Iterable[str]) -> LedgerForm[Any]:
    from perdure.sdk.ledger import LedgerForm
    from perdure.sdk.pinned import check_values

    form = LedgerForm.of(ledger, ledger_type, pinned)
    check_values(form.pinned, form.plain(ledger))
    return form
