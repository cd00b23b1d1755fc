"""One attempt at a step: what a call of the model has put out so far, and what it cost."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from perdure.harness.answer import Finished as Output
from perdure.harness.answer import message_data, reasoning_data
from perdure.harness.spending import CallRecord, written_tokens
from perdure.live.hub import LiveItem
from perdure.models.messages import Finished
from perdure.store.rows import ItemRow, TurnRow
from perdure.store.steps import Spent, Text

NOTHING_SPENT = Spent(None, 0, 0)


@dataclass(slots=True)
class Writing:
    """An item in progress: its row, the text that readers have seen, and what of it was saved."""

    row: ItemRow
    live: LiveItem
    saved: Mapping[str, Any]

    def data(self) -> dict[str, Any]:
        texts = self.live.texts()
        if self.row.type == "message":
            return message_data("".join(texts), None) if texts else dict(self.row.data)
        return reasoning_data(texts)


@dataclass(slots=True)
class Attempt:
    """What one call of the model has produced so far."""

    turn: TurnRow
    number: int
    began: float = field(default_factory=time.monotonic)
    # What earlier attempts of the step cost that showed nothing and so wrote nothing.
    before: Spent = NOTHING_SPENT
    writing: dict[int, Writing] = field(default_factory=dict)
    outputs: list[Output] = field(default_factory=list)
    finished: Finished | None = None
    call: CallRecord | None = None

    def partial(self) -> list[Text]:
        return [
            Text("message" if w.row.type == "message" else "reasoning", w.data(), w.row)
            for w in self.writing.values()
        ]

    def spent(self, outcome: str) -> Spent:
        """What the attempt cost, ended as `outcome`: `ok`, `cancelled` or the code of an error.

        A call that never began, because a place or a ceiling was in its way, has cost nothing.
        """
        if self.call is None or self.call.started_us is None:
            return self.before
        active_us = int((time.monotonic() - self.began) * 1e6)
        shown = sum(len(text) for writing in self.writing.values() for text in writing.live.texts())
        calls = self.call.ended(outcome, written_tokens(shown))
        spent = self.before + Spent(self.call.usage, active_us, 1, calls)
        if self.finished is not None and self.finished.usage is None:
            # The total of the step is not known, whatever its summaries used.
            return replace(spent, usage=None)
        return spent
