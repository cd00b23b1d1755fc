"""Large things in few words: a text's head and tail with a way to the rest, an image as a line."""

from __future__ import annotations

READ_RESULT = "read_result"
"""The function with which a model reads on in a result that it was shown in part."""


def excerpt(text: str, limit: int, call_id: str) -> str:
    """The text itself if it has at most `limit` bytes, else its head and tail, its size, and how to read on.

    Args:
        limit: bytes of UTF-8 that head and tail have together.
        call_id: the call whose result it is.
    """
    if len(text) * 4 <= limit or byte_size(text) <= limit:
        return text
    total = byte_size(text)
    head = byte_slice(text, 0, limit * 3 // 4)
    tail = byte_slice(text, total - limit // 4, total)
    omitted = total - byte_size(head) - byte_size(tail)
    return (
        f"{head}\n[… {omitted:,} of {total:,} bytes are not shown; the full result is stored with the call. "
        f"{READ_RESULT} with call_id {call_id} and offset {byte_size(head)} reads on, where you are given "
        f"it …]\n{tail}"
    )


def byte_size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "replace"))


def byte_slice(text: str, start: int, end: int) -> str:
    """The characters whose UTF-8 lies whole between two byte offsets."""
    start, end = max(0, start), max(0, end)
    if text.isascii():
        return text[start:end]
    data = memoryview(text.encode("utf-8", "replace"))[start:end]
    return bytes(data).decode("utf-8", "ignore")


def clip(text: str, characters: int) -> str:
    """One line of a text, cut to so many characters."""
    line = " ".join(text[: characters * 4].split())
    return line if len(line) <= characters and len(text) <= characters * 4 else line[: characters - 1] + "…"


def image_in_words(url: str, why: str) -> str:
    """What stands in an image's place."""
    if url.startswith("data:"):
        kind, _, data = url[5:].partition(";base64,")
        return f"[image: {kind[:40]}, {len(data) * 3 // 4:,} bytes; {why}]"
    return f"[image: {url[:500]}; {why}]"
