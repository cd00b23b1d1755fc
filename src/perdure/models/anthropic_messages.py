"""The messages of an Anthropic request: turns that alternate, with every call answered in the next one."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Literal, assert_never

from perdure.models.images import ImageLessons, ImageRules, Inline, Linked, Unshown
from perdure.models.jsontext import decode
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
from perdure.models.offered import Offered, OfferRules
from perdure.models.outgoing import (
    NO_OUTPUT,
    arguments_text,
    call_id,
    note_content,
    result_content,
    results_next_to_calls,
)

Role = Literal["user", "assistant"]
Block = dict[str, Any]
Message = dict[str, Any]

MAX_CALL_ID = 64
THINKING = ("thinking", "redacted_thinking")
NOTHING_BEFORE = "What was said before is not shown."
GO_ON = "Go on."

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_IMAGES = ImageRules(
    ("image/jpeg", "image/png", "image/gif", "image/webp"),
    most_bytes=10 << 20,
    most_pixels=8000,
    only_https=True,
)


@dataclass(frozen=True, slots=True)
class Before:
    """What stands before the messages that are written: ids of calls and names of functions in it.

    `begun`: there is something, and it ends with a message of the assistant.
    """

    begun: bool = False
    ids: frozenset[str] = frozenset()
    names: tuple[str, ...] = ()


def thought_id(data: Mapping[str, Any]) -> str:
    """A short name for a thinking block: what followed it keeps it, to be replayed behind it."""
    seal = str(data.get("signature") or data.get("data") or "")
    return sha256(seal.encode("utf-8", "replace")).hexdigest()[:16]


class MessageWriter:
    """Writes entries as messages.

    Thinking goes back unchanged, to the model that produced it and in front of what followed it. Calls
    keep the ids their producer gave them, so that it reads its own turns as it wrote them.

    Args:
        replay: False leaves all thinking out.
        refused: thoughts, by `thought_id`, that the provider does not take back.
        offered: the functions as the provider takes them.
        images: the images that it has refused.
        before: what was written already.
    """

    def __init__(
        self,
        provider: str,
        model: str,
        *,
        replay: bool = True,
        refused: Container[str] = frozenset(),
        offered: Offered | None = None,
        images: ImageLessons | None = None,
        before: Before = Before(),
    ) -> None:
        self._provider = provider
        self._model = model
        self._replay = replay
        self._refused = refused
        self._messages: list[Message] = []
        self._offered = offered or Offered((), OfferRules())
        self._images = images or ImageLessons()
        self._before = before
        self._ids: dict[str, str] = {}
        self._used: set[str] = set()
        self._names = dict.fromkeys(before.names)
        self._pending: list[Block] = []

    @property
    def after(self) -> Before:
        """What stands before the messages behind these."""
        begun = self._before.begun or bool(self._messages)
        return Before(begun, self._before.ids | self._used, tuple(self._names))

    def write(self, entries: Sequence[Entry], *, open_end: bool = False) -> list[Message]:
        """The messages: the first and the last are the user's.

        `open_end`: more messages follow, so the last may be the assistant's.
        """
        run: list[Reasoning] = []
        for entry in results_next_to_calls(entries):
            if isinstance(entry, Reasoning):
                run.append(entry)
                continue
            if run:
                self._pending += self._thoughts(run, entry)
                run = []
            self._write(entry)
        if not open_end and (not self._messages or self._messages[-1]["role"] == "assistant"):
            # A last message of the assistant would be a beginning that the model must continue.
            self._add("user", self._note(GO_ON))
        return self._messages

    def _write(self, entry: Entry) -> None:
        match entry:
            case UserMessage():
                self._add("user", self._blocks(entry.content))
            case ServerNote():
                self._add("user", self._blocks(note_content(entry)))
            case AssistantMessage():
                self._add("assistant", self._blocks((TextPart(entry.text),)))
            case FunctionCall():
                self._add("assistant", [self._call(entry)])
            case FunctionResult():
                self._add("user", [self._result(entry)])
            case Reasoning():
                raise AssertionError("reasoning is written with its follower")
            case _:
                assert_never(entry)

    def _add(self, role: Role, blocks: Sequence[Block]) -> None:
        if not blocks:
            return
        if not self._messages and role == "assistant" and not self._before.begun:
            self._messages.append({"role": "user", "content": self._note(NOTHING_BEFORE)})
        if not self._messages or self._messages[-1]["role"] != role:
            self._messages.append({"role": role, "content": []})
        content = self._messages[-1]["content"]
        if role == "assistant":
            content += self._pending
        # Thinking that nothing followed is refused at the end of a message.
        self._pending = []
        content += blocks

    def _thoughts(self, run: Sequence[Reasoning], follower: Entry) -> Iterable[Block]:
        """The thinking blocks of a run, if the provider takes them back here."""
        native = follower.native if isinstance(follower, AssistantMessage | FunctionCall) else None
        if not self._replay or native is None or not self._is_own(native):
            return ()
        ids = [thought_id(entry.native.data) for entry in run]
        whole = all(self._is_own(entry.native) for entry in run) and native.data.get("thinking") == ids
        if not whole or any(one in self._refused for one in ids):
            return ()
        return [dict(entry.native.data) for entry in run]

    def _call(self, entry: FunctionCall) -> Block:
        chosen = call_id(entry.call_id, MAX_CALL_ID)
        if entry.native is not None and self._is_own(entry.native):
            theirs = entry.native.data.get("id")
            if isinstance(theirs, str) and _ID.fullmatch(theirs) and not self._is_used(theirs):
                chosen = theirs
        self._used.add(chosen)
        self._ids[entry.call_id] = chosen
        name = self._offered.sent(entry.name)
        self._names[name] = None
        arguments = self._offered.arguments(entry.name, arguments_text(entry.arguments))
        return {
            "type": "tool_use",
            "id": chosen,
            "name": name,
            "input": decode(arguments.encode()),
        }

    def _is_used(self, theirs: str) -> bool:
        return theirs in self._used or theirs in self._before.ids

    def _result(self, entry: FunctionResult) -> Block:
        chosen = self._ids.get(entry.call_id) or call_id(entry.call_id, MAX_CALL_ID)
        content = result_content(entry)
        parts = (TextPart(content),) if isinstance(content, str) else content
        blocks = self._blocks(parts) or [{"type": "text", "text": NO_OUTPUT}]
        block: Block = {"type": "tool_result", "tool_use_id": chosen, "content": blocks}
        if entry.failed and all(part["type"] == "text" for part in blocks):
            # An error with an image in it is refused; its text says that the call failed.
            block["is_error"] = True
        return block

    def _is_own(self, native: Native) -> bool:
        return native.provider == self._provider and native.model == self._model

    # ---- parts ---------------------------------------------------------------------------------

    def _note(self, text: str) -> list[Block]:
        return self._blocks(note_content(ServerNote((TextPart(text),))))

    def _blocks(self, parts: Sequence[Part]) -> list[Block]:
        """The parts as content blocks, without the blank texts that the API refuses."""
        return [self._block(part) for part in parts if _is_said(part)]

    def _block(self, part: Part) -> Block:
        match part:
            case TextPart():
                return {"type": "text", "text": part.text}
            case ImagePart():
                return self._image(part.image_url)
        assert_never(part)

    def _image(self, url: str) -> Block:
        """An image by its bytes or its address, or words in its place where the API would not read it."""
        match self._images.look_at(url, _IMAGES):
            case Inline(kind, data):
                return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}
            case Linked(address):
                return {"type": "image", "source": {"type": "url", "url": address}}
            case Unshown() as unshown:
                return {"type": "text", "text": unshown.text}


def begins_with_thinking(messages: Sequence[Message]) -> bool:
    """Whether the turn that results go on with began with thinking; True when no turn goes on."""
    if not _has_results(messages[-1]):
        return True
    start = next(
        (
            index
            for index in range(len(messages) - 1, -1, -1)
            if messages[index]["role"] == "user" and not _has_results(messages[index])
        ),
        -1,
    )
    return messages[start + 1]["content"][0]["type"] in THINKING


def _has_results(message: Message) -> bool:
    return any(block["type"] == "tool_result" for block in message["content"])


def _is_said(part: Part) -> bool:
    return isinstance(part, ImagePart) or bool(part.text.strip())


def settled_messages(entries: Sequence[Entry], settled: int) -> int:
    """How many of the first `settled` entries end with a complete message of the assistant.

    The last of the user's messages among them is left out: a cache breakpoint belongs on it.
    """
    end = _end_of_answer(entries, settled)
    before = _end_of_answer(entries, end - 1)
    while before and _answers_beyond(entries, before, end):
        before = _end_of_answer(entries, before - 1)
    return before


def _end_of_answer(entries: Sequence[Entry], at_most: int) -> int:
    """The last place up to `at_most` between an answer of the assistant and what the user says next."""
    for end in range(min(at_most, len(entries) - 1), 0, -1):
        said, follows = entries[end - 1], entries[end]
        if not isinstance(follows, UserMessage | ServerNote) or not any(map(_is_said, follows.content)):
            continue
        if isinstance(said, AssistantMessage) and said.text.strip():
            return end
    return 0


def _answers_beyond(entries: Sequence[Entry], start: int, end: int) -> bool:
    """Whether there is a result from `start` on whose call stands before it."""
    calls: set[str] = set()
    for entry in entries[start:end]:
        if isinstance(entry, FunctionCall):
            calls.add(entry.call_id)
        elif isinstance(entry, FunctionResult) and entry.call_id not in calls:
            return True
    return False
