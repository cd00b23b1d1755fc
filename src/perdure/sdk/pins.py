"""Keeps the pinned facts of a session, on its server, in step with the pinned fields of its ledger.

The ledger is the truth: it is changed first, in one transaction with the result of a call, and the facts
follow before that result is submitted. So the model never sees a result that is newer than the facts, and
what a crash leaves behind is a fact that is older than the ledger, which whoever resumes the session sees.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from perdure.sdk.crash_points import reach
from perdure.sdk.messages import facts_of
from perdure.sdk.requests import persistently

if TYPE_CHECKING:
    from openai.types.beta.agent_session import AgentSession

    from perdure.sdk.ledger import LedgerRecord
    from perdure.sdk.session import Session

log = logging.getLogger(__name__)

MOST_ROUNDS = 20
"""How often the facts are written after one change, while other processes go on to change the ledger."""


class Pins:
    """The pinned facts of one session, as this process knows them."""

    def __init__(self, session: Session[Any]) -> None:
        self._session = session
        self._version: int | None = None
        self._changing = asyncio.Lock()

    async def kept_or_told(self) -> list[dict[str, Any]]:
        """Before something is said: bring the facts in step, or return the message that tells them.

        They are told where the server keeps none, and empty is the list where it does.
        """
        record = await self._session.ledger()
        if record is None or not record.pinned:
            return []
        if await self._session.sessions.keeps_pins():
            await self.keep()
            return []
        return facts_of(record)

    async def seen(self, session: AgentSession) -> None:
        """The session was read: bring its facts in step if they are not."""
        self._version = None
        await self.keep(session.metadata)

    async def keep(self, metadata: Mapping[str, str] | None = None) -> None:
        """Bring the facts in step with the newest version of the ledger.

        One request reads the metadata, unless `metadata` was read just now, and one writes it; both only if
        a pinned field has changed. Pairs that are no fields of the ledger stay as they are.

        Raises:
            LedgerError: metadata has no room for them.
            openai.APIError: the server cannot be reached, or refuses.
        """
        from perdure.sdk.pinned import check_room, with_pins

        record = await self._session.ledger()
        if record is None or not record.pinned or not await self._session.sessions.keeps_pins():
            return
        async with self._changing:
            for _ in range(MOST_ROUNDS):
                record = await self._session.ledger()
                if record is None or not await self._is_behind(record):
                    return
                newest = record
                if metadata is None or with_pins(metadata, newest) != metadata:
                    reach("pins:before-update")

                    def change(present: Mapping[str, str], record: LedgerRecord = newest) -> dict[str, str]:
                        wanted = with_pins(present, record)
                        check_room(wanted)
                        return wanted

                    await self._change(change)
                    reach("pins:after-update")
                self._version, metadata = newest.version, None
        log.warning("The ledger of session %s changes faster than its pinned facts", self._session.id)

    async def repair(self) -> None:
        """Bring the facts in step, whatever they were thought to be."""
        self._version = None
        await self.keep()

    async def change_metadata(self, change: Callable[[Mapping[str, str]], dict[str, str]]) -> None:
        """Replace the session's metadata by what a function makes of the present one."""
        async with self._changing:
            await self._change(change)

    async def _change(self, change: Callable[[Mapping[str, str]], dict[str, str]]) -> None:
        session_id, sessions = self._session.id, self._session.sessions
        # The protocol replaces metadata as a whole, so the rest of it is read just before.
        present = (await self._session.retrieve()).metadata
        wanted = change(present)
        if wanted != present:
            await persistently(
                lambda: sessions.resource.update(session_id, metadata=wanted), sessions.patience
            )

    async def _is_behind(self, record: LedgerRecord) -> bool:
        if self._version is None:
            return True
        if record.version == self._version:
            return False
        journal = await self._session.sessions.journal()
        if await journal.run(journal.journal.ledgers.has_new_pins, record, self._version):
            return True
        self._version = record.version
        return False
