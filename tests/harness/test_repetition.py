"""Repeated calls are counted over what has left the model's view, too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from perdure.harness.conversation import Conversation
from perdure.harness.repetition import repetitions
from perdure.store.compactions import Compaction
from perdure.store.rows import ItemRow
from perdure.store.steps import Call

AGAIN = [Call("look", {"a": 1})]


def row(pos: int, kind: str, data: dict[str, Any], step: int | None = None) -> ItemRow:
    status = "completed"
    return ItemRow("sess", pos, f"item_{pos}", "turn", "agt", step, kind, status, None, data, None)


def said(pos: int) -> ItemRow:
    content = [{"type": "input_text", "text": "Look."}]
    return row(pos, "message", {"role": "user", "content": content, "phase": None})


def looks(first: int, count: int, output: str = "nothing") -> Iterator[ItemRow]:
    for number in range(count):
        pos = first + 2 * number
        call_id = f"call_{pos}"
        call = {"call_id": call_id, "name": "look", "arguments": {"a": 1}}
        yield row(pos, "function_call", call, pos)
        yield row(pos + 1, "function_call_output", {"call_id": call_id, "output": output, "error": None})


def compaction(through: int, *carried: int) -> Compaction:
    empty: dict[str, Any] = {"summary": "", "requests": [], "earlier": 0, "open": [], "subagents": []}
    data = {**empty, "carried": list(carried)}
    return Compaction(1, through, "trim", data, (), {}, None, {})


def counted(conversation: Conversation) -> tuple[int, int]:
    run = repetitions(AGAIN, conversation.past, 100)
    return run.same_result, run.any_result


def test_a_compaction_forgets_no_repetition() -> None:
    conversation = Conversation([said(1), *looks(2, 4)])
    assert counted(conversation) == (4, 4)
    conversation.compact(compaction(7, 1))
    assert counted(conversation) == (4, 4)
    conversation.update(looks(10, 3))
    assert counted(conversation) == (7, 7)
    conversation.compact(compaction(15, 1))
    conversation.update(looks(16, 1, "something"))
    assert counted(conversation) == (1, 8)


def test_a_message_begins_anew_also_where_it_has_left_the_view() -> None:
    conversation = Conversation([said(1), *looks(2, 3), said(8), *looks(9, 2)])
    assert counted(conversation) == (2, 2)
    conversation.compact(compaction(10))
    assert counted(conversation) == (2, 2)
    conversation.update([said(13)])
    assert counted(conversation) == (0, 0)
    conversation.update(looks(14, 1))
    assert counted(conversation) == (1, 1)


def test_another_call_ends_the_row_though_it_has_left_the_view() -> None:
    other = {"call_id": "other", "name": "other", "arguments": {}}
    conversation = Conversation([said(1), *looks(2, 2), row(6, "function_call", other, 6), *looks(7, 2)])
    conversation.compact(compaction(8, 1))
    assert counted(conversation) == (2, 2)
