"""Items as entries of a request: each call with its one result, bounded texts, images within a budget."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from perdure.harness.excerpts import excerpt, image_in_words
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
from perdure.store.coordination import COORDINATION_ITEMS
from perdure.store.rows import ItemRow
from perdure.wire.jsontext import dumps

NOT_EXECUTED = "Not executed: the turn ended before this call had a result."
ACCEPTED = "Accepted. The call runs in the background; its result will be given to you later."

STILL_WAITING = "The wait is not over."

ImagePlace = tuple[int, int]
"""Position of an item, and number of the part in it."""


@dataclass(frozen=True, slots=True)
class Shape:
    """For whom entries are made: native data is for this provider and model only.

    Args:
        result_bytes: how much of one result is shown.
        shows_images: whether the model sees images; those before `images_from` are told in words.
    """

    provider: str
    model: str
    result_bytes: int
    shows_images: bool = True
    images_from: ImagePlace = (0, 0)


@dataclass(slots=True)
class Shown:
    """What entries have shown so far: images, and whether a result was cut."""

    images: set[str] = field(default_factory=set)
    is_cut: bool = False

    def copy(self) -> Shown:
        return Shown(set(self.images), self.is_cut)


def make_entries(rows: Sequence[ItemRow], running_turn: str, shape: Shape, shown: Shown) -> list[Entry]:
    """Whole steps and inputs as entries, in order; `shown` takes in what they show."""
    results = {
        row.data["call_id"]: row
        for row in rows
        if row.type == "function_call_output" and not (row.private or {}).get("late")
    }
    builder = _Builder(shape, results, shown)
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
    return builder.entries


def images_of(row: ItemRow) -> Iterator[tuple[ImagePlace, str]]:
    """The images of a message or a result, each with its place."""
    content = row.data.get("content") if row.type == "message" else row.data.get("output")
    if isinstance(content, list):
        for number, part in enumerate(content):
            if part["type"] == "input_image":
                yield (row.pos, number), part["image_url"]


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
    def __init__(self, shape: Shape, results: dict[str, ItemRow], shown: Shown) -> None:
        self.entries: list[Entry] = []
        self._shape = shape
        self._results = results
        self._shown = shown

    def add_input(self, row: ItemRow) -> None:
        match row.type:
            case "message":
                self.entries.append(UserMessage(self._parts(row, row.data["content"])))
            case "function_call_output" if (row.private or {}).get("late"):
                label = f"The result of your earlier call {row.data['call_id']} has arrived:"
                content, _ = self._result(row)
                parts = (TextPart(content),) if isinstance(content, str) else content
                self.entries.append(ServerNote((TextPart(label), *parts)))
            case "agent_message":
                self.entries.append(self._message_of_agent(row))
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
                    arguments = arguments_text(row.data["arguments"])
                    native = self._native(private.get("native"))
                    self.entries.append(
                        FunctionCall(row.data["call_id"], row.data["name"], arguments, native)
                    )
                case kind if kind in COORDINATION_ITEMS:
                    calls.append(row)
                    made = private["call"]
                    native = self._native(private.get("native"))
                    arguments = arguments_text(made["arguments"])
                    self.entries.append(FunctionCall(made["id"], made["name"], arguments, native))
        for row in calls:
            self.entries.append(self._result_of(row))
        for row in shown:
            note = (row.private or {}).get("note")
            if note is not None:
                self.entries.append(ServerNote((TextPart(note),)))

    def _is_shown(self, row: ItemRow, closing: bool) -> bool:
        match row.type:
            case "message" if (row.private or {}).get("leaked"):
                return False  # markup of a call that stands behind it as a refused one
            case "message":
                text = any(part["text"] for part in row.data["content"])
                return text and (row.status == "completed" or (row.status == "incomplete" and closing))
            case "reasoning":
                return False  # a summary is for people; providers get their own data back
            case _:
                return True

    def _native(self, stored: Mapping[str, Any] | None) -> Native | None:
        """Provider data, if the model about to be called is the one that produced it."""
        shape = self._shape
        if stored is None or stored["provider"] != shape.provider or stored["model"] != shape.model:
            return None
        return Native(stored["provider"], stored["model"], stored["data"])

    def _message_of_agent(self, row: ItemRow) -> Entry:
        """What the agent above asks for is a request; what a subagent reports is not."""
        private = row.private or {}
        text = "".join(part["text"] for part in row.data["content"])
        report = private.get("report")
        if report is None:
            return UserMessage((TextPart(f"[From the agent that created you]\n{text}"),))
        used = "" if report["tokens"] is None else f", {report['tokens']:,} tokens"
        sender = row.data["sender_agent_id"]
        label = f"Report of the subagent '{report['name']}' ({sender}); its turn is {report['status']}{used}:"
        return ServerNote((TextPart(label), TextPart(self._bounded(row.id, text, self._shape.result_bytes))))

    def _result_of(self, call: ItemRow) -> FunctionResult:
        if call.type in COORDINATION_ITEMS:
            private = call.private or {}
            told = self._bounded(call.id, private.get("result", STILL_WAITING), self._shape.result_bytes)
            return FunctionResult(private["call"]["id"], told, call.status == "failed")
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
            return self._bounded(row.data["call_id"], content, self._shape.result_bytes), failed
        left = self._shape.result_bytes
        parts: list[Part] = []
        for part in self._parts(row, content):
            if isinstance(part, TextPart):
                part = TextPart(self._bounded(row.data["call_id"], part.text, left))
                left = max(0, left - len(part.text.encode()))
            parts.append(part)
        return tuple(parts), failed

    def _bounded(self, place: str, text: str, limit: int) -> str:
        """As much of a text as is shown; `place` is where `read_result` finds all of it."""
        bounded = excerpt(text, limit, place)
        if bounded is not text:
            self._shown.is_cut = True
        return bounded

    def _parts(self, row: ItemRow, content: Sequence[dict[str, Any]]) -> tuple[Part, ...]:
        return tuple(
            self._image((row.pos, number), part["image_url"])
            if part["type"] == "input_image"
            else TextPart(part["text"])
            for number, part in enumerate(content)
        )

    def _image(self, place: ImagePlace, url: str) -> Part:
        if not self._shape.shows_images:
            return TextPart(image_in_words(url, "this model does not see images"))
        if place < self._shape.images_from:
            return TextPart(image_in_words(url, "no longer shown"))
        if url in self._shown.images:
            return TextPart(image_in_words(url, "the same image is shown above"))
        self._shown.images.add(url)
        return ImagePart(url)


def arguments_text(arguments: Any) -> str:
    """Arguments as JSON text of an object; what the model wrote and was no object is shown quoted."""
    if not isinstance(arguments, dict):
        arguments = {"_not_an_object": arguments}
    return dumps(arguments).decode()
