"""What the model sees of an agent's history: built from items, always valid.

Every call is followed by exactly one result before anything else; reasoning is replayed only to the
provider and model that produced it, and only in front of the output that followed it; a step that
broke off is shown only where nothing replaced it. Whatever ended a turn, the next request is sound.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perdure.harness.checks import Checked
from perdure.models.messages import (
    AssistantMessage,
    Entry,
    FunctionCall,
    FunctionResult,
    ImagePart,
    Native,
    Part,
    Reasoning,
    ServerNote,
    TextPart,
    UserMessage,
)
from perdure.store.rows import ItemRow
from perdure.wire.jsontext import dumps

NOT_EXECUTED = "Not executed: the turn ended before this call had a result."
ACCEPTED = "Accepted. The call runs in the background; its result will be given to you later."


class Conversation:
    """An agent's items in order, kept up to date by the transactions that change them."""

    def __init__(self, items: Iterable[ItemRow]) -> None:
        self._rows: list[ItemRow] = []
        self._places: dict[str, int] = {}
        self._finished: _Finished | None = None
        self.size = 0
        self.update(items)

    def update(self, items: Iterable[ItemRow]) -> None:
        """Take in items that were added (in order) or changed."""
        for item in items:
            place = self._places.setdefault(item.id, len(self._rows))
            if place == len(self._rows):
                self._rows.append(item)
            else:
                self._rows[place] = item
            # Roughly the JSON kept in memory, counted again when an item changes.
            self.size += len(dumps(item.data)) + 200

    def of_turn(self, turn_id: str) -> list[ItemRow]:
        """The items of one turn, in order."""
        return [item for item in self._rows if item.turn_id == turn_id]

    @property
    def settled(self) -> int:
        """How many of the entries last built belong to turns that have ended."""
        return 0 if self._finished is None else len(self._finished.entries)

    @property
    def checked(self) -> Checked:
        """What of these entries was found to be sound before."""
        return Checked() if self._finished is None else self._finished.checked

    def entries(self, provider: str, model: str, running_turn: str, result_bytes: int) -> tuple[Entry, ...]:
        """The history as entries of a request to `model` of `provider`.

        `result_bytes` bounds how much of one tool result the model is shown.
        """
        target = (provider, model, result_bytes)
        before = self._finished
        if before is None or before.target != target:
            before = _Finished(target, 0, (), Checked())
        rows = self._rows
        past = before.rows
        while past < len(rows) and rows[past].turn_id != running_turn:
            past += 1
        finished = before.entries
        if past > before.rows:
            # Items of turns that have ended never change: what they say is built once.
            finished += _entries(rows[before.rows : past], running_turn, target)
        self._finished = _Finished(target, past, finished, before.checked)
        return finished + _entries(rows[past:], running_turn, target)


Target = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class _Finished:
    """The entries of the first `rows` items, all of turns that have ended, for one model."""

    target: Target
    rows: int
    entries: tuple[Entry, ...]
    checked: Checked


def _entries(rows: Sequence[ItemRow], running_turn: str, target: Target) -> tuple[Entry, ...]:
    results = {
        row.data["call_id"]: row
        for row in rows
        if row.type == "function_call_output" and not (row.private or {}).get("late")
    }
    builder = _Builder(*target[:2], results, target[2])
    steps = _steps(rows)
    last_step = dict(steps.keys())
    done: set[tuple[str, int]] = set()
    for row in rows:
        if row.step is None:
            builder.add_input(row)
            continue
        key = (row.turn_id, row.step)
        if key not in done:
            done.add(key)
            closing = row.turn_id != running_turn and last_step[row.turn_id] == row.step
            builder.add_step(steps[key], closing=closing)
    return tuple(builder.entries)


def _steps(rows: Sequence[ItemRow]) -> dict[tuple[str, int], list[ItemRow]]:
    """Outputs grouped by the model call that made them, in the order the model made them."""
    steps: dict[tuple[str, int], list[ItemRow]] = {}
    for row in rows:
        if row.step is not None:
            steps.setdefault((row.turn_id, row.step), []).append(row)
    for outputs in steps.values():
        outputs.sort(key=lambda row: row.output_index or 0)
    return steps


