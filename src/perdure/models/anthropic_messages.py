"""The messages of an Anthropic request: turns that alternate, with every call answered in the next one."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, Literal, assert_never

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
from perdure.models.outgoing import (
    NO_OUTPUT,
    arguments_text,
    call_id,
    function_name,
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
_DATA_URL = re.compile(r"data:(?P<kind>[^;,]*)(?:;[^;,]*)*?;base64,", re.IGNORECASE)
_KINDS = {"image/jpg": "image/jpeg"}
_READABLE = ("image/jpeg", "image/png", "image/gif", "image/webp")


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
    """

    def __init__(
        self, provider: str, model: str, *, replay: bool = True, refused: Container[str] = frozenset()
    ) -> None:
        self._provider = provider
        self._model = model
        self._replay = replay
        self._refused = refused
        self._messages: list[Message] = []
        self._ids: dict[str, str] = {}
        self._used: set[str] = set()
        self._pending: list[Block] = []

    def write(self, entries: Sequence[Entry]) -> list[Message]:
        """The messages: the first and the last are the user's."""
        run: list[Reasoning] = []
        for entry in results_next_to_calls(entries):
            if isinstance(entry, Reasoning):
                run.append(entry)
                continue
            if run:
                self._pending += self._thoughts(run, entry)
                run = []
            self._write(entry)
        if not self._messages or self._messages[-1]["role"] == "assistant":
            # A last message of the assistant would be a beginning that the model must continue.
            self._add("user", _note(GO_ON))
        return self._messages

    def _write(self, entry: Entry) -> None:
        match entry:
            case UserMessage():
                self._add("user", _blocks(entry.content))
            case ServerNote():
                self._add("user", _blocks(note_content(entry)))
            case AssistantMessage():
                self._add("assistant", _blocks((TextPart(entry.text),)))
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
        if not self._messages and role == "assistant":
            self._messages.append({"role": "user", "content": _note(NOTHING_BEFORE)})
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
            if isinstance(theirs, str) and _ID.fullmatch(theirs) and theirs not in self._used:
                chosen = theirs
        self._used.add(chosen)
        self._ids[entry.call_id] = chosen
        return {
            "type": "tool_use",
            "id": chosen,
            "name": function_name(entry.name),
            "input": decode(arguments_text(entry.arguments).encode()),
        }

    def _result(self, entry: FunctionResult) -> Block:
        chosen = self._ids.get(entry.call_id) or call_id(entry.call_id, MAX_CALL_ID)
        content = result_content(entry)
        parts = (TextPart(content),) if isinstance(content, str) else content
        blocks = _blocks(parts) or [{"type": "text", "text": NO_OUTPUT}]
        block: Block = {"type": "tool_result", "tool_use_id": chosen, "content": blocks}
        if entry.failed and all(part["type"] == "text" for part in blocks):
            # An error with an image in it is refused; its text says that the call failed.
            block["is_error"] = True
        return block

    def _is_own(self, native: Native) -> bool:
        return native.provider == self._provider and native.model == self._model


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


def _note(text: str) -> list[Block]:
    return _blocks(note_content(ServerNote((TextPart(text),))))


def _blocks(parts: Sequence[Part]) -> list[Block]:
    """The parts as content blocks, without the blank texts that the API refuses."""
    return [_block(part) for part in parts if isinstance(part, ImagePart) or part.text.strip()]


def _block(part: Part) -> Block:
    match part:
        case TextPart():
            return {"type": "text", "text": part.text}
        case ImagePart():
            return _image(part.image_url)
    assert_never(part)


def _image(url: str) -> Block:
    """An image by its bytes or its address, or words in its place where the API would not read it."""
    if url[:5].lower() != "data:":
        if url[:6].lower() == "https:":
            return {"type": "image", "source": {"type": "url", "url": url}}
        return {"type": "text", "text": f"[image not shown: {url[:200]} is no https address]"}
    head = _DATA_URL.match(url)
    kind = head["kind"].lower() if head else ""
    kind = _KINDS.get(kind, kind)
    if head is None or kind not in _READABLE:
        return {"type": "text", "text": f"[image not shown: the model reads no {kind[:60] or 'such data'}]"}
    return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": url[head.end() :]}}
