"""Readers of event streams: what they receive, whether it is in order, and the state they make of it."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from typing import Any

import httpx2

from .observed import Json, Observed, text_of
from .rules import ENDED, World
from .script import ASYNC

PREFIX = "agent.session."
STREAM_TIMEOUT = 30.0


class Reader:
    """Follows one stream on a thread; subscribed when the constructor returns.

    Frames are checked as they come: an `event:` line, one `data:` line of the same type, a blank line.
    """

    def __init__(
        self, client: httpx2.Client, method: str, path: str, body: Json | None = None, **headers: str
    ):
        request = client.build_request(method, path, json=body, headers=headers, timeout=STREAM_TIMEOUT)
        self._response = client.send(request, stream=True)
        self.status = self._response.status_code
        if self.status >= 400:
            self._response.read()
        assert self.status in (200, 201), f"{method} {path}: {self.status} {self._response.text}"
        self._lock = threading.Lock()
        self._events: list[Json] = []
        self._closed = False
        self.ended = False
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    @property
    def events(self) -> list[Json]:
        with self._lock:
            return list(self._events)

    def close(self) -> None:
        self._closed = True
        with contextlib.suppress(OSError, KeyError):
            # Closing alone would leave the thread in recv.
            network = self._response.extensions["network_stream"]
            network.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
        self._thread.join(STREAM_TIMEOUT)

    def _follow(self) -> None:
        try:
            name = None
            for line in self._response.iter_lines():
                if line.startswith("event: "):
                    assert name is None, "two event lines"
                    name = line.removeprefix("event: ")
                elif line.startswith("data: "):
                    event = json.loads(line.removeprefix("data: "))
                    assert event["type"] == name, f"{name} carries {event}"
                    with self._lock:
                        self._events.append(event)
                elif line == "":
                    name = None
                else:
                    assert line.startswith(":"), f"unexpected line {line!r}"
        except Exception as error:  # noqa: BLE001 -- looked at by whoever follows
            self.error = None if self._closed else error
        finally:
            self._response.close()
            self.ended = True


class Follower:
    """A reader's view of a session: by the documented procedure, or from the creation stream alone.

    Args:
        base: what was read after the stream was opened; None for a creation stream.
        starts_at: number of things said before the stream was opened, if that is known.
        snapshot: what the stream must begin with, if that is known.
    """

    def __init__(
        self,
        reader: Reader,
        base: Observed | None,
        starts_at: int | None = None,
        snapshot: list[tuple[Any, ...]] | None = None,
    ) -> None:
        self.reader = reader
        self.starts_at = 0 if base is None else starts_at
        self.snapshot = [] if base is None else snapshot
        self.session: Json | None = None if base is None else base.session
        self.turns: dict[str, Json] = {} if base is None else {turn["id"]: turn for turn in base.turns}
        self.items: dict[str, Json] = {} if base is None else {item["id"]: item for item in base.items}
        self._said: list[Json] = []
        self._ids: set[str] = set()
        self._parts = Parts()
        self._from_start = base is None
        self._taken = 0

    def take(self) -> None:
        """Take in what has arrived; raises AssertionError for what must not come here."""
        events = self.reader.events
        assert self.reader.error is None, f"the stream broke: {self.reader.error!r}"
        for event in events[self._taken :]:
            try:
                self._apply(event)
            except AssertionError as error:
                before = [short(each) for each in events[: events.index(event)]]
                raise AssertionError(f"{error}\nat {event}\nbehind {before}") from error
        self._taken = len(events)

    def text(self, item_id: str) -> str:
        """The text so far of an item in progress."""
        return self._parts.text(item_id)

    def _apply(self, event: Json) -> None:
        assert event["event_id"] not in self._ids, "a repeated event_id"
        self._ids.add(event["event_id"])
        kind = event["type"].removeprefix(PREFIX)
        if not is_told(event):
            self._parts.apply(kind, event)
            return
        self._said.append(event)
        if "session" in event:
            check_session(event["session"])
            self.session = event["session"]
        elif "turn" in event:
            assert event["turn"]["id"] == event["turn_id"]
            check_turn(event)
            known = self.turns.get(event["turn_id"])
            if known is None or known["status"] not in ENDED:
                self.turns[event["turn_id"]] = event["turn"]
        elif "item" in event:
            self._apply_item(kind, event)

    def _apply_item(self, kind: str, event: Json) -> None:
        item = event["item"]
        assert item["turn_id"] == event["turn_id"]
        if kind == "turn.item.added":
            self._parts.begin(event)
        else:
            self._parts.end(event)
        known = self.items.get(item["id"])
        if known is None or known["status"] == "in_progress":
            self.items[item["id"]] = item

    # ---- held against a world

    def difference(self, world: World, seen: Observed) -> str | None:
        """What is not as the world says, or not (yet) as the API says."""
        said = self.said(seen)
        if said is None:
            return "the stream tells of what is not listed"
        problem = self._said_difference(world, said)
        if problem is not None:
            return f"{problem}\nsaid: {said}\nexpected: {list(world.said)}"
        if self._from_start and self.reader.ended:
            return None
        return self._state_difference(world, seen)

    def said(self, seen: Observed) -> list[tuple[Any, ...]] | None:
        """Events without parts and deltas, with numbers in place of ids."""
        try:
            return [numbered(event, seen) for event in self._said]
        except KeyError:
            return None

    def _said_difference(self, world: World, said: list[tuple[Any, ...]]) -> str | None:
        expected = list(world.said)
        if self._from_start and self.reader.ended:
            end = _first_end(expected)
            if end is None:
                return "the creation stream has ended"
            return None if said == expected[:end] else "the creation stream differs"
        if self._from_start and _first_end(expected) is not None:
            return "the creation stream has not ended"
        if self.starts_at is not None and self.snapshot is not None:
            live = said[len(self.snapshot) :]
            if said[: len(self.snapshot)] != self.snapshot:
                return f"the snapshot differs from {self.snapshot}"
            return None if live == expected[self.starts_at :] else "the stream differs"
        for size in range(1, len(said) + 1):
            live = said[size:]
            start = len(expected) - len(live)
            if start >= 0 and live == expected[start:] and _may_begin(said[:size]):
                return None
        return "the stream differs"

    def _state_difference(self, world: World, seen: Observed) -> str | None:
        session = self.session
        assert session is not None
        names = ["status"]
        if world.status != "in_progress":
            names += ["required_actions", "usage"]
        if world.status == "idle":
            names.append("last_active_at")
        for name in names:
            if session[name] != seen.session[name]:
                return f"{name} by events: {session[name]}, read: {seen.session[name]}"
        turns = [_comparable(turn) for turn in self.turns.values()]
        if turns != [_comparable(turn) for turn in seen.turns]:
            return f"turns by events: {turns}, read: {seen.turns}"
        if list(self.items) != [item["id"] for item in seen.items]:
            return f"items by events: {list(self.items)}, read: {[item['id'] for item in seen.items]}"
        for item in seen.items:
            mine = self.items[item["id"]]
            if item["status"] == "in_progress" and item["type"] in ("message", "reasoning"):
                problem = self._writing_difference(world, item, seen)
                if problem is not None:
                    return problem
            elif mine != item:
                return f"item by events: {mine}, read: {item}"
        return None

    def _writing_difference(self, world: World, item: Json, seen: Observed) -> str | None:
        text = self.text(item["id"])
        if not text.startswith(text_of(item)):
            return f"text by events: {text!r}, read: {text_of(item)!r}"
        position = seen.item_number[item["id"]]
        if world.plan is None or position != len(world.items) - 1:
            return None
        held = world.plan.texts[world.opened - 1].held
        return None if held is None or text == held else f"text by events: {text!r}, expected {held!r}"


class Parts:
    """The order of what is said of one item, and its text so far."""

    def __init__(self) -> None:
        self._items: dict[str, dict[str, Any]] = {}

    def text(self, item_id: str) -> str:
        return "".join(part["text"] for part in self._items[item_id]["parts"])

    def begin(self, event: Json) -> None:
        item = event["item"]
        assert item["id"] not in self._items, "added twice"
        self._items[item["id"]] = {"parts": [], "done": False, "index": event["output_index"]}
        if item["type"] == "message" and item["role"] == "assistant":
            assert (item["content"], item["status"], item["phase"]) == ([], "in_progress", None)

    def apply(self, kind: str, event: Json) -> None:
        item = self._items.get(event["item_id"])
        assert item is not None, "an item that was not added"
        assert not item["done"], "an item that is done"
        assert event["output_index"] == item["index"]
        parts, step = item["parts"], kind.removeprefix("turn.")
        index = event["content_index"] if "content_index" in event else event["summary_index"]
        match step:
            case "content_part.added" | "reasoning_summary_part.added":
                assert index == len(parts), "a part out of order"
                assert not parts or parts[-1]["state"] == "done"
                assert event["part"]["text"] == ""
                parts.append({"text": "", "state": "open"})
                return
            case _:
                assert index < len(parts), "a part that was not added"
        part = parts[index]
        match step:
            case "output_text.delta" | "reasoning_summary_text.delta":
                assert part["state"] == "open"
                assert event["delta"]
                part["text"] += event["delta"]
            case "output_text.done" | "reasoning_summary_text.done":
                assert part["state"] == "open"
                assert event["text"] == part["text"], f"the deltas were {part['text']!r}"
                part["state"] = "told"
            case "content_part.done" | "reasoning_summary_part.done":
                assert part["state"] == "told"
                assert event["part"]["text"] == part["text"]
                part["state"] = "done"
            case _:
                raise AssertionError("an unknown event")

    def end(self, event: Json) -> None:
        item = event["item"]
        known = self._items.get(item["id"])
        if item["type"] == "function_call":
            # A call that the server refused is never added; one with an unapplied result is not sent again.
            if known is not None:
                assert not known["done"]
                known["done"] = True
            return
        assert known is not None, "done without being added"
        assert not known["done"], "done twice"
        known["done"] = True
        assert text_of(item) == self.text(item["id"])
        if item["status"] == "completed":
            assert all(part["state"] == "done" for part in known["parts"])


def check_session(session: Json) -> None:
    """What every session must satisfy by itself."""
    actions = session["required_actions"]
    blocking = [action for action in actions if action["name"] not in ASYNC]
    assert len({action["call_id"] for action in actions}) == len(actions), session
    match session["status"]:
        case "requires_action":
            assert blocking, session
        case "idle":
            assert not blocking, session
        case "in_progress":
            pass
        case other:
            raise AssertionError(f"status {other}")


def check_turn(event: Json) -> None:
    """What every event about a turn must satisfy by itself."""
    turn, state = event["turn"], event["type"].removeprefix(f"{PREFIX}turn.")
    assert turn["status"] == ("queued" if state == "created" else state)
    if state in ENDED:
        assert event["usage"] == turn["usage"]


def is_told(event: Json) -> bool:
    """Whether the world tells of this event: of all but parts and deltas."""
    return event["type"] == "error" or any(name in event for name in ("session", "turn", "item"))


def numbered(event: Json, seen: Observed) -> tuple[Any, ...]:
    """An event as the world tells it. Raises KeyError for an id that is not listed."""
    kind = event["type"].removeprefix(PREFIX)
    if "session" in event:
        session = event["session"]
        assert kind in ("created", session["status"]), event
        actions = tuple(seen.call_number[action["call_id"]] for action in session["required_actions"])
        return ("session", kind, actions)
    if "turn" in event:
        state = kind.removeprefix("turn.")
        return ("turn", state, seen.turn_number[event["turn_id"]])
    if "item" in event:
        number = seen.item_number[event["item"]["id"]]
        place = event["output_index"]
        if kind == "turn.item.added":
            return ("added", number, place)
        return ("done", number, event["item"]["status"], place)
    return ("error", event["error"]["code"])


def expected_snapshot(world: World) -> list[tuple[Any, ...]]:
    """What a new reader is told of a session at rest."""
    writing = [
        n
        for n, item in enumerate(world.items)
        if item.kind in ("assistant", "reasoning") and item.status == "in_progress"
    ]
    unfinished = sorted([*writing, *(world.calls[call].item for call in world.open_calls)])
    added = [("added", number, world.items[number].output_index) for number in unfinished]
    session = ("session", world.status, world.open_calls)
    if world.status == "idle":
        return [session]
    if world.status == "requires_action":
        return [*added, session]
    messages = [
        ("added", n, None)
        for n, item in enumerate(world.items)
        if item.kind == "user" and item.turn == world.current
    ]
    return [session, *messages, *added]


def _first_end(said: list[tuple[Any, ...]]) -> int | None:
    """Where a creation stream ends: behind the first idle that follows the end of a turn."""
    ended = False
    for number, what in enumerate(said, 1):
        ended = ended or (what[0] == "turn" and what[1] in ENDED)
        if ended and what[:2] == ("session", "idle"):
            return number
    return None


def told_again(world: World) -> list[tuple[Any, ...]]:
    """What a repeated streaming creation tells, once the first turn has ended."""
    actions = world.open_calls if world.status == "idle" else ()
    said: list[tuple[Any, ...]] = [("session", "created", world.open_calls), ("turn", "created", 0)]
    for number, item in enumerate(world.items):
        if item.turn == 0 and item.output_index is None:
            said.append(("added", number, None))
        elif item.turn == 0:
            said.append(("done", number, item.status, item.output_index))
    return [*said, ("turn", world.turns[0].status, 0), ("session", "idle", actions)]


def _may_begin(snapshot: list[tuple[Any, ...]]) -> bool:
    """Whether this could be a snapshot: the session before, or behind, items that are sent again."""
    states = [what[1] for what in snapshot if what[0] == "session"]
    added = [what for what in snapshot if what[0] == "added"]
    if len(states) != 1 or len(states) + len(added) != len(snapshot):
        return False
    place = 0 if snapshot[0][0] == "session" else len(snapshot) - 1
    return snapshot[place][0] == "session" and (states[0] != "idle" or not added)


def _comparable(turn: Json) -> Json:
    """A turn as events can tell it: they do not say that it waits, nor what it has used so far."""
    if turn["status"] in ENDED:
        return turn
    status = "in_progress" if turn["status"] == "waiting" else turn["status"]
    return {**turn, "status": status, "usage": None}


def short(event: Json) -> str:
    kind = str(event["type"]).removeprefix(PREFIX)
    subject = event.get("item_id") or (event.get("item") or event.get("turn") or {}).get("id", "")
    return f"{kind} {subject[-4:]}".strip()