class _Builder:
    def __init__(self, provider: str, model: str, results: dict[str, ItemRow], result_bytes: int) -> None:
        self.entries: list[Entry] = []
        self._provider = provider
        self._model = model
        self._results = results
        self._result_bytes = result_bytes

    def add_input(self, row: ItemRow) -> None:
        match row.type:
            case "message":
                self.entries.append(UserMessage(_parts(row.data["content"])))
            case "function_call_output" if (row.private or {}).get("late"):
                label = f"The result of your earlier call {row.data['call_id']} has arrived:"
                content, _ = self._result(row)
                parts = (TextPart(content),) if isinstance(content, str) else content
                self.entries.append(ServerNote((TextPart(label), *parts)))
            case _:
                pass  # the result of a call stands behind its step

    def add_step(self, outputs: Sequence[ItemRow], *, closing: bool) -> None:
        """Add what one model call put out; `closing`: it is the last of a turn that has ended."""
        shown = [row for row in outputs if self._is_shown(row, closing)]
        calls: list[ItemRow] = []
        for row in shown:
            private = row.private or {}
            for thought in private.get("reasoning", ()):
                native = self._native(thought["native"])
                if native is not None:
                    self.entries.append(Reasoning(tuple(thought["summary"]), native))
            match row.type:
                case "message":
                    text = "".join(part["text"] for part in row.data["content"])
                    native = self._native(private.get("native"))
                    self.entries.append(AssistantMessage(text, row.data["phase"], native))
                case "function_call":
                    calls.append(row)
                    arguments = _arguments(row.data["arguments"])
                    native = self._native(private.get("native"))
                    self.entries.append(
                        FunctionCall(row.data["call_id"], row.data["name"], arguments, native)
                    )
        for row in calls:
            self.entries.append(self._result_of(row))
        for row in shown:
            note = (row.private or {}).get("note")
            if note is not None:
                self.entries.append(ServerNote((TextPart(note),)))

    def _is_shown(self, row: ItemRow, closing: bool) -> bool:
        match row.type:
            case "message":
                text = any(part["text"] for part in row.data["content"])
                return text and (row.status == "completed" or (row.status == "incomplete" and closing))
            case "reasoning":
                return False  # a summary is for people; providers get their own data back
            case _:
                return True

    def _native(self, stored: Mapping[str, Any] | None) -> Native | None:
        """Provider data, if the model about to be called is the one that produced it."""
        if stored is None or stored["provider"] != self._provider or stored["model"] != self._model:
            return None
        return Native(stored["provider"], stored["model"], stored["data"])

    def _result_of(self, call: ItemRow) -> FunctionResult:
        call_id = call.data["call_id"]
        row = self._results.get(call_id)
        if row is None:
            is_async = (call.private or {}).get("async", False)
            return FunctionResult(call_id, ACCEPTED if is_async else NOT_EXECUTED, failed=not is_async)
        content, failed = self._result(row)
        return FunctionResult(call_id, content, failed)

    def _result(self, row: ItemRow) -> tuple[str | tuple[Part, ...], bool]:
        failed = row.status == "failed"
        content: Any = row.data["error"] if failed else row.data["output"]
        if content is None:
            content = row.data["output"] if failed else None
        if content is None or content == "" or content == []:
            return ("The call failed without a reason." if failed else "(no output)"), failed
        if isinstance(content, str):
            return _bounded(content, self._result_bytes), failed
        left = self._result_bytes
        parts: list[Part] = []
        for part in _parts(content):
            if isinstance(part, TextPart):
                part = TextPart(_bounded(part.text, left))
                left = max(0, left - len(part.text.encode()))
            parts.append(part)
        return tuple(parts), failed


def _parts(content: Sequence[dict[str, Any]]) -> tuple[Part, ...]:
    return tuple(
        ImagePart(part["image_url"]) if part["type"] == "input_image" else TextPart(part["text"])
        for part in content
    )


def _arguments(arguments: Any) -> str:
    """Arguments as JSON text of an object; what the model wrote and was no object is shown quoted."""
    if not isinstance(arguments, dict):
        arguments = {"_not_an_object": arguments}
    return dumps(arguments).decode()


def _bounded(text: str, limit: int) -> str:
    """Head and tail of a text that has more than `limit` bytes, with its size."""
    if len(text) * 4 <= limit:
        return text
    data = text.encode()
    if len(data) <= limit:
        return text
    head, tail = limit * 3 // 4, limit // 4
    omitted = len(data) - head - tail
    return (
        f"{data[:head].decode(errors='ignore')}\n[… {omitted:,} of {len(data):,} bytes are not shown; "
        f"the full result is stored with the call …]\n{data[len(data) - tail :].decode(errors='ignore')}"
    )
