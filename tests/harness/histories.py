"""Histories as the store would write them, for tests of what the model sees."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perdure.harness.conversation import Conversation
from perdure.models.messages import Entry
from perdure.store.rows import ItemRow

NATIVE = {"provider": "p", "model": "m", "data": {"id": "x"}}


class History:
    """Builds items as the store would write them."""

    def __init__(self) -> None:
        self.rows: list[ItemRow] = []

    def add(
        self,
        kind: str,
        data: Mapping[str, Any],
        *,
        turn: str = "t1",
        step: int | None = None,
        status: str = "completed",
        private: Mapping[str, Any] | None = None,
    ) -> ItemRow:
        pos = len(self.rows) + 1
        index = None if step is None else pos
        row = ItemRow("s", pos, f"i{pos}", turn, "a", step, kind, status, index, data, private)
        self.rows.append(row)
        return row

    def user(self, text: str, turn: str = "t1") -> None:
        self.add("message", {"role": "user", "content": [{"type": "input_text", "text": text}]}, turn=turn)

    def says(self, text: str, step: int, **kwargs: Any) -> None:
        content = [{"type": "output_text", "text": text}]
        self.add("message", {"role": "assistant", "content": content, "phase": None}, step=step, **kwargs)

    def calls(self, call_id: str, step: int, **kwargs: Any) -> None:
        data = {"call_id": call_id, "name": "f", "arguments": {"a": 1}}
        self.add("function_call", data, step=step, **kwargs)

    def result(self, call_id: str, output: str, **kwargs: Any) -> None:
        self.add("function_call_output", {"call_id": call_id, "output": output, "error": None}, **kwargs)

    def entries(self, *, running: str = "t9", provider: str = "p", model: str = "m") -> tuple[Entry, ...]:
        return Conversation(self.rows).entries(provider, model, running, 1000)
