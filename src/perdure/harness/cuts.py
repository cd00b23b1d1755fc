"""Where a history may be cut: between whole steps, never between a call and its result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perdure.harness.entries import arguments_text
from perdure.harness.tokens import FRAME, IMAGE, text_tokens
from perdure.store.coordination import COORDINATION_ITEMS
from perdure.store.rows import ItemRow
from perdure.wire.jsontext import dumps


@dataclass(frozen=True, slots=True)
class Cut:
    """A prefix of the rows, to be compacted. `carried` of it are shown all the same: what is being done.

    `tokens` is about what the prefix takes without what is carried.
    """

    prefix: tuple[ItemRow, ...]
    carried: tuple[ItemRow, ...]
    tokens: int


def find_cut(rows: Sequence[ItemRow], running_turn: str, keep: int, result_bytes: int) -> Cut | None:
    """The longest prefix behind which at most `keep` tokens stay; None where there is nothing to cut.

    The newest step and the newest input always stay, and so does what the user said in the running turn,
    word for word.
    """
    places = cut_places(rows)
    last = _last_place(rows, places, running_turn)
    sizes = [row_tokens(row, result_bytes) for row in rows]
    best = None
    tail = sum(sizes[last:])
    for place in sorted((place for place in places if 0 < place <= last), reverse=True):
        if best is not None:
            tail += sum(sizes[place:best])
        if best is not None and tail > keep:
            break
        best = place
    if best is None:
        return None
    prefix = tuple(rows[:best])
    carried = tuple(row for row in prefix if is_request(row) and row.turn_id == running_turn)
    kept = {row.id for row in carried}
    tokens = sum(size for row, size in zip(prefix, sizes, strict=False) if row.id not in kept)
    return None if len(carried) == len(prefix) else Cut(prefix, carried, tokens)


def cut_places(rows: Sequence[ItemRow]) -> list[int]:
    """Every number of rows that can be cut off, in order; 0 and all of them included."""
    calls: dict[str, int] = {}
    spans: list[tuple[int, int]] = []
    first_of_step: dict[tuple[str, int], int] = {}
    for place, row in enumerate(rows):
        if row.step is not None:
            first = first_of_step.setdefault((row.turn_id, row.step), place)
            spans.append((first, place))
        if row.type == "function_call":
            calls[row.data["call_id"]] = place
        elif row.type == "function_call_output" and not (row.private or {}).get("late"):
            spans.append((calls.get(row.data["call_id"], place), place))
    inside = [0] * (len(rows) + 2)
    for first, end in spans:
        # A cut at `place` parts what is before it from the rest: not allowed from behind the first row on.
        inside[first + 1] += 1
        inside[end + 1] -= 1
    places, depth = [], 0
    for place in range(len(rows) + 1):
        depth += inside[place]
        if depth == 0:
            places.append(place)
    return places


def row_tokens(row: ItemRow, result_bytes: int) -> int:
    """About how many tokens an item takes, without making entries of it."""
    private = row.private or {}
    # What goes back to the provider is mostly encrypted reasoning, whoever it was.
    size = len(dumps(private)) // 4 if "native" in private or "reasoning" in private else 0
    match row.type:
        case "message":
            return size + FRAME + _content(row.data["content"], None)
        case "function_call":
            return size + 2 * FRAME + text_tokens(arguments_text(row.data["arguments"])) * 5 // 4
        case "function_call_output":
            content = row.data["error"] if row.status == "failed" else row.data["output"]
            most = result_bytes // 4
            if isinstance(content, str):
                return 2 * FRAME + min(most, text_tokens(content[: result_bytes + 4]))
            return 2 * FRAME + _content(content or (), result_bytes)
        case "agent_message":
            return 2 * FRAME + _content(row.data["content"], result_bytes)
        case kind if kind in COORDINATION_ITEMS:
            asked = text_tokens(arguments_text(private["call"]["arguments"])) * 5 // 4
            told = text_tokens(private.get("result", "")[: result_bytes + 4]) * 5 // 4
            return size + 3 * FRAME + asked + min(told, result_bytes // 4)
    return 0


def is_request(row: ItemRow) -> bool:
    """Whether an item says what the agent is to do: the user's word, or that of the agent above it."""
    if row.type == "agent_message":
        return bool((row.private or {}).get("input"))
    return row.type == "message" and row.data["role"] == "user"


def _last_place(rows: Sequence[ItemRow], places: Sequence[int], running_turn: str) -> int:
    """Where the newest step begins whose results no model has seen, or the input behind it."""
    last = len(rows)
    while last > 0 and rows[last - 1].turn_id == running_turn and _is_input(rows[last - 1]):
        last -= 1
    if last > 0 and (last == len(rows) or rows[last - 1].turn_id == running_turn):
        last -= 1
    return max((place for place in places if place <= last), default=0)


def _is_input(row: ItemRow) -> bool:
    return is_request(row) or row.type == "agent_message" or bool((row.private or {}).get("late"))


def _content(parts: Sequence[dict[str, str]], result_bytes: int | None) -> int:
    texts = sum(text_tokens(part["text"]) for part in parts if "text" in part)
    if result_bytes is not None:
        texts = min(texts, result_bytes // 4)
    return texts + sum(IMAGE for part in parts if part["type"] == "input_image")
