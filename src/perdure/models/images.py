"""Images of a request: what they are, whether a provider reads them, and which ones it has refused.

An image that a provider does not read makes the request fail, and every later one that shows it: words
stand in its place.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from perdure.models.errors import ModelError
from perdure.models.image_header import kind_and_size
from perdure.models.messages import Entry, FunctionResult, ImagePart, ModelRequest, ServerNote, UserMessage

MOST_REFUSED = 100_000
REFUSED = "the provider could not read it"

_DATA_URL = re.compile(r"data:(?P<kind>[^;,]*)(?:;[^;,]*)*?;base64,", re.IGNORECASE)
_ALIASES = {"image/jpg": "image/jpeg"}
_HEAD = 64 << 10  # of base64; a JPEG may have as much before it tells its size
_COMPLAINT = re.compile(
    r"image|media[ _]?type|mime ?type|\bdownload|\bfetch(?:ing)? (?:content|file|url)", re.IGNORECASE
)
_PLACE = re.compile(r"(?:messages|input)[.\[]+\d+[\w.\[\]]*")


@dataclass(frozen=True, slots=True)
class ImageRules:
    """What a provider reads: media types, bytes of an image, pixels of its longer side, and addresses."""

    kinds: Collection[str]
    most_bytes: int | None = None
    most_pixels: int | None = None
    only_https: bool = False


@dataclass(frozen=True, slots=True)
class Inline:
    """An image by its bytes: media type and base64."""

    kind: str
    data: str


@dataclass(frozen=True, slots=True)
class Linked:
    url: str


@dataclass(frozen=True, slots=True)
class Unshown:
    """An image that cannot be shown, and why."""

    why: str

    @property
    def text(self) -> str:
        return f"[image not shown: {self.why}]"


class ImageLessons:
    """Images that providers have refused, by a digest each."""

    def __init__(self) -> None:
        self._refused: set[bytes] = set()

    def look_at(self, url: str, rules: ImageRules) -> Inline | Linked | Unshown:
        """An image as it can be sent, or why it cannot."""
        if self._refused and _digest(url) in self._refused:
            return Unshown(REFUSED if _is_data(url) else f"{REFUSED}: {url[:200]}")
        return look_at(url, rules)

    def learn(self, request: ModelRequest, write: Callable[[], Sequence[Any]], error: ModelError) -> bool:
        """Take a refused request into account; whether the next one will be different.

        Only the image that is named is left out the first time, then all of the running turn, then all.

        Args:
            write: writes the messages of the request once more, to find the image that is named.
        """
        if error.status not in (400, 422) or error.code != "invalid_request":
            return False
        if not _COMPLAINT.search(error.message):
            return False
        new, every = _images(request.entries[request.settled :]), _images(request.entries)
        named = _named(write(), error.message) if every else set()
        choices = [new, every]
        if named:
            # A second one: there may be more than there are attempts.
            of_turn = named <= new
            choices = [new if of_turn else every, every]
            if not (new if of_turn else every) & self._refused:
                choices.insert(0, named)
        for images in choices:
            if images - self._refused:
                if len(self._refused) > MOST_REFUSED:
                    self._refused.clear()
                self._refused |= images
                return True
        return False


def look_at(url: str, rules: ImageRules) -> Inline | Linked | Unshown:
    """An image as it can be sent, or why it cannot."""
    if not _is_data(url):
        scheme = url.partition(":")[0].lower()
        if scheme == "https" or (scheme == "http" and not rules.only_https):
            return Linked(url)
        return Unshown(f"{url[:200]} is no {'https' if rules.only_https else 'http'} address")
    head = _DATA_URL.match(url)
    if head is None:
        return Unshown("its data URL is not in base64")
    data = url[head.end() :]
    try:
        # The ends tell most mistakes, and decoding a large image takes milliseconds.
        start = binascii.a2b_base64(data[:_HEAD], strict_mode=True)
        binascii.a2b_base64(data[_HEAD:][-_HEAD:], strict_mode=True)
    except binascii.Error:
        return Unshown("its data is no base64")
    if not start or len(data) % 4:
        return Unshown("its data is no base64" if start else "it is empty")
    told = _ALIASES.get(head["kind"].lower(), head["kind"].lower())
    kind, size = kind_and_size(start)
    # Providers refuse an image that is not what its media type says.
    kind = kind or told
    if kind not in rules.kinds:
        return Unshown(f"the model reads no {kind[:60] or 'such data'}")
    if rules.most_bytes is not None and len(data) * 3 // 4 > rules.most_bytes:
        return Unshown(f"it has more than {rules.most_bytes >> 20} MiB")
    if rules.most_pixels is not None and size is not None and max(size) > rules.most_pixels:
        return Unshown(f"it is {size[0]} by {size[1]} pixels, more than {rules.most_pixels}")
    return Inline(kind, data)


def _is_data(url: str) -> bool:
    return url[:5].lower() == "data:"


def _images(entries: Iterable[Entry]) -> set[bytes]:
    found: set[bytes] = set()
    for entry in entries:
        if isinstance(entry, UserMessage | ServerNote | FunctionResult) and not isinstance(
            entry.content, str
        ):
            found |= {_digest(part.image_url) for part in entry.content if isinstance(part, ImagePart)}
    return found


def _named(sent: Sequence[Any], complaint: str) -> set[bytes]:
    """The image at the place that a complaint names, such as `messages.3.content.1.image.source.data`."""
    place = _PLACE.search(complaint)
    if place is None:
        return set()
    at: Any = sent
    for step in re.findall(r"\w+", place[0])[1:]:
        if isinstance(at, list | tuple) and step.isdecimal() and int(step) < len(at):
            at = at[int(step)]
        elif isinstance(at, dict) and step in at:
            at = at[step]
    source = _source(at)
    return set() if source is None else {_digest(source)}


def _source(at: Any) -> str | None:
    """The data or the address of the one image at a place of a request."""
    while isinstance(at, dict):
        at = next((at[key] for key in ("source", "image_url", "data", "url") if key in at), None)
    return at if isinstance(at, str) else None


def _digest(url: str) -> bytes:
    """Of what an image is, whatever its media type is said to be."""
    head = _DATA_URL.match(url)
    return sha256(url[head.end() :].encode() if head else url.encode("utf-8", "replace")).digest()
