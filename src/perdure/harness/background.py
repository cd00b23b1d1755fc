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
from perdure.models.messages import CompactedHistory
from perdure.store.rows import ItemRow
from perdure.store.steps import Spent

log = logging.getLogger(__name__)

KEPT = 512


@dataclass(frozen=True, slots=True)
class Summary:
    """What asking for a summary came to.

    `text` is None when there is none to use; `compacted` is what the provider itself made, instead of a
    text; `usage_known` is False when a provider did not tell what a finished call used.
    """

    text: str | None
    model: Mapping[str, str] | None
    spent: Spent
    usage_known: bool = True
    compacted: CompactedHistory | None = None

    @property
    def is_written(self) -> bool:
        """Whether a model or its provider made something to use."""
        return self.text is not None or self.compacted is not None


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
    """At most one pending summary for each agent of this process, by a name that begins with its session."""

    def __init__(self) -> None:
        self._pending: OrderedDict[str, Pending] = OrderedDict()

    def find(self, name: str, conversation: Conversation) -> Pending | None:
        """The pending summary of a conversation; that of another one is dropped."""
        pending = self._pending.get(name)
        if pending is not None and (pending.conversation is not conversation or not pending.fits):
            self.drop(name)
            return None
        return pending

    def start(
        self,
        name: str,
        conversation: Conversation,
        prefix: tuple[ItemRow, ...],
        writing: Coroutine[Any, Any, Summary],
    ) -> Pending:
        self.drop(name)
        task = asyncio.create_task(writing, name=f"compact {name}")
        pending = self._pending[name] = Pending(conversation, prefix, task)
        while len(self._pending) > KEPT:
            self.drop(next(iter(self._pending)))
        return pending

    def drop(self, name: str) -> None:
        """Forget an agent's summary, and stop writing it."""
        pending = self._pending.pop(name, None)
        if pending is not None:
            pending.task.cancel()
            pending.task.add_done_callback(_note_failure)

    def drop_session(self, session_id: str) -> None:
        """Forget the summaries of all agents of a session."""
        for name in tuple(self._pending):
            if name.partition("/")[0] == session_id:
                self.drop(name)

    def drop_all(self) -> None:
        for session_id in tuple(self._pending):
            self.drop(session_id)


def _note_failure(task: asyncio.Task[Summary]) -> None:
    """Look at the outcome of a task that nobody waits for."""
    if not task.cancelled() and task.exception() is not None:
        log.info("a summary that is no longer needed failed: %s", task.exception())
