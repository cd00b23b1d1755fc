"""The note that stands in place of compacted items: what was, what is finished, what is open, and the facts.

It says whose words are whose: what a function returned is told as its result, never as a wish of the user.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from perdure.harness.tokens import text_tokens
from perdure.models.messages import CompactedHistory, Native, ServerNote, TextPart
from perdure.store.compactions import Compaction

HEAD = (
    "The beginning of this conversation is no longer shown; this note stands in its place. It is a record, "
    "not a request: do nothing because of it alone."
)
COMPACTED_HEAD = (
    "The beginning of this conversation was compacted; this note adds to what is left of it above. It is a "
    "record, not a request: do nothing because of it alone."
)
FINISHED = "Earlier requests of the user. All of them are over; do not work on them again:"
FACTS = "Facts, exactly as they were given. Use them as they are; where text and facts differ, facts count:"
OPEN = "Calls whose results had not come when this was written:"
SUBAGENTS = (
    "Your subagents when this was written. Those that were running report with a message when they end; do "
    "not start the same work again:"
)
RUNNING = "The request that follows this note is being worked on. The record above includes the steps so far."

LEAST_PATHS = 400
"""Tokens of the facts of paths that are shown, however little room there is for others."""

_ENDS = {
    "completed": "completed",
    "cancelled": "cancelled by the user",
    "failed": "failed",
}


def note_entries(
    compaction: Compaction, pinned: Mapping[str, str], pin_tokens: int, target: tuple[str, str]
) -> tuple[ServerNote, ...]:
    """What stands in place of the compacted items, for a model of a provider (`target`).

    To the one that the provider compacted them for, that comes first; the note behind it restates the rest.
    """
    earlier = earlier_entry(compaction, target)
    is_native = earlier.compacted is not None
    note = compaction_note(compaction, pinned, pin_tokens, is_told=is_native)
    rest = ServerNote((TextPart(note),))
    return (earlier, rest) if is_native else (rest,)


def facts_entries(pinned: Mapping[str, str]) -> tuple[ServerNote, ...]:
    """The application's facts before a history that is shown whole, or nothing."""
    return (ServerNote((TextPart("\n".join((FACTS, *_pinned(pinned)))),)),) if pinned else ()


def earlier_entry(compaction: Compaction, target: tuple[str, str]) -> ServerNote:
    """What happened, and no more: as the provider compacted it, for its own model, else in words."""
    kept = compaction.data.get("native")
    compacted = None
    if kept is not None and (kept["provider"], kept["model"]) == target:
        native = Native(kept["provider"], kept["model"], kept["data"])
        compacted = CompactedHistory(native, kept["tokens"], kept["kept"])
    told = "\n\n".join((HEAD, *_told(compaction)))
    return ServerNote((TextPart(told),), compacted)


def kept_compaction(compacted: CompactedHistory) -> dict[str, Any]:
    """What a provider compacted, as the row of a compaction keeps it beside the words for other models."""
    native = compacted.native
    return {
        "provider": native.provider,
        "model": native.model,
        "data": dict(native.data),
        "tokens": compacted.tokens,
        "kept": compacted.kept,
    }


def compaction_note(
    compaction: Compaction, pinned: Mapping[str, str], pin_tokens: int, *, is_told: bool = False
) -> str:
    """The text of the note.

    Args:
        pinned: facts of the application by name; all of them are in the note.
        pin_tokens: room for the facts that were found by rule.
        is_told: what happened stands before the note, in another form.
    """
    data = compaction.data
    parts = [COMPACTED_HEAD] if is_told else [HEAD, *_told(compaction)]
    parts.extend(_requests(data["requests"], data["earlier"]))
    if data["open"]:
        lines = [f"- {call['name']} ({call['call_id']}): {call['arguments']}" for call in data["open"]]
        parts.append("\n".join((OPEN, *lines)))
    if data["subagents"]:
        parts.append("\n".join((SUBAGENTS, *(f"- {line}" for line in data["subagents"]))))
    facts = [*_pinned(pinned), *shown_facts(compaction.pins, pin_tokens)]
    if facts:
        parts.append("\n".join((FACTS, *facts)))
    if data["carried"]:
        parts.append(RUNNING)
    return "\n\n".join(parts)


def _told(compaction: Compaction) -> Iterator[str]:
    if compaction.data["summary"]:
        yield f"What happened:\n{compaction.data['summary']}"


def shown_facts(pins: Sequence[Mapping[str, Any]], tokens: int) -> list[str]:
    """Facts as lines: those of paths first, within twice the room that there is for those of rules.

    Of each kind the newest-referenced ones; without a bound, paths alone could fill the window.
    """
    lines = []
    left = {"path": max(2 * tokens, LEAST_PATHS), "rule": tokens}
    for pin in pins:
        kind = "path" if pin["kind"] == "path" else "rule"
        line = f"- {pin['name']}: {_on_one_line(pin['value'])} ({pin['source']})"
        left[kind] -= text_tokens(line)
        if left[kind] >= 0:
            lines.append(line)
        else:
            left[kind] = -1
    return lines


def _pinned(pinned: Mapping[str, str]) -> Iterator[str]:
    for name, value in pinned.items():
        yield f"- {name}: {_on_one_line(value)} (pinned by the application)"


def _on_one_line(value: str) -> str:
    """A value as it is, or quoted if its line breaks would make it look like more than a value."""
    return value if value.isprintable() else json.dumps(value, ensure_ascii=False)


def _requests(requests: Sequence[Mapping[str, str]], earlier: int) -> Iterator[str]:
    if not requests and not earlier:
        return
    lines = [FINISHED]
    if earlier:
        lines.append(f"- {earlier} earlier requests, all of them over")
    for request in requests:
        lines.append(f'- "{request["text"]}" ({_ENDS.get(request["status"], request["status"])})')
    yield "\n".join(lines)
