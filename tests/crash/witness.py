"""What a client saw of a session while its server died and came back, and what must hold of it.

The strongest rule is the simplest: whatever was ever seen as final stays, in its place, word for word.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]

STORED = re.compile(r"evt_[0-9A-Za-z]{16}_(\d+)")
FINAL = {"completed", "failed", "incomplete"}
ENDED = {"completed", "failed", "cancelled"}
TURN = "agent.session.turn."


def text_of(item: Json) -> str:
    """All text of a message or a summary."""
    return "".join(part["text"] for part in item.get("content") or item.get("summary") or [])


@dataclass
class Seen:
    """One look: the session, its items and its turns, oldest first."""

    session: Json
    items: list[Json]
    turns: list[Json]

    @property
    def status(self) -> str:
        return str(self.session["status"])

    @property
    def ended(self) -> list[str]:
        """How the turns that have ended did so, oldest first."""
        return [turn["status"] for turn in self.turns if turn["status"] in ENDED]

    def messages(self, role: str) -> list[str]:
        found = (item for item in self.items if item["type"] == "message" and item["role"] == role)
        return [text_of(item) for item in found]


@dataclass
class Witness:
    """Everything seen, in order. `acknowledged` are the calls whose result was accepted with 202.

    `outlives`: the streams come from another process than the one that writes.
    """

    outlives: bool = False
    looks: list[Seen] = field(default_factory=list)
    streams: list[list[Json]] = field(default_factory=list)
    acknowledged: dict[str, str] = field(default_factory=dict)
    posting: str | None = None

    def note(self, seen: Seen) -> None:
        if not self.looks or self.looks[-1] != seen:
            self.looks.append(seen)

    def check_owed(self, session: Json) -> None:
        """After a restart, the session asks for exactly the results that it has not accepted."""
        asked = {action["call_id"] for action in session["required_actions"]}
        assert not asked & self.acknowledged.keys(), "an accepted result is asked for again"
        known = {action["call_id"] for seen in self.looks for action in seen.session["required_actions"]}
        assert known - self.acknowledged.keys() - {self.posting} <= asked, "a call is no longer asked for"

    def check(self, final: Seen) -> None:
        """Hold everything seen against how the session is in the end."""
        for seen in self.looks:
            self._check_look(seen, final)
        by_id = {item["id"]: item for item in final.items}
        assert len(by_id) == len(final.items), "an item is listed twice"
        for events in self.streams:
            check_stream(events, by_id, outlives=self.outlives)
        self._check_turns(final)
        self._check_results(final)
        ids = Counter(event["event_id"] for events in self.streams for event in events)
        assert [name for name, count in ids.items() if count > 1] == [], "event ids are repeated"

    def _check_look(self, seen: Seen, final: Seen) -> None:
        ids = [item["id"] for item in seen.items]
        assert [item["id"] for item in final.items[: len(ids)]] == ids, "items were lost or reordered"
        for before, after in zip(seen.items, final.items, strict=False):
            if before.get("status", "completed") in FINAL:
                assert after == before, "a finished item changed"
            elif before["type"] in ("message", "reasoning"):
                assert text_of(after).startswith(text_of(before)), "text that was listed is gone"
        for turn, last in zip(seen.turns, final.turns, strict=False):
            assert turn["id"] == last["id"], "turns were lost or reordered"
            if turn["status"] in ENDED:
                assert turn == last, "a turn that had ended changed"

    def _check_turns(self, final: Seen) -> None:
        said: dict[str, set[str]] = {}
        for events in self.streams:
            for event in events:
                kind = event["type"].removeprefix(TURN)
                if event["type"].startswith(TURN) and kind in ENDED:
                    said.setdefault(event["turn_id"], set()).add(kind)
        ends = {turn["id"]: {turn["status"]} for turn in final.turns}
        assert {turn: ends[turn] for turn in said} == said, "a turn was said to end in another way"

    def _check_results(self, final: Seen) -> None:
        results = [item for item in final.items if item["type"] == "function_call_output"]
        calls = [item for item in final.items if item["type"] == "function_call"]
        by_call = {item["call_id"]: item["output"] for item in results}
        assert len(by_call) == len(results), "a call has two results"
        assert sorted(by_call) == sorted(call["call_id"] for call in calls), "calls and results do not match"
        accepted = {call: by_call[call] for call in self.acknowledged}
        assert accepted == self.acknowledged, "a call has another result than the accepted one"
        assert [item["status"] for item in calls if item["status"] == "in_progress"] == []


def check_stream(events: list[Json], final: dict[str, Json], *, outlives: bool = False) -> None:
    """One stream, from its snapshot to its end or to the crash, against the final items.

    Stored events are dense, deltas add up to what was done, what was done is what is listed, and what
    was never done begins what is listed. Where the stream and whoever writes an item are in different
    processes (`outlives`), one goes on without the other: more may have been told than what was saved and
    the item closed with, and more may have been written than what was told.
    """
    numbers = [int(m[1]) for event in events if (m := STORED.fullmatch(event["event_id"]))]
    dense = list(range(numbers[0], numbers[0] + len(numbers))) if numbers else []
    assert numbers == dense, f"stored events are missing or repeated: {numbers}"
    texts: dict[tuple[str, int], str] = {}
    open_items: set[str] = set()
    for event in events:
        match event["type"].removeprefix(TURN):
            case "item.added":
                assert event["item"]["id"] in final, "an announced item is gone"
                if event["item"].get("role") != "user" and event["item"].get("status") == "in_progress":
                    open_items.add(event["item"]["id"])
            case "output_text.delta" | "reasoning_summary_text.delta":
                part = _part(event)
                texts[part] = texts.get(part, "") + event["delta"]
            case "output_text.done" | "reasoning_summary_text.done":
                told = texts.get(_part(event), "")
                torn = outlives and final[event["item_id"]]["status"] == "incomplete"
                same = told.startswith(event["text"]) if torn else told == event["text"]
                assert same, f"deltas and final text differ: {told!r}, {event['text']!r}"
            case "item.done":
                assert event["item"] == final[event["item"]["id"]], "what was done is not what is listed"
                open_items.discard(event["item"]["id"])
    for (item_id, index), text in texts.items():
        if item_id in open_items:
            item = final[item_id]
            parts = item.get("content") or item.get("summary") or []
            saved = parts[index]["text"] if index < len(parts) else ""
            goes_on = outlives and saved.startswith(text)
            assert goes_on or text.startswith(saved), "a crash left text that nobody had seen"


def _part(event: Json) -> tuple[str, int]:
    return event["item_id"], event.get("content_index", event.get("summary_index", 0))


def check_snapshot(events: list[Json], session: Json) -> None:
    """The first frames of a stream opened on a session that waits: what is owed, then the session."""
    kind = f"agent.session.{session['status']}"
    said = [event["type"] for event in events].index(kind)
    calls = [event["item"].get("call_id") for event in events[:said]]
    owed = [action["call_id"] for action in session["required_actions"]]
    assert calls == (owed if session["status"] == "requires_action" else [])
    assert events[said]["session"] == session
