"""The history of a Gemini request: contents of the roles user and model, in strict turns."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, assert_never

from perdure.models.gemini_family import Rules
from perdure.models.gemini_lessons import FOREIGN_SIGNATURE, Refused
from perdure.models.images import ImageLessons, ImageRules, Inline, Linked, Unshown
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
from perdure.models.offered import Offered
from perdure.models.outgoing import (
    NOTE_END,
    NOTE_START,
    arguments_text,
    call_id,
    note_content,
    result_content,
    results_next_to_calls,
    written,
)

Content = dict[str, Any]
Json = dict[str, Any]

BEGINNING = f"{NOTE_START}\nWhat was said before is not shown.\n{NOTE_END}"
CONTINUE = ServerNote((TextPart("Go on."),))

_IMAGES = ImageRules(("image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"))
_EXTENSIONS = {"png": "png", "jpg": "jpeg", "jpeg": "jpeg", "webp": "webp", "heic": "heic", "heif": "heif"}


def to_be_answered(entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
    """The entries with something behind them that the model can answer: its own words are refused there."""
    own = not entries or isinstance(entries[-1], AssistantMessage | Reasoning)
    return (*entries, CONTINUE) if own else entries


def settled_steps(entries: Sequence[Entry], settled: int) -> int:
    """How many of the first `settled` entries end with a content of the model that is complete."""
    while settled > 0:
        follows = entries[settled] if settled < len(entries) else CONTINUE
        own = isinstance(entries[settled - 1], AssistantMessage)
        if own and isinstance(follows, UserMessage | ServerNote):
            break
        settled -= 1
    return settled


class ContentWriter:
    """Writes entries as contents: what the model did in one step becomes one content.

    The content behind a step with calls begins with one response for each of them, in their order.
    """

    def __init__(
        self,
        provider: str,
        model: str,
        rules: Rules,
        offered: Offered,
        refused: Refused,
        *,
        begun: bool = False,
        images: ImageLessons | None = None,
    ) -> None:
        """`begun`: there are contents before these, and the last of them is the model's."""
        self._provider = provider
        self._model = model
        self._rules = rules
        self._offered = offered
        self._lessons = images or ImageLessons()
        self._refused = refused
        self._begun = begun
        self._contents: list[Content] = []
        self._step: list[AssistantMessage | Reasoning | FunctionCall] = []
        self._calls: list[FunctionCall] = []
        self._results: dict[str, FunctionResult] = {}

    def write(self, entries: Sequence[Entry]) -> list[Content]:
        for entry in results_next_to_calls(entries):
            match entry:
                case AssistantMessage() | Reasoning() | FunctionCall():
                    self._close_results()
                    self._step.append(entry)
                case FunctionResult():
                    self._close_step()
                    self._results[entry.call_id] = entry
                case UserMessage() | ServerNote():
                    self._close_step()
                    self._close_results()
                    content = (
                        written(entry.content) if isinstance(entry, UserMessage) else note_content(entry)
                    )
                    self._add("user", [self._part(part) for part in content])
                case _:
                    assert_never(entry)
        self._close_step()
        self._close_results()
        return self._contents

    def _add(self, role: str, parts: list[Json]) -> None:
        if not parts:
            return
        if self._contents and self._contents[-1]["role"] == role:
            self._contents[-1]["parts"] += parts
            return
        if not self._contents and role == "model" and not self._begun:
            # A conversation that begins with the model is refused.
            self._contents.append({"role": "user", "parts": [{"text": BEGINNING}]})
        self._contents.append({"role": role, "parts": parts})

    # ---- what the model said -------------------------------------------------------------------

    def _close_step(self) -> None:
        step, self._step = self._step, []
        if not step:
            return
        self._calls = [entry for entry in step if isinstance(entry, FunctionCall)]
        self._add("model", [part for entry in step for part in self._said(entry)])

    def _said(self, entry: AssistantMessage | Reasoning | FunctionCall) -> Iterator[Json]:
        match entry:
            case AssistantMessage():
                yield from self._text(entry)
            case Reasoning():
                signature = self._signature(entry.native, entry.native.data.get("signature"))
                if signature:
                    yield {"text": "\n".join(entry.summary), "thought": True, "thoughtSignature": signature}
            case FunctionCall():
                yield self._call(entry)

    def _text(self, entry: AssistantMessage) -> Iterator[Json]:
        """The text, cut where the model signed a part of it: signed parts must come back as they were."""
        native = entry.native
        cuts = native.data.get("parts", ()) if native is not None and self._is_own(native) else ()
        whole = sum(length for length, _ in cuts) == len(entry.text)
        signed = [signature for _, signature in cuts if signature]
        if not whole or not signed or not self._refused.signatures.isdisjoint(signed):
            if entry.text:
                yield {"text": entry.text}
            return
        start = 0
        for length, signature in cuts:
            part: Json = {"text": entry.text[start : start + length]}
            start += length
            yield part | ({"thoughtSignature": signature} if signature else {})

    def _call(self, entry: FunctionCall) -> Json:
        arguments = self._offered.arguments(entry.name, arguments_text(entry.arguments))
        call = {"name": self._offered.sent(entry.name), "args": json.loads(arguments)}
        part: Json = {"functionCall": self._identified(entry, call)}
        native = entry.native
        signature = None if native is None else self._signature(native, native.data.get("signature"))
        if signature is None and self._rules.signed_calls and entry is self._calls[0]:
            signature = FOREIGN_SIGNATURE
        return part | ({"thoughtSignature": signature} if signature else {})

    def _identified(self, entry: FunctionCall, about: Json) -> Json:
        """A call or its result under the id of the call: the provider's own where that is unmistakable."""
        if not self._rules.call_ids:
            return about
        return {"id": self._own_id(entry) or call_id(entry.call_id), **about}

    def _own_id(self, entry: FunctionCall) -> str | None:
        own = [
            call.native.data.get("id")
            for call in self._calls
            if call.native is not None and self._is_own(call.native)
        ]
        native = entry.native
        if native is None or not self._is_own(native):
            return None
        mine: str | None = native.data.get("id")
        return mine if own.count(mine) == 1 else None

    def _signature(self, native: Native, signature: Any) -> str | None:
        if not isinstance(signature, str) or not self._is_own(native):
            return None
        return None if signature in self._refused.signatures else signature

    def _is_own(self, native: Native) -> bool:
        return native.provider == self._provider and native.model == self._model

    # ---- results -------------------------------------------------------------------------------

    def _close_results(self) -> None:
        if not self._results:
            return
        images: list[Json] = []
        parts = [self._response(call, self._results[call.call_id], images) for call in self._calls]
        self._calls, self._results = [], {}
        if images:
            parts += [{"text": NOTE_START}, *images, {"text": NOTE_END}]
        self._add("user", parts)

    def _response(self, call: FunctionCall, result: FunctionResult, images: list[Json]) -> Json:
        content = result_content(result)
        text = content if isinstance(content, str) else "\n".join(self._in_words(content, images))
        # Text stays text, whatever it is: as JSON it would lose digits of its numbers.
        response = {"error" if result.failed else "output": text}
        about = {"name": self._offered.sent(call.name), "response": response}
        return {"functionResponse": self._identified(call, about)}

    def _in_words(self, content: Iterable[Part], images: list[Json]) -> Iterator[str]:
        for part in content:
            if isinstance(part, TextPart):
                yield part.text
            else:
                # A response holds only text: the image stands beside it.
                number = len(images) // 2 + 1
                images += [{"text": f"Image {number} of the results above:"}, self._part(part)]
                yield f"[image {number}: shown after the results]"

    # ---- parts ---------------------------------------------------------------------------------

    def _part(self, part: Part) -> Json:
        match part:
            case TextPart():
                return {"text": part.text}
            case ImagePart():
                return self._image(part.image_url)
        assert_never(part)

    def _image(self, url: str) -> Json:
        """The image, or what it was: an image that is refused would end the conversation for good."""
        match self._lessons.look_at(url, _IMAGES):
            case Linked(address) if not self._rules.fetches_images or address in self._refused.urls:
                return {"text": f"[An image that could not be shown: {address}]"}
            case Linked(address):
                kind = _kind_of(address)
                return {"fileData": ({"mimeType": kind} if kind else {}) | {"fileUri": address}}
            case Inline(kind, data):
                return {"inlineData": {"mimeType": kind, "data": data}}
            case Unshown() as unshown:
                return {"text": unshown.text}


def _kind_of(url: str) -> str | None:
    """The media type that the end of a URL's path tells."""
    path = re.split(r"[?#]", url, maxsplit=1)[0]
    kind = _EXTENSIONS.get(path.rpartition(".")[2].lower())
    return f"image/{kind}" if kind else None
