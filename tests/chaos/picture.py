"""What a client knows of a session: from lists and events in any mixture, put together by item id."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]
TURN = "agent.session.turn."
ENDED = ("completed", "failed", "cancelled")


@dataclass
class Picture:
    """`texts` are put together from deltas alone, for items whose beginning this connection has told.

    `replayed` says that messages may come without deltas, since those are not stored. `outlives` says that
    a stream may outlive whoever writes a message, which is then closed with less than was told of it.
    """

    replayed: bool = False
    outlives: bool = False
    session: Json = field(default_factory=dict)
    turns: dict[str, str] = field(default_factory=dict)
    items: dict[str, Json] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    cut: set[str] = field(default_factory=set)

    def reconnect(self) -> None:
        """Deltas may have been missed."""
        self.texts.clear()

    def read(self, session: Json, turns: Iterable[Json], items: Iterable[Json]) -> None:
        """Take what the API lists."""
        self.session = session
        for turn in turns:
            self._turn(turn["id"], turn["status"])
        for item in items:
            self._item(item)

    def apply(self, event: Json) -> None:
        """Take an event; what is final already stays."""
        kind: str = event["type"]
        match kind.removeprefix(TURN):
            case "created" | "in_progress" | "completed" | "failed" | "cancelled" as status:
                self._turn(event["turn_id"], "queued" if status == "created" else status)
            case "item.added":
                self._item(event["item"])
                self.texts[event["item"]["id"]] = ""
            case "output_text.delta" if event["item_id"] in self.texts:
                self.texts[event["item_id"]] += event["delta"]
            case "output_text.done":
                told = self.texts.get(event["item_id"], event["text"])
                whole = told == event["text"] or (told == "" and self.replayed)
                if self.outlives and not whole and told.startswith(event["text"]):
                    self.cut.add(event["item_id"])
                    return
                assert whole, f"the deltas of {event['item_id']} have a gap: {told!r}"
            case "item.done":
                ended, status = event["item"]["id"], event["item"]["status"]
                assert ended not in self.cut or status == "incomplete", f"the end of {ended} was not told"
                self._item(event["item"])
        if "session" in event:
            self.session = event["session"]

    @property
    def user_texts(self) -> list[str]:
        """One text for each user message, in order."""
        return [text_of(item) for item in self.items.values() if item.get("role") == "user"]

    @property
    def owed(self) -> list[Json]:
        return list(self.session.get("required_actions", ()))

    def rests(self, said: Iterable[str]) -> bool:
        """Whether all that was said has been dealt with."""
        idle = self.session.get("status") == "idle" and all(s in ENDED for s in self.turns.values())
        return idle and set(said) <= set(self.user_texts)

    def _turn(self, turn_id: str, status: str) -> None:
        if self.turns.get(turn_id) not in ENDED:
            self.turns[turn_id] = status

    def _item(self, item: Json) -> None:
        known = self.items.get(item["id"])
        if known is None or known["status"] == "in_progress":
            self.items[item["id"]] = copy.deepcopy(item)


def text_of(item: Json) -> str:
    return "".join(part.get("text", "") for part in item["content"])
