"""What processes tell each other over the bus: small JSON, lost or repeated without harm.

Rows are the truth. A `Newest` says that there are more of them, a `Delta` carries text that is in no
row yet, and all others ask somebody to look.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, assert_never

import orjson

from perdure.live.frames import DeltaKind

log = logging.getLogger(__name__)

PAYLOAD_BYTES = 7000
"""The most that one payload holds; PostgreSQL refuses 8000."""
TEXT_BYTES = 6000
WANTED_SESSIONS = 150


@dataclass(frozen=True, slots=True)
class Newest:
    """Events of the session are stored up to `seq`."""

    session_id: str
    seq: int


@dataclass(frozen=True, slots=True)
class Delta:
    """Text of a part of an item in progress.

    at: how many characters of the item, all its parts together, come before the text. after: the
    stored event behind which it belongs.
    """

    session_id: str
    epoch: int
    turn_id: str
    item_id: str
    output_index: int
    kind: DeltaKind
    part: int
    at: int
    text: str
    after: int

    @property
    def end(self) -> int:
        return self.at + len(self.text)


@dataclass(frozen=True, slots=True)
class Gone:
    """The session is deleted."""

    session_id: str


@dataclass(frozen=True, slots=True)
class Input:
    """Input for the session was accepted; whoever runs it should look."""

    session_id: str


@dataclass(frozen=True, slots=True)
class Want:
    """The sender has readers of these sessions. `new`: it knows nothing yet of what is being written."""

    session_ids: tuple[str, ...]
    new: bool


@dataclass(frozen=True, slots=True)
class WantText:
    """The sender has readers of the session and lacks an item's text from character `at` on."""

    session_id: str
    item_id: str
    at: int


@dataclass(frozen=True, slots=True)
class WhoWants:
    """The sender has just started: everybody says what they want."""


Message = Newest | Delta | Gone | Input | Want | WantText | WhoWants


@dataclass(frozen=True, slots=True)
class Letter:
    """An encoded message; `session_id` is None when it is for every process."""

    session_id: str | None
    body: bytes


def letters(message: Message) -> Iterator[Letter]:
    """The message as one or more letters, each small enough for a payload of its own."""
    match message:
        case Newest(session_id, seq):
            yield _letter(session_id, {"kind": "seq", "session": session_id, "seq": seq})
        case Delta():
            at = message.at
            for text in _split(message.text):
                yield _letter(message.session_id, _delta_body(message, at, text))
                at += len(text)
        case Gone(session_id):
            yield _letter(session_id, {"kind": "closed", "session": session_id})
        case Input(session_id):
            yield _letter(None, {"kind": "woken", "session": session_id})
        case Want(session_ids, new):
            for start in range(0, len(session_ids), WANTED_SESSIONS):
                some = session_ids[start : start + WANTED_SESSIONS]
                yield _letter(None, {"kind": "want", "sessions": some, "new": new})
        case WantText(session_id, item_id, at):
            yield _letter(None, {"kind": "want_text", "session": session_id, "item": item_id, "at": at})
        case WhoWants():
            yield _letter(None, {"kind": "who_wants"})
        case _:
            assert_never(message)


def payloads(some: Iterable[Letter]) -> list[bytes]:
    """Letters in payloads of at most `PAYLOAD_BYTES`, in their order."""
    packed: list[bytes] = []
    bodies: list[bytes] = []
    size = 2
    for letter in some:
        if bodies and size + len(letter.body) + 1 > PAYLOAD_BYTES:
            packed.append(b"[%b]" % b",".join(bodies))
            bodies, size = [], 2
        bodies.append(letter.body)
        size += len(letter.body) + 1
    if bodies:
        packed.append(b"[%b]" % b",".join(bodies))
    return packed


def messages(payload: bytes) -> list[Message]:
    """The messages of a payload. What is none, or of a newer version, is left out."""
    try:
        bodies = orjson.loads(payload)
    except ValueError:
        log.warning("a message on the bus is no JSON; is something else publishing there?")
        return []
    found = []
    for body in bodies if isinstance(bodies, list) else ():
        try:
            message = _read(body)
        except (KeyError, TypeError):
            log.warning("a message on the bus is none of ours, or lacks something")
            continue
        if message is not None:
            found.append(message)
    return found


def _letter(session_id: str | None, body: dict[str, Any]) -> Letter:
    return Letter(session_id, orjson.dumps(body))


def _delta_body(delta: Delta, at: int, text: str) -> dict[str, Any]:
    return {
        "kind": "delta",
        "session": delta.session_id,
        "epoch": delta.epoch,
        "turn": delta.turn_id,
        "item": delta.item_id,
        "output": delta.output_index,
        "of": delta.kind,
        "part": delta.part,
        "at": at,
        "text": text,
        "after": delta.after,
    }


def _read(body: Any) -> Message | None:
    match body["kind"]:
        case "seq":
            return Newest(body["session"], body["seq"])
        case "delta":
            return Delta(
                session_id=body["session"],
                epoch=body["epoch"],
                turn_id=body["turn"],
                item_id=body["item"],
                output_index=body["output"],
                kind=body["of"],
                part=body["part"],
                at=body["at"],
                text=body["text"],
                after=body["after"],
            )
        case "closed":
            return Gone(body["session"])
        case "woken":
            return Input(body["session"])
        case "want":
            return Want(tuple(body["sessions"]), body["new"])
        case "want_text":
            return WantText(body["session"], body["item"], body["at"])
        case "who_wants":
            return WhoWants()
        case _:
            return None


def _split(text: str) -> Sequence[str]:
    """The text in pieces whose JSON fits `TEXT_BYTES`; at least one, in order."""
    # The longest escape of a character takes six bytes.
    if len(text) * 6 <= TEXT_BYTES or len(orjson.dumps(text)) <= TEXT_BYTES:
        return [text]
    middle = len(text) // 2
    return [*_split(text[:middle]), *_split(text[middle:])]
