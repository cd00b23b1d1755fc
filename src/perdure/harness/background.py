"""Summaries that are written beside a turn: tasks of this process, whose results wait for a boundary.

Nothing of them is stored before it is applied. A process that ends, or that another owner took a
session from, only loses the work.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from perdure.harness.conversation import Conversation
from perdure.store.rows import ItemRow
from perdure.store.steps import Spent

log = logging.getLogger(__name__)

KEPT = 512


@dataclass(frozen=True, slots=True)
class Summary:
    """What asking for a summary came to.

    `text` is None when there is none to use; `usage_known` is False when a provider did not tell what a
    finished call used.
    """

    text: str | None
    model: Mapping[str, str] | None
    spent: Spent
    usage_known: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Pending:
    """A summary of the first items of a conversation, under way or finished."""

    conversation: Conversation
    prefix: tuple[ItemRow, ...]
    task: asyncio.Task[Summary]

    @property
    def fits(self) -> bool:
        """Whether the conversation still begins with what was summarised."""
        rows = self.conversation.rows[: len(self.prefix)]
        return [row.id for row in rows] == [row.id for row in self.prefix]


class Background:
    """At most one pending summary for each session of this process."""

    def __init__(self) -> None:
        self._pending: OrderedDict[str, Pending] = OrderedDict()

    def find(self, session_id: str, conversation: Conversation) -> Pending | None:
        """The pending summary of a conversation; that of another one is dropped."""
        pending = self._pending.get(session_id)
        if pending is not None and (pending.conversation is not conversation or not pending.fits):
            self.drop(session_id)
            return None
        return pending

    def start(
        self,
        session_id: str,
        conversation: Conversation,
        prefix: tuple[ItemRow, ...],
        writing: Coroutine[Any, Any, Summary],
    ) -> Pending:
        self.drop(session_id)
        task = asyncio.create_task(writing, name=f"compact {session_id}")
        pending = self._pending[session_id] = Pending(conversation, prefix, task)
        while len(self._pending) > KEPT:
            self.drop(next(iter(self._pending)))
        return pending

    def drop(self, session_id: str) -> None:
        """Forget a session's summary, and stop writing it."""
        pending = self._pending.pop(session_id, None)
        if pending is not None:
            pending.task.cancel()
            pending.task.add_done_callback(_note_failure)

    def drop_all(self) -> None:
        for session_id in tuple(self._pending):
            self.drop(session_id)


def _note_failure(task: asyncio.Task[Summary]) -> None:
    """Look at the outcome of a task that nobody waits for."""
    if not task.cancelled() and task.exception() is not None:
        log.info("a summary that is no longer needed failed: %s", task.exception())
